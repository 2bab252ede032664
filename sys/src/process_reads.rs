//! Reads of files of a process that a user can make hang: those in `/proc/PID`, and those of its cgroups.
//!
//! Some kernels (6.18, not 6.12) read `stat`, `exe` and others under the lock of the process's `execve`,
//! which may wait for ever for a file system that the same user serves. And whoever reads `status`,
//! `statm`, `maps` and others while the process leaves its memory, by `execve` or by its end, may be the
//! last to hold that memory, and then waits for such a file system itself (Linux 5.17 and later). The folder
//! of a cgroup can be locked by whoever may read it. So these reads are made by [`readers`](crate::readers),
//! at the cost of the process's user.
//!
//! Other threads read what needs neither that lock nor the process's memory: `schedstat`, lists of threads
//! and the folder itself. Those wait for whoever holds the folder's lock: see [`private_proc`](crate::private_proc).

use std::{io, path::Path, time::Duration};

pub use crate::readers::{HUNG_PER_USER_MAX, Refusal};
use crate::{
    Roots,
    process_users::Folder,
    readers::{Readers, Sleeps, Target},
};

/// Processor time of a read of one file that is not charged.
const CPU_FREE: Duration = Duration::from_millis(10);

static PROC: Readers = Readers::new(Sleeps::OfUser, CPU_FREE);
/// Reading it waits for changes of other users' cgroups until Linux 6.7.
static CGROUP_PATH: Readers = Readers::new(Sleeps::OfCaller, CPU_FREE);
/// Others than the process's user may hold the locks; but how many files there are is the user's choice.
static CGROUPS: Readers = Readers::new(Sleeps::OfCaller, Duration::ZERO);

/// Result of a read of files of a process in /proc.
///
/// # Errors
/// Those of the read, also if there is no such process; and a [`Refusal`] if it hangs or is not made.
pub fn read<T: Send + 'static>(
    roots: &Roots,
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    PROC.read(&target(roots, pid)?, read)
}

/// Result of a read of `/proc/PID/cgroup`.
///
/// # Errors
/// As with [`read`], and independent of it.
pub fn read_cgroup_path<T: Send + 'static>(
    roots: &Roots,
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    CGROUP_PATH.read(&target(roots, pid)?, read)
}

/// Result of a read of files of a process's cgroups.
///
/// # Errors
/// As with [`read`], and independent of both: where a cgroup's folder is locked, all else stays readable.
pub fn read_cgroups<T: Send + 'static>(
    roots: &Roots,
    pid: u32,
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    CGROUPS.read(&target(roots, pid)?, read)
}

fn target(roots: &Roots, pid: u32) -> io::Result<Target> {
    let path = roots.proc.join(pid.to_string());
    let folder = Folder::of(&path)?;
    Ok(Target { pid, folder: folder.id, path, uid: folder.payer() })
}

/// Processes whose reads hang.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hung {
    /// Those that exist, in the order of their ids.
    pub pids: Vec<u32>,
    /// Number of those that have ended.
    pub ended: usize,
}

/// Processes whose reads hang.
#[must_use]
pub fn hung() -> Hung {
    let mut targets: Vec<Target> = PROC.hung();
    targets.append(&mut CGROUP_PATH.hung());
    targets.append(&mut CGROUPS.hung());
    targets.sort_unstable_by_key(|target| (target.pid, target.folder));
    targets.dedup_by_key(|target| target.folder);
    let is_here = |path: &Path, id| Folder::of(path).is_ok_and(|folder| folder.id == id);
    let (here, ended): (Vec<Target>, Vec<Target>) =
        targets.into_iter().partition(|target| is_here(&target.path, target.folder));
    Hung { pids: here.iter().map(|target| target.pid).collect(), ended: ended.len() }
}
