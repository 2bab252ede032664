//! Slots of calls that a target can make hang: inspections, or actors. All workers of a node share them,
//! and a call that hangs keeps its slot after the worker has given up.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use model::CallResult;
use sys::{Roots, pidfd::PidFd, processes};

use crate::budget::{Expired, TimeBudget};

/// Limit for the targets of all users.
const SLOTS_MAX: usize = 64;
/// Part of the slots that is reserved for withdrawals, so that orders of other users do not prevent
/// them.
const RESERVED_FOR_WITHDRAWALS: usize = 16;
/// Limit for the targets of one user, so that others are not blocked.
const SLOTS_PER_USER_MAX: usize = 16;

/// Process at which a call may hang.
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

/// Slots of one kind of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the last slot.
    last: u64,
    taken: Vec<TakenSlot>,
}

#[derive(Debug)]
struct TakenSlot {
    number: u64,
    target: Target,
    progress: Progress,
}

#[derive(Debug)]
enum Progress {
    /// Its caller waits for it.
    Awaited,
    /// Its caller has given up. It hangs until its slot is dropped.
    Abandoned,
    /// It hangs until this process has exited.
    Exiting(PidFd),
}

/// Slot of a call, until it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    number: u64,
    slots: Slots,
}

/// Reason why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// Too many calls hang.
    Hung,
    /// Too many calls are in progress, for too long.
    Busy(Expired),
}

impl From<Expired> for SlotError {
    fn from(expired: Expired) -> Self {
        Self::Busy(expired)
    }
}

impl SlotError {
    /// Result of an order that needs a slot for such a call.
    pub(crate) fn result(self, call: &str) -> CallResult {
        CallResult::Failed(match self {
            Self::Hung => {
                format!("an earlier {call} hangs: one about this process, or too many of its user or of all users")
            }
            Self::Busy(expired) => format!("too many other {call}s are in progress, and {expired}"),
        })
    }
}

// === impl Slots ===

impl Slots {
    /// Takes a slot for a call about a target. Waits at most this long while too many others are in
    /// progress.
    ///
    /// # Errors
    /// If too many of them hang, or the wait is over.
    pub(crate) fn take(
        &self,
        target: Target,
        is_withdrawal: bool,
        at_most: Duration,
        budget: &mut TimeBudget<'_>,
    ) -> Result<Slot, SlotError> {
        let number = budget.wait(at_most, Instant::now, |at_most| {
            let mut state = self.state();
            let taken = state.take(target, is_withdrawal)?;
            if taken.is_none() {
                let _state = self.0.freed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner);
            }
            Ok::<_, SlotError>(taken)
        })?;
        Ok(Slot { number, slots: self.clone() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no slot is taken.
    #[cfg(test)]
    pub(crate) fn wait_until_free(&self) {
        let _free = self.0.freed.wait_while(self.state(), |state| !state.taken.is_empty()).unwrap();
    }
}

// === impl State ===

impl State {
    /// Number of a new slot; `None` while too many calls are in progress.
    fn take(&mut self, target: Target, is_withdrawal: bool) -> Result<Option<u64>, SlotError> {
        self.taken.retain(|taken| match &taken.progress {
            Progress::Exiting(process) => !process.has_exited().unwrap_or_default(),
            Progress::Awaited | Progress::Abandoned => true,
        });
        let total_max = if is_withdrawal { SLOTS_MAX } else { SLOTS_MAX - RESERVED_FOR_WITHDRAWALS };
        let has_room = |taken: &[&TakenSlot]| {
            let of_user = taken.iter().filter(|taken| taken.target.uid == target.uid).count();
            taken.len() < total_max && of_user < SLOTS_PER_USER_MAX
        };
        let hung: Vec<&TakenSlot> =
            self.taken.iter().filter(|taken| !matches!(taken.progress, Progress::Awaited)).collect();
        if !has_room(&hung) || hung.iter().any(|hung| hung.target == target) {
            return Err(SlotError::Hung);
        }
        if !has_room(&self.taken.iter().collect::<Vec<_>>()) {
            return Ok(None);
        }
        self.last += 1;
        self.taken.push(TakenSlot { number: self.last, target, progress: Progress::Awaited });
        Ok(Some(self.last))
    }

    fn set_progress(&mut self, number: u64, progress: Progress) {
        if let Some(taken) = self.taken.iter_mut().find(|taken| taken.number == number) {
            taken.progress = progress;
        }
    }
}

// === impl Slot ===

impl Slot {
    /// Function that declares the call abandoned, unless it has returned.
    pub(crate) fn abandon_fn(&self) -> impl FnOnce() + use<> {
        let (number, slots) = (self.number, self.slots.clone());
        move || slots.state().set_progress(number, Progress::Abandoned)
    }

    /// Keeps the slot until a process has exited.
    pub(crate) fn keep_until_exit(self, process: PidFd) {
        self.slots.state().set_progress(self.number, Progress::Exiting(process));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let is_over =
            |taken: &TakenSlot| taken.number == self.number && !matches!(taken.progress, Progress::Exiting(_));
        self.slots.state().taken.retain(|taken| !is_over(taken));
        self.slots.0.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    const LONG: Duration = Duration::from_mins(2);

    fn take_for(slots: &Slots, pid: u32, uid: u32, is_withdrawal: bool, at_most: Duration) -> Result<Slot, SlotError> {
        let target = Target { pid, uid: Some(uid) };
        slots.take(target, is_withdrawal, at_most, &mut TimeBudget::new(LONG, &|| false))
    }

    fn take(slots: &Slots, pid: u32, uid: u32) -> Result<Slot, SlotError> {
        take_for(slots, pid, uid, false, Duration::ZERO)
    }

    /// Slots of calls that hang.
    fn hung(slots: &Slots, targets: impl IntoIterator<Item = (u32, u32)>) -> Vec<Slot> {
        let hangs = |(pid, uid)| {
            let slot = take(slots, pid, uid).unwrap();
            slot.abandon_fn()();
            slot
        };
        targets.into_iter().map(hangs).collect()
    }

    #[test]
    fn one_hung_call_per_target_until_it_returns() {
        let slots = Slots::default();
        let hung = hung(&slots, [(7, 1000)]);
        assert_eq!(take(&slots, 7, 1000).unwrap_err(), SlotError::Hung);
        assert!(take(&slots, 8, 1000).is_ok());
        assert!(take(&slots, 7, 1001).is_ok(), "a process of another user has its pid by now");
        drop(hung);
        assert!(take(&slots, 7, 1000).is_ok());
    }

    #[test]
    fn hung_calls_per_user_are_bounded() {
        let slots = Slots::default();
        let _hung = hung(&slots, (0..16).map(|pid| (pid, 1000)));
        assert_eq!(take(&slots, 100, 1000).unwrap_err(), SlotError::Hung);
        assert!(take(&slots, 100, 1001).is_ok());
    }

    #[test]
    fn hung_calls_of_orders_leave_a_quarter_of_all_slots_to_withdrawals() {
        let slots = Slots::default();
        let _hung = hung(&slots, (0..48).map(|pid| (pid, pid / 16)));
        assert_eq!(take(&slots, 100, 9).unwrap_err(), SlotError::Hung);
        let withdrawals: Vec<_> =
            (0..17).map(|pid| take_for(&slots, 100 + pid, 9 + pid, true, Duration::ZERO)).collect();
        let have_slots: Vec<bool> = withdrawals.iter().map(Result::is_ok).collect();
        assert_eq!(have_slots, [[true; 16].as_slice(), &[false]].concat());
    }

    #[test]
    fn call_waits_for_those_in_progress_and_takes_the_slot_of_one_that_returns() {
        let slots = Slots::default();
        let mut in_progress: Vec<Slot> = (0..16).map(|pid| take(&slots, pid, 1000).unwrap()).collect();
        assert_eq!(take(&slots, 16, 1000).unwrap_err(), SlotError::Busy(Expired::Time));
        thread::scope(|scope| {
            let waits = scope.spawn(|| take_for(&slots, 16, 1000, false, LONG).is_ok());
            drop(in_progress.pop());
            assert!(waits.join().unwrap());
        });
    }

    #[test]
    fn killed_actor_keeps_its_slot_until_it_has_exited() {
        let slots = Slots::default();
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        take(&slots, 7, 1000).unwrap().keep_until_exit(PidFd::open(child.id()).unwrap());
        assert_eq!(take(&slots, 7, 1000).unwrap_err(), SlotError::Hung);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(take(&slots, 7, 1000).is_ok());
    }

    proptest! {
        #[test]
        fn calls_in_progress_and_hung_ones_never_exceed_the_limits(
            events in prop::collection::vec((0..200_u32, 0..8_u32, any::<bool>(), any::<u8>()), 0..300),
        ) {
            let slots = Slots::default();
            let mut held: Vec<(u32, Slot)> = Vec::new();
            for (pid, uid, is_withdrawal, event) in events {
                match event % 4 {
                    0 | 1 => held.extend(
                        take_for(&slots, pid, uid, is_withdrawal, Duration::ZERO).ok().map(|slot| (uid, slot)),
                    ),
                    2 => held.iter().take(1).for_each(|(_, slot)| slot.abandon_fn()()),
                    _ => drop(held.pop()),
                }
                prop_assert!(held.len() <= SLOTS_MAX);
                prop_assert!((0..8).all(|uid| held.iter().filter(|(of, _)| *of == uid).count() <= SLOTS_PER_USER_MAX));
            }
        }
    }
}
