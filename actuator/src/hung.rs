//! Hung inspections by target: one for each target, with a total limit and one for each user.

use sys::{Roots, processes};

/// Total limit at one GPU.
const MAX: usize = 64;
/// Limit for the targets of one user, so that others are not blocked.
const OF_USER_MAX: usize = 16;

/// Process at which an inspection may hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) pid: u32,
    /// Real user id; all unknown users count as one.
    pub(crate) uid: Option<u32>,
}

impl Target {
    pub(crate) fn of(roots: &Roots, pid: u32) -> Self {
        Self { pid, uid: processes::user(roots, pid) }
    }
}

/// A hung inspection.
#[derive(Debug)]
pub(crate) struct Hung<T>(Vec<(Target, T)>);

impl<T> Hung<T> {
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Removes those that have returned.
    pub(crate) fn retain(&mut self, mut hangs: impl FnMut(&T) -> bool) {
        self.0.retain(|(_, what)| hangs(what));
    }

    /// Whether another inspection may hang at this target.
    pub(crate) fn has_room(&self, target: Target) -> bool {
        let of_user = self.0.iter().filter(|(other, _)| other.uid == target.uid).count();
        self.0.len() < MAX && of_user < OF_USER_MAX && self.0.iter().all(|(other, _)| other.pid != target.pid)
    }

    pub(crate) fn push(&mut self, target: Target, what: T) {
        self.0.push((target, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(targets: impl IntoIterator<Item = (u32, u32)>) -> Hung<u32> {
        let mut hung = Hung::none();
        for (pid, uid) in targets {
            hung.push(Target { pid, uid: Some(uid) }, pid);
        }
        hung
    }

    fn has_room(hung: &Hung<u32>, pid: u32, uid: u32) -> bool {
        hung.has_room(Target { pid, uid: Some(uid) })
    }

    #[test]
    fn one_hung_call_per_target() {
        let hung = of([(7, 1000)]);
        assert_eq!((has_room(&hung, 7, 1000), has_room(&hung, 8, 1000)), (false, true));
    }

    #[test]
    fn hung_calls_per_user_are_bounded() {
        let hung = of((0..16).map(|pid| (pid, 1000)));
        assert_eq!((has_room(&hung, 100, 1000), has_room(&hung, 100, 1001)), (false, true));
        let mut hung = of((0..64).map(|pid| (pid, 1000 + pid / 16)));
        assert!(!has_room(&hung, 100, 2000), "64 in all");
        hung.retain(|pid| *pid != 63);
        assert!(has_room(&hung, 100, 2000));
    }
}
