//! Users of processes, from `/proc/PID/status`.
//!
//! A process can make the file expensive: it lists its supplementary groups, up to 65,536, which takes
//! some 10 ms. So the user of a process is read once, and again only when the owner of its folder
//! changes: while the user's budget lasts ([`READS`]), and the node's ([`READS_OF_NODE`]). Beyond them it
//! stays as last read.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    clock,
    cpu_budget::{Account, Accounts, Allowance},
    cpu_time, process_reads,
    roots::Roots,
};

/// Processor time for reading the users of a user's processes.
const READS: Allowance = Allowance { part: 50, burst: Duration::from_millis(500), credit_part: None };
/// The same for all users' processes.
const READS_OF_NODE: Allowance = Allowance { part: 20, burst: Duration::from_secs(2), credit_part: None };
/// Processes whose users are retained. Beyond it, they are read anew.
const RETAINED_MAX: usize = 16_384;

static USERS: Mutex<Option<Users>> = Mutex::new(None);

/// Account of processes whose user is unknown: no user has this id.
const UNKNOWN_USER: u32 = u32::MAX;
const ROOT: u32 = 0;

/// Real user id of a process; `None` if there is no such process, or it is unknown.
#[must_use]
pub fn user(roots: &Roots, pid: u32) -> Option<u32> {
    let path = roots.proc.join(pid.to_string());
    let folder = Folder::of(&path).ok()?;
    let now = clock::monotonic();
    if let Some(uid) = with_users(|users| users.retained(folder, now)) {
        return Some(uid);
    }
    let begun = cpu_time::of_this_thread();
    let status = process_reads::read(roots, pid, move || fs::read(path.join("status"))).ok()?;
    let uid = field(&status, "Uid:")?.split_ascii_whitespace().next()?.parse().ok()?;
    let spent = cpu_time::of_this_thread().saturating_sub(begun);
    with_users(|users| users.read(folder, uid, spent, now));
    Some(uid)
}

/// User to whom reads of files of a process are charged: its real one if that was read, else its effective
/// one. `UNKNOWN_USER` where neither is known: others' processes can look like root's.
///
/// # Errors
/// If there is no such process.
pub(crate) fn payer(roots: &Roots, pid: u32) -> io::Result<u32> {
    let folder = Folder::of(&roots.proc.join(pid.to_string()))?;
    let known = with_users(|users| users.retained.get(&folder.id).map(|(_, uid)| *uid));
    Ok(known.unwrap_or(if folder.owner == ROOT { UNKNOWN_USER } else { folder.owner }))
}

fn with_users<T>(act: impl FnOnce(&mut Users) -> T) -> T {
    act(USERS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Value of a field of a `status` file.
pub(crate) fn field<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    // The process's name, the only text of its choice, has no line feed.
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    str::from_utf8(line).ok().map(str::trim_ascii)
}

/// Folder of a process in /proc.
#[derive(Clone, Copy, Debug)]
struct Folder {
    /// Device, inode and time of its creation: others for each process, also with the same pid.
    id: (u64, u64, i64, i64),
    /// Effective user id of the process, or that of root if others may not trace it.
    owner: u32,
}

/// Users of processes that were read.
#[derive(Debug)]
struct Users {
    /// Owner of the folder at the time, and the real user id.
    retained: HashMap<(u64, u64, i64, i64), (u32, u32)>,
    reads: Accounts,
    of_node: Account,
}

// === impl Folder ===

impl Folder {
    fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { id: (found.dev(), found.ino(), found.ctime(), found.ctime_nsec()), owner: found.uid() })
    }
}

// === impl Users ===

impl Default for Users {
    fn default() -> Self {
        Self { retained: HashMap::new(), reads: Accounts::new(READS), of_node: Account::default() }
    }
}

impl Users {
    /// User of a process, unless it is to be read.
    fn retained(&self, folder: Folder, now: Duration) -> Option<u32> {
        let (owner, uid) = *self.retained.get(&folder.id)?;
        let may_read = !self.reads.is_over(uid, now) && !self.of_node.is_over(READS_OF_NODE, now);
        (owner == folder.owner || !may_read).then_some(uid)
    }

    /// Retains and charges what was read in this processor time.
    fn read(&mut self, folder: Folder, uid: u32, spent: Duration, now: Duration) {
        if self.retained.len() >= RETAINED_MAX {
            self.retained.clear();
        }
        let before = self.retained.insert(folder.id, (folder.owner, uid));
        // A process that changes its user pays with the one it was known by.
        let payer = before.map_or(uid, |(_, uid)| uid);
        self.reads.charge(payer, spent, now);
        self.of_node.charge(spent, READS_OF_NODE, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    const NOW: Duration = Duration::from_secs(1000);
    const MS: Duration = Duration::from_millis(1);

    fn folder(inode: u64, owner: u32) -> Folder {
        Folder { id: (1, inode, 0, 0), owner }
    }

    #[test]
    fn user_of_a_process_is_its_real_uid() {
        let status = "Name:\tUid:\\n0\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t7\t7\t7\t7\n";
        let machine = Machine::new().with("proc/42/status", status).with("proc/43/status", "Name:\tx\n");
        assert_eq!([42, 43, 44].map(|pid| user(&machine.roots, pid)), [Some(1000), None, None]);
    }

    #[test]
    fn name_that_is_no_text_hides_no_user() {
        let machine = Machine::new().with("proc/42/status", b"Name:\ta\xffb\nUid:\t1000\t0\t0\t0\n");
        assert_eq!(user(&machine.roots, 42), Some(1000));
    }

    #[test]
    fn reads_are_charged_to_a_known_user_else_to_the_owner_of_the_folder_unless_that_is_root() {
        let own = rustix::process::geteuid().as_raw();
        let machine = Machine::new().with("proc/42/status", "Uid:\t1000\t0\t0\t0\n");
        let payer = |pid| payer(&machine.roots, pid);
        assert_eq!(payer(42).unwrap(), if own == ROOT { UNKNOWN_USER } else { own });
        assert_eq!(user(&machine.roots, 42), Some(1000));
        assert_eq!(payer(42).unwrap(), 1000);
        assert_eq!(payer(43).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn user_is_read_once_for_each_process_and_owner() {
        let mut users = Users::default();
        assert_eq!(users.retained(folder(7, 1000), NOW), None);
        users.read(folder(7, 1000), 1000, MS, NOW);
        assert_eq!(users.retained(folder(7, 1000), NOW), Some(1000));
        assert_eq!(users.retained(folder(8, 1000), NOW), None, "another process");
        assert_eq!(users.retained(folder(7, 0), NOW), None, "its owner has changed");
        users.read(folder(7, 0), 1001, MS, NOW);
        assert_eq!(users.retained(folder(7, 0), NOW), Some(1001));
    }

    #[test]
    fn user_stays_as_last_read_once_reads_have_taken_too_long() {
        let mut users = Users::default();
        for inode in 0..51 {
            users.read(folder(inode, 1000), 1000, 10 * MS, NOW);
        }
        assert_eq!(users.retained(folder(7, 0), NOW), Some(1000));
        assert_eq!(users.retained(folder(7, 0), NOW + 50 * 10 * MS), None, "in time");
        // Of many users: none of them has used up its own.
        for uid in 2000..2400 {
            users.read(folder(uid.into(), uid), uid, 10 * MS, NOW);
        }
        assert_eq!(users.retained(folder(2001, 0), NOW), Some(2001));
    }

    #[test]
    fn retained_users_are_bounded() {
        let mut users = Users::default();
        for inode in 0..=u64::try_from(2 * RETAINED_MAX).unwrap() {
            users.read(folder(inode, 1000), 1000, Duration::ZERO, NOW);
            assert!(users.retained.len() <= RETAINED_MAX);
        }
    }
}
