//! Fair turns of users for memory-intensive work, one follower at a time. Before its next turn, a
//! user waits for at most one turn of each other user, regardless of the numbers of followers.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// Turns of the followers of all users.
pub(crate) static TURNS: Turns = Turns::new();

/// Turns of users.
pub(crate) struct Turns {
    /// Waiting users, each once. The first has the turn.
    users: Mutex<VecDeque<u32>>,
    turn_ended: Condvar,
}

/// Turn of a user, which ends on drop.
pub(crate) struct TurnGuard<'a>(&'a Turns);

impl Turns {
    const fn new() -> Self {
        Self { users: Mutex::new(VecDeque::new()), turn_ended: Condvar::new() }
    }

    /// Waits for the turn of a user.
    pub(crate) fn acquire(&self, user: u32) -> TurnGuard<'_> {
        let mut users = self.wait_while(self.users(), |users| users.contains(&user));
        users.push_back(user);
        drop(self.wait_while(users, |users| users.front() != Some(&user)));
        TurnGuard(self)
    }

    fn wait_while<'a>(
        &self,
        users: MutexGuard<'a, VecDeque<u32>>,
        mut waits: impl FnMut(&VecDeque<u32>) -> bool,
    ) -> MutexGuard<'a, VecDeque<u32>> {
        self.turn_ended.wait_while(users, |users| waits(users)).unwrap_or_else(PoisonError::into_inner)
    }

    fn users(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.users().pop_front();
        self.0.turn_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn user_waits_for_at_most_one_turn_of_each_other_user() {
        let (turns, order) = (Turns::new(), Mutex::new(Vec::new()));
        thread::scope(|scope| {
            let turn = turns.acquire(1);
            let follow = |user| {
                let _turn = turns.acquire(user);
                order.lock().unwrap().push(user);
            };
            for _ in 0..8 {
                scope.spawn(move || follow(1));
            }
            scope.spawn(move || follow(2));
            while *turns.users() != [1, 2] {
                thread::yield_now();
            }
            drop(turn);
        });
        let order = order.into_inner().unwrap();
        assert_eq!((order.len(), order.first()), (9, Some(&2)));
    }
}
