//! Users of processes, for whom uvmd reads files in /proc.
//!
//! The real user of a process is in its `status`, which a process can make expensive: it lists its
//! supplementary groups, up to 65,536, which takes some 10 ms. It is therefore read once for a process, and
//! again only when the effective user has changed, which is the owner of the process's folder. Reads
//! require time in the user's budget ([`READS`]) and in the node's ([`READS_OF_NODE`]). Without, the user
//! stays as last read, or is the effective one.

use std::{
    collections::HashMap,
    fs, io, mem,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::cpu_budget::{Account, Accounts, Allowance};

/// Processor time for reading the users of a user's processes.
const READS: Allowance = Allowance { part: 50, burst: Duration::from_millis(500), credit_part: None };
/// The same for all users' processes.
const READS_OF_NODE: Allowance = Allowance { part: 20, burst: Duration::from_secs(2), credit_part: None };
/// Maximum processes of a generation. Those that are queried again move to the next one.
const GENERATION_MAX: usize = 8192;

static USERS: Mutex<Option<Users>> = Mutex::new(None);

/// Folder of a process in /proc, or another one that the kernel makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Folder {
    pub(crate) id: FolderId,
    /// Effective user id of the process.
    owner: u32,
}

/// Device, inode and time of its creation: different for each process, even with the same pid.
pub(crate) type FolderId = (u64, u64, i64, i64);

/// Users of processes, as last read.
#[derive(Debug)]
struct Users {
    /// Effective user id at the time of the read, and the real one.
    recent: HashMap<FolderId, (u32, u32)>,
    /// Users of the generation before.
    older: HashMap<FolderId, (u32, u32)>,
    reads: Accounts,
    of_node: Account,
}

// === impl Folder ===

impl Folder {
    /// # Errors
    /// If there is no such process.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { id: (found.dev(), found.ino(), found.ctime(), found.ctime_nsec()), owner: found.uid() })
    }

    /// User of the process; `None` if it has to be read.
    pub(crate) fn user(self, now: Duration) -> Option<u32> {
        with_users(|users| users.user(self, now))
    }

    /// User to whom reads of files of the process are charged: its real one if that was read, else its
    /// effective one.
    pub(crate) fn payer(self) -> u32 {
        with_users(|users| users.known(self.id)).map_or(self.owner, |(_, uid)| uid)
    }

    /// Retains the user that was read, and charges the processor time of the read.
    pub(crate) fn read(self, uid: u32, spent: Duration, now: Duration) {
        with_users(|users| users.read(self, uid, spent, now));
    }
}

fn with_users<T>(act: impl FnOnce(&mut Users) -> T) -> T {
    act(USERS.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

// === impl Users ===

impl Default for Users {
    fn default() -> Self {
        Self { recent: HashMap::new(), older: HashMap::new(), reads: Accounts::new(READS), of_node: Account::default() }
    }
}

impl Users {
    fn known(&mut self, id: FolderId) -> Option<(u32, u32)> {
        if let Some(known) = self.recent.get(&id) {
            return Some(*known);
        }
        let known = self.older.remove(&id)?;
        self.retain(id, known);
        Some(known)
    }

    fn retain(&mut self, id: FolderId, known: (u32, u32)) {
        if self.recent.len() >= GENERATION_MAX {
            self.older = mem::take(&mut self.recent);
        }
        self.recent.insert(id, known);
    }

    fn user(&mut self, folder: Folder, now: Duration) -> Option<u32> {
        let known = self.known(folder.id);
        let last = known.map_or(folder.owner, |(_, uid)| uid);
        let is_current = known.is_some_and(|(owner, _)| owner == folder.owner);
        let may_read = !self.reads.is_over(last, now) && !self.of_node.is_over(READS_OF_NODE, now);
        (is_current || !may_read).then_some(last)
    }

    fn read(&mut self, folder: Folder, uid: u32, spent: Duration, now: Duration) {
        // After a change of user, the process's former user pays for the read.
        let payer = self.known(folder.id).map_or(uid, |(_, uid)| uid);
        self.retain(folder.id, (folder.owner, uid));
        self.reads.charge(payer, spent, now);
        self.of_node.charge(spent, READS_OF_NODE, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);
    const MS: Duration = Duration::from_millis(1);

    fn folder(inode: u64, owner: u32) -> Folder {
        Folder { id: (1, inode, 0, 0), owner }
    }

    #[test]
    fn user_is_read_once_for_each_process_and_effective_user() {
        let mut users = Users::default();
        assert_eq!(users.user(folder(7, 1000), NOW), None);
        users.read(folder(7, 1000), 1000, MS, NOW);
        assert_eq!(users.user(folder(7, 1000), NOW), Some(1000));
        assert_eq!(users.user(folder(8, 1000), NOW), None, "another process");
        assert_eq!(users.user(folder(7, 0), NOW), None, "its effective user has changed");
        users.read(folder(7, 0), 1001, MS, NOW);
        assert_eq!(users.user(folder(7, 0), NOW), Some(1001));
    }

    #[test]
    fn users_are_not_read_once_that_has_taken_too_long() {
        let mut users = Users::default();
        for inode in 0..51 {
            users.read(folder(inode, 1000), 1000, 10 * MS, NOW);
        }
        assert_eq!(users.user(folder(7, 0), NOW), Some(1000), "as last read");
        assert_eq!(users.user(folder(100, 1000), NOW), Some(1000), "a new process has its effective user");
        assert_eq!(users.user(folder(101, 1001), NOW), None, "that of another user is read");
        assert_eq!(users.user(folder(100, 1000), NOW + 50 * 10 * MS), None, "in time");
        // Of many users: none of them has used up its own.
        for uid in 2000..2400 {
            users.read(folder(uid.into(), uid), uid, 10 * MS, NOW);
        }
        assert_eq!(users.user(folder(2001, 0), NOW), Some(2001));
        assert_eq!(users.user(folder(9000, 3000), NOW), Some(3000));
    }

    #[test]
    fn retained_users_are_bounded_and_those_asked_for_stay() {
        let mut users = Users::default();
        for inode in 0..u64::try_from(3 * GENERATION_MAX).unwrap() {
            users.read(folder(inode, 1000), 1000, Duration::ZERO, NOW);
            assert_eq!(users.user(folder(0, 1000), NOW), Some(1000));
            assert!(users.recent.len() <= GENERATION_MAX && users.older.len() <= GENERATION_MAX);
        }
        assert_eq!(users.user(folder(1, 1000), NOW), None);
    }
}
