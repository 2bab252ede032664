//! /proc/driver/nvidia-uvm/gpus: the driver's counts of a GPU, over all processes, since its first
//! user. Needs the driver's module parameter `uvm_enable_debug_procfs=1`.

use std::{
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::Context;
use gpu::Uuid;

const GPUS: &str = "/proc/driver/nvidia-uvm/gpus";
const VERSION: &str = "/sys/module/nvidia_uvm/version";
const CPU_THRASHING: &str = "/proc/driver/nvidia-uvm/cpu/thrashing_stats";

/// Section of replayable faults by access; that of others has the same name, and comes later.
const BY_ACCESS: &str = "faults_by_access_type:";

/// Statistics of a GPU, from `fault_stats` and `info`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GpuStats {
    /// Replayable faults: every instance of a merged one.
    pub(crate) replayable_faults: u64,
    /// Duplicates among them: further faults of a page in a batch, or faults that were raised
    /// again.
    pub(crate) duplicates: u64,
    pub(crate) non_replayable_faults: u64,
    /// Replayable faults by access: prefetches, reads, writes and atomics.
    pub(crate) by_access: [u64; 4],
    /// Replays, those of a teardown included and those of a cancel not.
    pub(crate) replays: u64,
    /// Pages copied to and from this GPU because of replayable faults, those of CPUs included.
    pub(crate) fault_pages_in: u64,
    pub(crate) fault_pages_out: u64,
    /// Whether these omit the pages that the prefetcher added to faults: from 580 on, where the
    /// driver tests the cause of each copy, and no longer that of the fault.
    pub(crate) omits_prefetched: bool,
    /// Pages copied to and from this GPU, for any cause.
    pub(crate) pages_in: u64,
    pub(crate) pages_out: u64,
    /// Driver's read pointer of the GPU's fault buffer, and the GPU's write pointer.
    pub(crate) fault_get: u64,
    pub(crate) fault_put: u64,
}

impl GpuStats {
    /// Parses the two files.
    fn parse(fault_stats: &str, info: &str) -> anyhow::Result<Self> {
        let stats =
            |section, field| field_of(fault_stats, section, field).with_context(|| format!("fault_stats: no {field}"));
        let info = |field| field_of(info, "", field).with_context(|| format!("info: no {field}"));
        Ok(Self {
            replayable_faults: stats("", "replayable_faults")?,
            duplicates: stats("", "duplicates")?,
            non_replayable_faults: stats("", "non_replayable_faults")?,
            by_access: [
                stats(BY_ACCESS, "prefetch")?,
                stats(BY_ACCESS, "read")?,
                stats(BY_ACCESS, "write")?,
                stats(BY_ACCESS, "atomic")?,
            ],
            replays: stats("replays:", "start")?,
            fault_pages_in: stats("migrations:", "num_pages_in")?,
            fault_pages_out: stats("migrations:", "num_pages_out")?,
            omits_prefetched: false,
            pages_in: info("migrated_pages_in")?,
            pages_out: info("migrated_pages_out")?,
            fault_get: info("replayable_faults_get")?,
            fault_put: info("replayable_faults_put")?,
        })
    }

    /// Counts since an earlier reading. The fault buffer's pointers stay absolute.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            replayable_faults: self.replayable_faults - before.replayable_faults,
            duplicates: self.duplicates - before.duplicates,
            non_replayable_faults: self.non_replayable_faults - before.non_replayable_faults,
            by_access: std::array::from_fn(|at| {
                let of = |stats: &Self| stats.by_access.get(at).copied().unwrap_or_default();
                of(self) - of(before)
            }),
            replays: self.replays - before.replays,
            fault_pages_in: self.fault_pages_in - before.fault_pages_in,
            fault_pages_out: self.fault_pages_out - before.fault_pages_out,
            omits_prefetched: self.omits_prefetched,
            pages_in: self.pages_in - before.pages_in,
            pages_out: self.pages_out - before.pages_out,
            fault_get: self.fault_get,
            fault_put: self.fault_put,
        }
    }

    pub(crate) fn fault_buffer_is_empty(&self) -> bool {
        self.fault_get == self.fault_put
    }
}

/// Number behind `field`, in the first section of that title (`""`: anywhere). A line is `name
/// number (comment)`.
fn field_of(text: &str, section: &str, field: &str) -> Option<u64> {
    let mut words = text.lines().skip_while(|line| !section.is_empty() && *line != section).map(str::split_whitespace);
    words.find_map(|mut words| (words.next() == Some(field)).then(|| words.next())).flatten()?.parse().ok()
}

/// Reads the driver's current counts of a GPU.
pub(crate) fn read(uuid: &Uuid) -> anyhow::Result<GpuStats> {
    let gpu = directory(Path::new(GPUS), uuid)?;
    let missing = "is uvm_enable_debug_procfs=1 set?";
    let fault_stats = read_file(&gpu.join("fault_stats")).with_context(|| missing.to_owned())?;
    // Folder 0 is the GPU itself, not a MIG instance of it.
    let info = read_file(&gpu.join("0/info"))?;
    let stats = GpuStats::parse(&fault_stats, &info).with_context(|| format!("{}: {missing}", gpu.display()))?;
    Ok(GpuStats { omits_prefetched: omits_prefetched(&read_file(Path::new(VERSION))?), ..stats })
}

/// Whether the statistics of a driver's version omit prefetched pages.
fn omits_prefetched(version: &str) -> bool {
    version.split('.').next().and_then(|major| major.trim().parse::<u32>().ok()).is_some_and(|major| major >= 580)
}

/// Driver's counts of thrashing pages, at the processor whose access revealed it. Those of a GPU
/// are cleared with its other statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Thrashing {
    /// Pages detected as thrashing.
    pub(crate) pages: u64,
    /// Faults that were throttled, those of a processor that is throttled already included.
    pub(crate) throttles: u64,
}

impl Thrashing {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let field = |name| field_of(text, "", name).with_context(|| format!("thrashing_stats: no {name}"));
        Ok(Self { pages: field("thrashing")?, throttles: field("throttle")? })
    }

    /// Counts of a GPU.
    pub(crate) fn of_gpu(uuid: &Uuid) -> anyhow::Result<Self> {
        Self::parse(&read_file(&directory(Path::new(GPUS), uuid)?.join("0/thrashing_stats"))?)
    }

    /// Counts of the CPU.
    pub(crate) fn of_cpu() -> anyhow::Result<Self> {
        Self::parse(&read_file(Path::new(CPU_THRASHING))?)
    }

    /// Counts since an earlier reading.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self { pages: self.pages - before.pages, throttles: self.throttles - before.throttles }
    }
}

/// Reads a file, and retries while the driver returns `EAGAIN`.
fn read_file(path: &Path) -> anyhow::Result<String> {
    loop {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(10)),
            result => return result.with_context(|| format!("cannot read {}", path.display())),
        }
    }
}

/// Folder of the GPU. Its prefix differs between versions of the driver: `UVM-GPU-` up to 560, then
/// `GPU-`.
fn directory(gpus: &Path, uuid: &Uuid) -> anyhow::Result<PathBuf> {
    let suffix = format!("GPU-{}", text(uuid));
    let entries = fs::read_dir(gpus).with_context(|| format!("cannot read {}", gpus.display()))?;
    let found = entries.flatten().find(|entry| entry.file_name().to_string_lossy().ends_with(&suffix));
    found.map(|entry| entry.path()).with_context(|| format!("{} has no {suffix}", gpus.display()))
}

/// UUID as the driver and uvmd write it, without prefix.
pub(crate) fn text(uuid: &Uuid) -> String {
    let mut text = String::new();
    for (at, byte) in uuid.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT_STATS: &str = "\
replayable_faults      1234
duplicates             34
faults_by_access_type:
  prefetch             0
  read                 1000
  write                234
  atomic               0
migrations:
  num_pages_in         4096 (16 MB)
  num_pages_out        512 (2 MB)
replays:
  start                17
  start_ack_all        0
non_replayable_faults  0
faults_by_access_type:
  read                 0
  write                0
  atomic               0
faults_by_addressing:
  virtual              0
  physical             0
migrations:
  num_pages_in         77 (0 MB)
  num_pages_out        78 (0 MB)
";
    const INFO: &str = "\
GPU ID 1: Software GPU
retained_count                         3
replayable_faults_bh/cpu
    cpu00                              12
replayable_faults_get                  1234
replayable_faults_put                  1240
migrated_pages_in                      4097 (16 MB)
migrated_pages_out                     1024 (4 MB)
";

    #[test]
    fn statistics_are_read_from_their_section() {
        let stats = GpuStats::parse(FAULT_STATS, INFO).unwrap();
        let expected = GpuStats {
            replayable_faults: 1234,
            duplicates: 34,
            non_replayable_faults: 0,
            by_access: [0, 1000, 234, 0],
            replays: 17,
            fault_pages_in: 4096,
            fault_pages_out: 512,
            omits_prefetched: false,
            pages_in: 4097,
            pages_out: 1024,
            fault_get: 1234,
            fault_put: 1240,
        };
        assert_eq!(stats, expected);
        assert!(!stats.fault_buffer_is_empty());
    }

    #[test]
    fn statistics_omit_prefetched_pages_from_580_on() {
        let versions = ["535.261.03\n", "575.64.05", "580.65.06\n", "595.45.04"];
        assert_eq!(versions.map(omits_prefetched), [false, false, true, true]);
    }

    #[test]
    fn since_subtracts_the_earlier_reading() {
        let before = GpuStats { replayable_faults: 1000, pages_out: 24, ..GpuStats::default() };
        let since = GpuStats::parse(FAULT_STATS, INFO).unwrap().since(&before);
        assert_eq!((since.replayable_faults, since.duplicates, since.pages_out), (234, 34, 1000));
    }

    #[test]
    fn a_file_that_lacks_a_figure_is_refused_by_the_figures_name() {
        // Without uvm_enable_debug_procfs the driver writes a short info.
        let error = GpuStats::parse(FAULT_STATS, "GPU ID 1\nretained_count 3\n").unwrap_err();
        assert_eq!(error.to_string(), "info: no migrated_pages_in");
        for broken in ["", "duplicates", "replayable_faults x\n", "replayable_faults\n1234\n"] {
            let error = GpuStats::parse(broken, INFO).unwrap_err();
            assert_eq!(error.to_string(), "fault_stats: no replayable_faults", "{broken:?}");
        }
    }

    #[test]
    fn thrashing_is_read_by_its_name() {
        let text = "thrashing     64\nthrottle      7\npin_local     2\npin_remote    1\n";
        assert_eq!(Thrashing::parse(text).unwrap(), Thrashing { pages: 64, throttles: 7 });
        assert_eq!(Thrashing::parse("thrashing 1\n").unwrap_err().to_string(), "thrashing_stats: no throttle");
    }

    #[test]
    fn a_gpus_folder_is_found_by_its_uuid_whatever_the_prefix() {
        let gpus = std::env::temp_dir().join(format!("lab-runner-gpus-{}", std::process::id()));
        let folder = gpus.join("UVM-GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        fs::create_dir_all(&folder).unwrap();
        let uuid = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        assert_eq!(directory(&gpus, &uuid).unwrap(), folder);
        assert!(directory(&gpus, &[9; 16]).unwrap_err().to_string().contains("has no GPU-09090909-"));
        fs::remove_dir_all(gpus).unwrap();
    }
}
