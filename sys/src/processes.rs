//! Processes in /proc, by name or id.
//!
//! A process whose first thread has exited continues with its others, but its folder in /proc is
//! that of the first thread: a zombie, without memory and files. Data of all threads are therefore
//! read from a live one ([`live_thread`]).
//!
//! A process can make reads of its files hang: [`process_reads`] makes them.

use std::{
    ffi::OsStr,
    fs, io, iter,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use procfs::{
    FromRead, ProcResult,
    process::{LimitValue, Stat, all_processes_with_root},
};

pub use crate::process_status::user;
use crate::{capabilities::Capabilities, process_reads, process_status::field, roots::Roots};

/// Limit on the ancestors of a process.
const DEPTH_MAX: usize = 256;
/// Maximum of threads inspected per process.
const THREADS_MAX: usize = 4096;

/// Permissions and limits of a running process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Process id.
    pub pid: u32,
    /// Capabilities.
    pub capabilities: Capabilities,
    /// Limit of locked memory in bytes, `u64::MAX` if unlimited; `None` if it is not readable.
    pub locked_memory_max_bytes: Option<u64>,
}

/// Processes with this name (comm) that are visible in /proc.
///
/// # Errors
/// If /proc cannot be listed.
pub fn named(roots: &Roots, name: &str) -> ProcResult<Vec<Running>> {
    let running = |process: ProcResult<procfs::process::Process>| {
        let process = process.ok()?;
        let status = process.status().ok().filter(|status| status.name == name)?;
        // Only the process's user may read its limits.
        let limit = process.limits().ok().map(|limits| limits.max_locked_memory.soft_limit);
        Some(Running {
            pid: u32::try_from(status.pid).ok()?,
            capabilities: Capabilities::from_bits(status.capeff),
            locked_memory_max_bytes: limit.map(|limit| match limit {
                LimitValue::Value(bytes) => bytes,
                LimitValue::Unlimited => u64::MAX,
            }),
        })
    };
    Ok(all_processes_with_root(&roots.proc)?.filter_map(running).collect())
}

/// Start time of a process, in clock ticks since boot; `None` if there is no such process.
///
/// # Errors
/// If unknown: the process may exist.
pub fn start_ticks(roots: &Roots, pid: u32) -> io::Result<Option<u64>> {
    Ok(stat(roots, pid)?.map(|stat| stat.starttime))
}

/// Whether a process is stopped, by a signal or a debugger; `false` if unknown.
pub(crate) fn is_stopped(roots: &Roots, pid: u32) -> bool {
    stat(roots, pid).ok().flatten().is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// Short name of a process, padded with 0; empty if it cannot be read.
#[must_use]
pub fn name(roots: &Roots, pid: u32) -> [u8; 16] {
    let mut name = [0; 16];
    let comm = fs::read(roots.proc.join(pid.to_string()).join("comm")).unwrap_or_default();
    for (to, from) in name.iter_mut().zip(comm.trim_ascii_end()) {
        *to = *from;
    }
    name
}

/// Path of the program that a process executes, as in its mount namespace; that at which it was
/// started, if the file has been deleted or replaced since.
///
/// # Errors
/// If it is unknown, or there is no such process.
pub fn executable(roots: &Roots, pid: u32) -> io::Result<PathBuf> {
    let link = roots.proc.join(pid.to_string()).join("exe");
    let path = process_reads::read(roots, pid, move || fs::read_link(link))?;
    Ok(without_deleted(path))
}

/// A path without the mark by which the kernel tells that the file has been deleted.
fn without_deleted(path: PathBuf) -> PathBuf {
    match path.as_os_str().as_bytes().strip_suffix(b" (deleted)") {
        Some(path) => OsStr::from_bytes(path).into(),
        None => path,
    }
}

/// Identity of the program that a process executes. It differs after each exec, even of the same file, as the
/// kernel places the memory anew. A process can change its identity without an exec, but cannot keep it in an
/// exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    start_ticks: u64,
    /// Addresses of its code and stack, and of its arguments and environment there.
    addresses: [u64; 4],
}

impl Image {
    /// Whether it is of a process that started at this time, and not of a later one with its pid.
    #[must_use]
    pub const fn is_of(&self, start_ticks: u64) -> bool {
        self.start_ticks == start_ticks
    }
}

/// Image of a process; `None` if there is no such process.
///
/// # Errors
/// If unknown: the process may exist.
pub fn image(roots: &Roots, pid: u32) -> io::Result<Option<Image>> {
    let Some(leader) = stat(roots, pid)? else { return Ok(None) };
    let start_ticks = leader.starttime;
    // If the first thread of a process has exited, only the others have memory.
    let other = match live_thread(roots, pid)? {
        Some(thread) if thread != pid => {
            let other = stat_in(roots, pid, &task_folder(roots, pid, thread))?;
            Some(other.ok_or_else(|| io::Error::other("the thread whose image was to be read has ended"))?)
        }
        _ => None,
    };
    let Stat { startcode, startstack, arg_start, env_start, .. } = other.unwrap_or(leader);
    let addresses = [startcode, startstack, arg_start.unwrap_or(0), env_start.unwrap_or(0)];
    Ok(Some(Image { start_ticks, addresses }))
}

/// Processor time of all threads of a process, including exited ones; also for a process whose status is not
/// reaped yet. `None` if there is no process with this start time, in clock ticks since boot, or if the time is
/// unknown.
#[must_use]
pub fn cpu_time(roots: &Roots, pid: u32, start_ticks: u64) -> Option<Duration> {
    let stat = stat(roots, pid).ok()??;
    (stat.starttime == start_ticks).then(|| cpu_of(&stat))
}

/// Processor time of a process of one thread, to the nanosecond if the kernel counts so; also for one whose status
/// is not reaped yet. `None` if there is no such process, or if the time is unknown.
#[must_use]
pub fn run_time(roots: &Roots, pid: u32) -> Option<Duration> {
    let text = fs::read_to_string(roots.proc.join(pid.to_string()).join("schedstat")).unwrap_or_default();
    let exact = text.split_ascii_whitespace().next().and_then(|ns| ns.parse().ok()).map(Duration::from_nanos);
    // Zero where the kernel does not count.
    exact.filter(|time| !time.is_zero()).or_else(|| Some(cpu_of(&stat(roots, pid).ok()??)))
}

fn cpu_of(stat: &Stat) -> Duration {
    let ticks = stat.utime.saturating_add(stat.stime);
    Duration::from_millis(ticks.saturating_mul(1000) / procfs::ticks_per_second().max(1))
}

/// Live thread of a process, preferably the first; `None` if there is no such process, or all
/// threads have exited.
///
/// # Errors
/// If unknown: a live thread may exist.
pub fn live_thread(roots: &Roots, pid: u32) -> io::Result<Option<u32>> {
    let own = roots.clone();
    match process_reads::read(roots, pid, move || find_live_thread(&own, pid)) {
        Err(error) if is_gone(&error) => Ok(None),
        found => found,
    }
}

fn find_live_thread(roots: &Roots, pid: u32) -> io::Result<Option<u32>> {
    match lives(&roots.proc.join(pid.to_string()))? {
        None => return Ok(None),
        Some(true) => return Ok(Some(pid)),
        Some(false) => {}
    }
    for thread in other_threads(roots, pid)? {
        if lives(&task_folder(roots, pid, thread))? == Some(true) {
            return Ok(Some(thread));
        }
    }
    Ok(None)
}

/// Whether the thread of a folder is alive, and so has memory; `None` if it does not exist.
fn lives(folder: &Path) -> io::Result<Option<bool>> {
    let sizes = match fs::read_to_string(folder.join("statm")) {
        Ok(sizes) => sizes,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let size_pages: Option<u64> = sizes.split_ascii_whitespace().next().and_then(|size| size.parse().ok());
    let size_pages = size_pages.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its statm has no size"))?;
    Ok(Some(size_pages > 0))
}

/// Folder in /proc of a live thread of the process, for data of all its threads; that of the
/// process if no thread is known to live.
///
/// # Errors
/// If the live threads are unknown.
pub fn live_folder(roots: &Roots, pid: u32) -> io::Result<PathBuf> {
    Ok(folder_of(roots, pid, live_thread(roots, pid)?))
}

/// The same, read by the current thread, which has to be one of [`process_reads`]: the process can make it
/// long, or hang.
///
/// # Errors
/// As with [`live_folder`].
pub fn find_live_folder(roots: &Roots, pid: u32) -> io::Result<PathBuf> {
    Ok(folder_of(roots, pid, find_live_thread(roots, pid)?))
}

fn folder_of(roots: &Roots, pid: u32, live_thread: Option<u32>) -> PathBuf {
    match live_thread {
        Some(thread) if thread != pid => task_folder(roots, pid, thread),
        _ => roots.proc.join(pid.to_string()),
    }
}

/// Threads of a process except the first, in the order of their ids; none if the process does not
/// exist.
pub(crate) fn other_threads(roots: &Roots, pid: u32) -> io::Result<Vec<u32>> {
    let entries = match fs::read_dir(roots.proc.join(pid.to_string()).join("task")) {
        Ok(entries) => entries,
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut threads = Vec::new();
    for entry in entries {
        let name = match entry {
            Ok(entry) => entry.file_name(),
            Err(error) if is_gone(&error) => break,
            Err(error) => return Err(error),
        };
        if threads.len() >= THREADS_MAX {
            return Err(io::Error::other(format!("it has more than {THREADS_MAX} threads")));
        }
        threads.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()).filter(|thread| *thread != pid));
    }
    threads.sort_unstable();
    Ok(threads)
}

pub(crate) fn task_folder(roots: &Roots, pid: u32, thread: u32) -> PathBuf {
    roots.proc.join(pid.to_string()).join("task").join(thread.to_string())
}

/// Visible ancestors of a process, its parent first.
pub fn ancestors(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> + '_ {
    let parent = |pid: &u32| {
        let path = roots.proc.join(pid.to_string()).join("status");
        let status = process_reads::read(roots, *pid, move || fs::read(path)).ok()?;
        field(&status, "PPid:")?.parse().ok().filter(|parent| *parent != 0)
    };
    iter::successors(Some(pid), parent).skip(1).take(DEPTH_MAX)
}

fn stat(roots: &Roots, pid: u32) -> io::Result<Option<Stat>> {
    stat_in(roots, pid, &roots.proc.join(pid.to_string()))
}

/// Whether an error of a file in /proc means that its process or thread has exited.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

fn stat_in(roots: &Roots, pid: u32, folder: &Path) -> io::Result<Option<Stat>> {
    let path = folder.join("stat");
    let text = match process_reads::read(roots, pid, move || fs::read(path)) {
        Ok(text) => text,
        Err(error) if is_gone(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    Stat::from_read(text.as_slice()).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Command, Stdio, id},
        time::Instant,
    };

    use super::*;
    use crate::fake::{Machine, Process};

    #[test]
    fn image_changes_with_an_exec_of_the_same_program() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo ready; read line; exec sh -c 'read line'"]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (pid, mut input) = (shell.id(), shell.stdin.take().unwrap());
        // The exec of the shell itself is complete.
        io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut [0; 6]).unwrap();
        let image = || image(&Roots::default(), pid).unwrap().unwrap();
        let first = image();
        assert_eq!(image(), first);
        io::Write::write_all(&mut input, b"\n").unwrap();
        // Its arguments are others: also where the kernel places memory at the same addresses each time.
        let begun = Instant::now();
        while image() == first {
            assert!(begun.elapsed() < Duration::from_mins(2), "the same image after an exec");
            std::thread::yield_now();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn program_is_known_by_its_path_also_after_its_file_was_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/bin/sleep", &path).unwrap();
        let mut program = Command::new(&path).arg("60").spawn().unwrap();
        let known = || executable(&Roots::default(), program.id()).unwrap();
        assert_eq!(known(), path);
        // As a package manager does.
        fs::copy("/bin/sleep", folder.path().join("new")).unwrap();
        fs::rename(folder.path().join("new"), &path).unwrap();
        assert_eq!(known(), path);
        program.kill().unwrap();
        program.wait().unwrap();
    }

    #[test]
    fn processor_time_of_a_process_grows_with_its_work() {
        let roots = Roots::default();
        let start_ticks = start_ticks(&roots, id()).unwrap().unwrap();
        let time = || cpu_time(&roots, id(), start_ticks).unwrap();
        let (begun, mut sum) = (time(), 0_u64);
        while time() == begun {
            sum = std::hint::black_box(sum + 1);
        }
        assert_eq!(cpu_time(&roots, u32::MAX, start_ticks), None);
        // Of another process that had this pid.
        assert_eq!(cpu_time(&roots, id(), start_ticks + 1), None);
    }

    #[test]
    fn run_time_of_a_process_is_exact_where_the_kernel_counts_it() {
        let ticks = format!("7 (a) Z {}\n", "5 ".repeat(49));
        let machine = Machine::new().with("proc/7/stat", ticks.clone()).with("proc/7/schedstat", "9999999 5 1\n");
        assert_eq!(run_time(&machine.roots, 7), Some(Duration::from_nanos(9_999_999)));
        let machine = Machine::new().with("proc/7/stat", ticks).with("proc/7/schedstat", "0 0 0\n");
        assert_eq!(run_time(&machine.roots, 7), cpu_time(&machine.roots, 7, 5));
        assert!(run_time(&machine.roots, 7).is_some_and(|time| !time.is_zero()));
        assert_eq!(run_time(&machine.roots, 8), None);
    }

    #[test]
    fn process_is_found_by_name() {
        let status = procfs::process::Process::myself().unwrap().status().unwrap();
        let found = named(&Roots::default(), &status.name).unwrap();
        let own = found.iter().find(|process| process.pid == id()).unwrap();
        assert_eq!(own.capabilities, Capabilities::of_this_process().unwrap());
        assert_eq!(named(&Roots::default(), "no such name").unwrap(), []);
    }

    #[test]
    fn unreadable_process_has_not_exited() {
        let roots = Roots::default();
        let own = procfs::process::Process::myself().unwrap().stat().unwrap();
        assert_eq!(start_ticks(&roots, id()).unwrap(), Some(own.starttime));
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(start_ticks(&roots, child.id()).unwrap(), None);
        // Unreadable, as with too many open files, and malformed.
        let machine = Machine::new().with("proc/7/stat/x", "").with("proc/8/stat", "8 (a) R");
        assert!(start_ticks(&machine.roots, 7).is_err() && start_ticks(&machine.roots, 8).is_err());
        assert_eq!(start_ticks(&machine.roots, 9).unwrap(), None);
    }

    #[test]
    fn process_outlives_its_first_thread() {
        let roots = Roots::default();
        let process = Process::leaderless(Path::new("/dev/null"));
        let thread = live_thread(&roots, process.pid()).unwrap().unwrap();
        assert_ne!(thread, process.pid());
        // Its own folder shows a zombie.
        let length = |folder: PathBuf| fs::read(folder.join("maps")).unwrap().len();
        assert_eq!(length(roots.proc.join(process.pid().to_string())), 0);
        assert!(length(live_folder(&roots, process.pid()).unwrap()) > 0);
        assert!(live_folder(&roots, process.pid()).unwrap().join("fd/3").is_symlink());
    }

    #[test]
    fn live_first_thread_is_preferred() {
        let roots = Roots::default();
        assert_eq!(live_thread(&roots, id()).unwrap(), Some(id()));
        assert_eq!(live_folder(&roots, id()).unwrap(), roots.proc.join(id().to_string()));
    }

    #[test]
    fn exited_process_has_no_live_thread() {
        let roots = Roots::default();
        let mut child = Command::new("true").spawn().unwrap();
        // Exited, but its status is not reaped yet.
        while live_thread(&roots, child.id()).unwrap().is_some() {
            std::thread::yield_now();
        }
        assert!(stat(&roots, child.id()).unwrap().is_some());
        child.wait().unwrap();
        assert_eq!(live_thread(&roots, child.id()).unwrap(), None);
    }

    #[test]
    fn unreadable_thread_state_is_an_error() {
        let exited = "0 0 0 0 0 0 0\n";
        let machine = Machine::new().with("proc/7/statm", exited);
        assert_eq!(live_thread(&machine.roots, 7).unwrap(), None);
        machine.write("proc/7/task/7/statm", exited);
        machine.write("proc/7/task/9/statm", "704 237 210 6 0 132 0\n");
        assert_eq!(live_thread(&machine.roots, 7).unwrap(), Some(9));
        machine.write("proc/7/task/8/statm/unreadable", "");
        assert!(live_thread(&machine.roots, 7).is_err());
        for thread in 10_000..=10_000 + THREADS_MAX {
            machine.write(&format!("proc/8/task/{thread}/x"), "");
        }
        machine.write("proc/8/statm", exited);
        assert!(live_thread(&machine.roots, 8).unwrap_err().to_string().contains("more than 4096 threads"));
    }

    #[test]
    fn ancestors_begin_with_the_parent() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let roots = Roots::default();
        let found: Vec<u32> = ancestors(&roots, child.id()).take(2).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [id(), std::os::unix::process::parent_id()]);
    }
}
