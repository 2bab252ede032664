//! Folder of saved reports: one file for each job and node.
//!
//! Only root and the owner may write the folder and those above it, so no other user can fill it or
//! replace a report. The size of a report and the number of reports read are bounded.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use clap::ValueEnum;
use sys::private;

use super::{
    report::{FORMAT, JobReport},
    slurm::Job,
};

/// Maximum size of a report.
const REPORT_MAX_BYTES: u64 = 1 << 20;
/// Maximum number of reports of a job.
const NODES_MAX: usize = 16_384;
/// Age from which an incomplete file is removed.
const ABANDONED: Duration = Duration::from_hours(1);
const COMPLETE: &str = ".json";
const INCOMPLETE: &str = ".part";

/// Readers of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Readers {
    /// Owner of the folder.
    #[default]
    Owner,
    /// Also the group of the job.
    Group,
    /// All users.
    All,
}

/// Limits of a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retention {
    age: Duration,
    bytes: u64,
}

/// Folder for writing.
#[derive(Debug)]
pub(super) struct Spool {
    folder: PathBuf,
    readers: Readers,
    /// Group of the readers.
    gid: Option<u32>,
}

impl Retention {
    pub(super) const fn new(days: u32, bytes: u64) -> Self {
        const DAY_SECONDS: u64 = 86_400;
        Self { age: Duration::from_secs(DAY_SECONDS * days as u64), bytes }
    }
}

impl Spool {
    pub(super) fn open(folder: &Path, readers: Readers) -> anyhow::Result<Self> {
        let gid = std::env::var("SLURM_JOB_GID").ok().and_then(|gid| gid.parse().ok());
        Self::with_group(folder, readers, gid)
    }

    fn with_group(folder: &Path, readers: Readers, gid: Option<u32>) -> anyhow::Result<Self> {
        // Nobody else can replace what is found by these names, so paths are as safe as descriptors.
        private::check_folder(folder)
            .with_context(|| format!("{} is no folder for reports; install -d -m 755 makes one", folder.display()))?;
        if readers == Readers::Group && gid.is_none() {
            bail!("the job's group is unknown: SLURM_JOB_GID is not set (Slurm's Epilog sets it)");
        }
        Ok(Self { folder: folder.to_owned(), readers, gid })
    }

    /// Writes the report of one node as a whole.
    pub(super) fn write(&self, report: &JobReport) -> anyhow::Result<()> {
        let node = report.nodes.first().map(|node| node.node.as_str()).unwrap_or_default();
        let name = file_name(&report.job, node).context("the name of the job or node has invalid characters")?;
        let (path, incomplete) =
            (self.folder.join(&name), self.folder.join(format!("{name}.{}{INCOMPLETE}", process::id())));
        let text = serde_json::to_vec(report)?;
        if text.len() as u64 > REPORT_MAX_BYTES {
            bail!("the report has {} bytes, more than {REPORT_MAX_BYTES}", text.len());
        }
        let result = self.write_incomplete(&incomplete, &text).and_then(|()| fs::rename(&incomplete, &path));
        // A crash of the node must not take the report with it.
        let result = result.and_then(|()| private::sync_folder(&path));
        if result.is_err() {
            let _ = fs::remove_file(&incomplete);
        }
        result.with_context(|| format!("cannot write {}", path.display()))
    }

    fn write_incomplete(&self, path: &Path, text: &[u8]) -> io::Result<()> {
        const OWNER: u32 = 0o600;
        let mode = match self.readers {
            Readers::Owner => OWNER,
            Readers::Group => 0o640,
            Readers::All => 0o644,
        };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(OWNER).open(path)?;
        file.write_all(text)?;
        file.write_all(b"\n")?;
        if self.readers == Readers::Group {
            fchown(&file, None, self.gid)?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()
    }

    /// Removes old reports, and the oldest beyond the maximum size.
    pub(super) fn expire(&self, retention: Retention) -> anyhow::Result<()> {
        self.expire_at(retention, SystemTime::now())
            .with_context(|| format!("cannot remove old reports from {}", self.folder.display()))
    }

    fn expire_at(&self, Retention { age, bytes }: Retention, now: SystemTime) -> io::Result<()> {
        let mut reports = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            // Another Epilog may have removed it.
            let Ok(known) = entry.metadata() else { continue };
            let Ok(modified) = known.modified() else { continue };
            let idle = now.duration_since(modified).unwrap_or_default();
            if is_incomplete(&name) && idle >= ABANDONED {
                remove(&entry.path())?;
            } else if Name::parse(&name).is_some() && known.is_file() {
                reports.push((modified, idle, known.len(), entry.path()));
            }
        }
        reports.sort_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
        let mut kept_bytes: u64 = 0;
        for (_, idle, size, path) in reports {
            let with_it = kept_bytes.saturating_add(size);
            if idle >= age || with_it > bytes {
                remove(&path)?;
            } else {
                kept_bytes = with_it;
            }
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Reads the reports of a job from all folders.
pub(super) fn read(folders: &[PathBuf], job: &Job) -> anyhow::Result<JobReport> {
    let mut paths = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read the folder {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read the folder {}", folder.display()))?;
            if entry.file_name().to_str().and_then(Name::parse).is_some_and(|name| name.is_of(job)) {
                paths.push(entry.path());
            }
        }
    }
    if paths.len() > NODES_MAX {
        bail!("{} reports of job {}, more than {NODES_MAX}: name fewer folders", paths.len(), job.id);
    }
    paths.sort();
    let read = |path: &PathBuf| read_one(path).with_context(|| format!("cannot read {}", path.display()));
    let reports = paths.iter().map(read).collect::<anyhow::Result<_>>()?;
    JobReport::merged(job.clone(), reports).with_context(|| {
        format!("no report of job {} is saved there: it used no managed memory, or its Epilog saves none", job.id)
    })
}

fn read_one(path: &Path) -> anyhow::Result<JobReport> {
    let mut text = Vec::new();
    private::open(OpenOptions::new().read(true), path)?.take(REPORT_MAX_BYTES + 2).read_to_end(&mut text)?;
    if text.len() as u64 > REPORT_MAX_BYTES + 1 {
        bail!("it has more than {REPORT_MAX_BYTES} bytes");
    }
    let report: JobReport = serde_json::from_slice(&text)?;
    if report.format != FORMAT {
        bail!("it has format {}, and this uvmctl reads format {FORMAT}", report.format);
    }
    Ok(report)
}

/// Name of a report's file: `4711.gpu-17.json`, or `4711_sEKNKTV3WPV500.gpu-17.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name<'a> {
    id: &'a str,
    sluid: Option<&'a str>,
}

impl<'a> Name<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (ids, node) = name.strip_suffix(COMPLETE)?.split_once('.')?;
        let (id, sluid) = ids.split_once('_').map_or((ids, None), |(id, sluid)| (id, Some(sluid)));
        let is_valid = is_id(id) && sluid.is_none_or(is_id) && is_node(node);
        is_valid.then_some(Self { id, sluid })
    }

    fn is_of(self, job: &Job) -> bool {
        let ids = job.ids();
        [Some(self.id), self.sluid].into_iter().flatten().any(|id| ids.iter().any(|known| known == id))
    }
}

/// Name of the file of a report; `None` if an id or the node has invalid characters.
fn file_name(job: &Job, node: &str) -> Option<String> {
    let ids = job.ids();
    (ids.iter().all(|id| is_id(id)) && is_node(node)).then(|| format!("{}.{node}{COMPLETE}", ids.join("_")))
}

fn is_incomplete(name: &str) -> bool {
    let complete = name.strip_suffix(INCOMPLETE).and_then(|name| name.rsplit_once('.')).map(|(name, _)| name);
    complete.and_then(Name::parse).is_some()
}

fn is_id(id: &str) -> bool {
    const ID_MAX_BYTES: usize = 32;
    (1..=ID_MAX_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn is_node(node: &str) -> bool {
    const NODE_MAX_BYTES: usize = 128;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NODE_MAX_BYTES).contains(&node.len()) && node.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        os::unix::fs::{MetadataExt as _, chown},
    };

    use api::OwnerReport;

    use super::*;
    use crate::job::report::NodeReport;

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn job(id: &str) -> Job {
        Job { id: id.to_owned(), ..Job::default() }
    }

    fn report(id: &str, node: &str) -> JobReport {
        JobReport::new(job(id), vec![NodeReport { node: node.to_owned(), report: OwnerReport::default() }])
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn at(folder: &Path, name: &str, seconds: u64) {
        let file = File::options().write(true).open(folder.join(name)).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    #[test]
    fn reports_of_all_nodes_are_read_together_and_one_of_the_same_node_is_replaced() {
        let (one, two) = (folder(), folder());
        let spool = |folder: &tempfile::TempDir| Spool::open(folder.path(), Readers::Owner).unwrap();
        for _ in 0..2 {
            spool(&one).write(&report("4711", "gpu-17")).unwrap();
        }
        spool(&two).write(&report("4711", "gpu-18")).unwrap();
        // A copy of the other folder's.
        spool(&two).write(&report("4711", "gpu-17")).unwrap();
        spool(&two).write(&report("47", "gpu-18")).unwrap();
        assert_eq!(names(one.path()), ["4711.gpu-17.json"]);
        let merged = read(&[one.path().to_owned(), two.path().to_owned()], &job("4711")).unwrap();
        assert_eq!(merged.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["gpu-17", "gpu-18"]);
        let error = read(&[one.path().to_owned()], &job("7")).unwrap_err().to_string();
        assert!(error.starts_with("no report of job 7 is saved there"), "{error}");
    }

    #[test]
    fn report_is_found_by_its_number_and_by_its_sluid() {
        let folder = folder();
        let sluid = "sEKNKTV3WPV500";
        let mut saved = report("4711", "gpu-17");
        saved.job.sluid = Some(sluid.to_owned());
        Spool::open(folder.path(), Readers::Owner).unwrap().write(&saved).unwrap();
        assert_eq!(names(folder.path()), ["4711_sEKNKTV3WPV500.gpu-17.json"]);
        for id in ["4711", sluid] {
            assert_eq!(read(&[folder.path().to_owned()], &job(id)).unwrap().job.id, "4711");
        }
    }

    #[test]
    fn readers_are_as_configured() {
        for (readers, mode) in [(Readers::Owner, 0o600), (Readers::Group, 0o640), (Readers::All, 0o644)] {
            let folder = folder();
            let gid = fs::metadata(folder.path()).unwrap().gid();
            Spool::with_group(folder.path(), readers, Some(gid)).unwrap().write(&report("1", "a")).unwrap();
            let known = fs::metadata(folder.path().join("1.a.json")).unwrap();
            assert_eq!((known.mode() & 0o777, known.gid()), (mode, gid));
        }
        let folder = folder();
        let error = Spool::with_group(folder.path(), Readers::Group, None).unwrap_err().to_string();
        assert!(error.contains("SLURM_JOB_GID"), "{error}");
    }

    #[test]
    fn folder_that_others_may_change_or_replace_is_refused() {
        let refusal = |path: &Path| format!("{:#}", Spool::open(path, Readers::Owner).unwrap_err());
        let parent = folder();
        let spool = parent.path().join("jobs");
        fs::create_dir(&spool).unwrap();
        for folder in [&spool, parent.path()] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
            let error = refusal(&spool);
            assert!(error.contains("other users may change files in"), "{error}");
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Spool::open(&spool, Readers::Owner).unwrap();
        // Only root can change a folder's owner.
        if chown(&spool, Some(12345), None).is_ok() {
            let error = refusal(&spool);
            assert!(error.ends_with("and belongs to uid 12345"), "{error}");
        }
    }

    #[test]
    fn pipe_in_place_of_a_report_is_not_waited_for() {
        let folder = folder();
        assert!(process::Command::new("mkfifo").arg(folder.path().join("1.a.json")).status().unwrap().success());
        let error = format!("{:#}", read(&[folder.path().to_owned()], &job("1")).unwrap_err());
        assert!(error.ends_with("it is not a regular file"), "{error}");
    }

    #[test]
    fn names_with_other_characters_write_nothing() {
        let folder = folder();
        let spool = Spool::open(folder.path(), Readers::Owner).unwrap();
        for (id, node) in [("../x", "a"), ("1", "../a"), ("1", "a/b"), ("", "a"), ("1", "")] {
            assert!(spool.write(&report(id, node)).is_err(), "{id} {node}");
        }
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn old_reports_are_removed_and_the_oldest_beyond_the_maximum_of_bytes() {
        let folder = folder();
        let spool = Spool::open(folder.path(), Readers::Owner).unwrap();
        for (id, seconds) in [("1", 100), ("2", 5000), ("3", 6000), ("4", 7000)] {
            spool.write(&report(id, "a")).unwrap();
            at(folder.path(), &format!("{id}.a.json"), seconds);
        }
        for (name, seconds) in [("5.a.json.77.part", 100), ("notes.txt", 100), ("6.a.json.78.part", 7000)] {
            fs::write(folder.path().join(name), "").unwrap();
            at(folder.path(), name, seconds);
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(7000);
        let bytes = fs::metadata(folder.path().join("4.a.json")).unwrap().len();
        let retention = Retention { age: Duration::from_mins(50), bytes: bytes * 2 };
        spool.expire_at(retention, now).unwrap();
        assert_eq!(names(folder.path()), ["3.a.json", "4.a.json", "6.a.json.78.part", "notes.txt"]);
    }

    #[test]
    fn file_that_is_no_report_is_named() {
        let folder = folder();
        for text in ["{}", "x", r#"{"format":2}"#] {
            fs::write(folder.path().join("1.a.json"), text).unwrap();
            let error = read(&[folder.path().to_owned()], &job("1")).unwrap_err().to_string();
            assert!(error.ends_with("1.a.json"), "{error}");
        }
    }
}
