//! Number of processes that uvmd acts on. The time of an interval grows with them, even where nothing is done for
//! them.

use std::collections::BTreeMap;

/// Processes of a user in a mode other than observe.
pub(super) const USER_PROCESSES_MAX: usize = 128;
/// The same of all users.
pub(super) const PROCESSES_MAX: usize = 512;

/// Processes that were admitted in an interval.
#[derive(Debug, Default)]
pub(super) struct ProcessQuota {
    of_users: BTreeMap<u32, usize>,
    of_all: usize,
}

impl ProcessQuota {
    /// Admits one more process of a user, within the limits.
    pub(super) fn admit(&mut self, uid: u32) -> bool {
        let of_user = self.of_users.entry(uid).or_default();
        let is_admitted = *of_user < USER_PROCESSES_MAX && self.of_all < PROCESSES_MAX;
        *of_user += usize::from(is_admitted);
        self.of_all += usize::from(is_admitted);
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_each_user_and_of_all_are_limited() {
        let mut quota = ProcessQuota::default();
        let mut admitted = |uid| (0..=USER_PROCESSES_MAX).filter(|_| quota.admit(uid)).count();
        let of_users: Vec<usize> = (0..5).map(&mut admitted).collect();
        assert_eq!(of_users, [128, 128, 128, 128, 0]);
    }
}
