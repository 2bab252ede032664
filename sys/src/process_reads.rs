//! Reads of files of a process that a user can make hang: those in `/proc/PID`, and those of its cgroups.
//!
//! Some kernels (6.18, not 6.12) read `stat`, `exe` and others under the lock of the process's `execve`, which may
//! wait for ever for a file system that the same user serves. While a process releases its memory, by `execve` or by
//! its exit, a reader of `status`, `statm`, `maps` and others may be the last to hold that memory; the reader itself
//! then waits for such a file system (Linux 5.17 and later). The folder of a cgroup can be locked by any user who
//! may read it. These reads are therefore made by [`readers`](crate::readers), at the cost of the process's user.
//!
//! Other threads read files that need neither that lock nor the process's memory: `schedstat`, lists of threads and
//! the folder itself. These reads wait for the lock of the folder, if it is held: see
//! [`private_proc`](crate::private_proc).

use std::{io, path::Path, time::Duration};

pub use crate::readers::{HUNG_PER_USER_MAX, Refusal};
use crate::{
    Roots,
    cpu_budget::Allowance,
    process_users::Folder,
    readers::{Charges, Readers, Sleeps, Target},
};

/// Charges for reads of one file in /proc.
const OF_FILE: Charges = Charges {
    sleeps: Sleeps::OfUser,
    cpu_free: Duration::from_millis(10),
    allowance: Allowance { part: 50, burst: Duration::from_millis(500), credit_part: None },
};
/// Charges for reads of the files of cgroups. Other users may hold the locks, so the process's user does not pay for
/// sleeps. That user chooses the number of files, and pays for all computation. An order for a process takes some
/// fractions of a millisecond, and there may be ten a second for each.
const OF_CGROUPS: Charges = Charges {
    sleeps: Sleeps::OfCaller,
    cpu_free: Duration::ZERO,
    allowance: Allowance { part: 10, burst: Duration::from_secs(1), credit_part: None },
};

static PROC: Readers = Readers::new(OF_FILE);
/// Readers of the paths of cgroups. Until Linux 6.7, a read waits for changes of other users' cgroups.
static CGROUP_PATH: Readers = Readers::new(Charges { sleeps: Sleeps::OfCaller, ..OF_FILE });
static CGROUPS: Readers = Readers::new(OF_CGROUPS);

/// Result of a read of files of a process in /proc.
///
/// # Errors
/// Those of the read, such as for a missing process; and a [`Refusal`] if it hangs or is not made.
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
/// As with [`read`]; hung reads of one do not affect the other.
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
/// As with [`read`]; hung reads of the others do not affect these. If a cgroup's folder is locked, all else stays
/// readable.
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
    /// Those that still exist, in the order of their ids.
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
