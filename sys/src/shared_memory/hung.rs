//! Accessors that were told to exit and have not: their number is limited.

use std::time::Duration;

/// Limit for all users.
pub(super) const HUNG_MAX: usize = 64;
/// Part of it for users of whom no accessor hangs.
const RESERVED: usize = 16;
/// Limit for one user.
pub(super) const HUNG_PER_USER_MAX: usize = 4;

/// Accessor that shall exit.
#[derive(Debug)]
struct Ending<P> {
    uid: u32,
    /// Time from which it counts as hung.
    hung_from: Duration,
    process: P,
}

/// Accessors that were told to exit.
#[derive(Debug)]
pub(super) struct Hung<P> {
    endings: Vec<Ending<P>>,
}

impl<P> Hung<P> {
    pub(super) const fn new() -> Self {
        Self { endings: Vec::new() }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.endings.is_empty()
    }

    /// Adds an accessor that counts as hung from a time until it has exited.
    pub(super) fn add(&mut self, uid: u32, hung_from: Duration, process: P) {
        self.endings.push(Ending { uid, hung_from, process });
    }

    /// Accessors that hang.
    pub(super) fn hung(&self, now: Duration) -> impl Iterator<Item = &P> {
        self.endings.iter().filter(move |ending| ending.hung_from <= now).map(|ending| &ending.process)
    }

    /// Removes those that have exited.
    pub(super) fn take_exited(&mut self, has_exited: impl Fn(&P) -> bool) -> Vec<P> {
        let exited = self.endings.extract_if(.., |ending| has_exited(&ending.process));
        exited.map(|ending| ending.process).collect()
    }

    /// Whether a user may have another accessor.
    pub(super) fn admits(&self, uid: u32, now: Duration) -> bool {
        let hung = self.endings.iter().filter(|ending| ending.hung_from <= now);
        let (of_user, all) =
            hung.fold((0, 0), |(of_user, all), hung| (of_user + usize::from(hung.uid == uid), all + 1));
        let all_max = if of_user == 0 { HUNG_MAX } else { HUNG_MAX - RESERVED };
        of_user < HUNG_PER_USER_MAX && all < all_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: Duration = Duration::from_nanos(1001);
    const NOW: Duration = Duration::from_nanos(1002);

    fn with(hung: impl IntoIterator<Item = u32>) -> Hung<usize> {
        let mut all = Hung::new();
        hung.into_iter().enumerate().for_each(|(process, uid)| all.add(uid, NOW, process));
        all
    }

    #[test]
    fn hung_accessors_of_a_user_are_limited_until_they_exit() {
        let mut hung = with([7, 7, 7]);
        assert!(hung.admits(7, NOW));
        hung.add(7, NOW, 3);
        assert!(!hung.admits(7, NOW) && hung.admits(8, NOW));
        assert_eq!(hung.take_exited(|process| *process == 2), [2]);
        assert!(hung.admits(7, NOW));
    }

    #[test]
    fn hung_accessors_of_all_users_leave_a_reserve_to_users_without_one() {
        let hung = with((0..48).map(|process| process / 3));
        // Three of its own, and 48 of all.
        assert!(!hung.admits(0, NOW) && hung.admits(100, NOW));
        let hung = with((0..47).map(|process| process / 3));
        assert!(hung.admits(0, NOW) && hung.admits(100, NOW));
        let hung = with(0..64);
        assert!(!hung.admits(0, NOW) && !hung.admits(100, NOW));
    }

    #[test]
    fn accessor_that_ends_by_itself_counts_once_it_is_late() {
        let mut hung = Hung::new();
        (0..4).for_each(|process| hung.add(7, NOW, process));
        assert!(hung.admits(7, BEFORE) && !hung.admits(7, NOW));
        assert_eq!(hung.hung(NOW).count(), 4);
        assert_eq!(hung.hung(BEFORE).count(), 0);
    }
}
