//! Memory for answers, from when they are made until the last of those who asked has taken them. What is shared is counted once.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    sync::Notify,
    time::{self, Duration, Instant},
};

use crate::{
    connection::{BudgetKind, Holding},
    connection_table::ConnectionTable,
};

/// How long an answer waits for memory before it is refused.
const PATIENCE: Duration = Duration::from_secs(1);

/// So many bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    kind: BudgetKind,
    max: usize,
    bytes: Mutex<InUse>,
    /// Names reservations.
    next: AtomicU64,
    freed: Notify,
    /// Whose connections hold it.
    directory: Arc<ConnectionTable>,
}

#[derive(Debug, Default)]
struct InUse {
    reserved: usize,
    /// What is waited for.
    wanted: usize,
}

/// What somebody waits for, until this is dropped.
struct Wanted<'a> {
    budget: &'a Budget,
    bytes: usize,
}

/// A part of it, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    name: u64,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(kind: BudgetKind, max: usize, directory: Arc<ConnectionTable>) -> Self {
        Self { kind, max, bytes: Mutex::default(), next: AtomicU64::new(0), freed: Notify::new(), directory }
    }

    /// Reserves so much if it is there. At least something always is: where nothing is in use, whatever is asked for.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut in_use = self.bytes();
        let fits = in_use.reserved == 0 || in_use.reserved.saturating_add(bytes) <= self.max;
        fits.then(|| {
            in_use.reserved = in_use.reserved.saturating_add(bytes);
            Reservation { budget: Arc::clone(self), name: self.next.fetch_add(1, Ordering::Relaxed), bytes }
        })
    }

    /// Waits until so much is there. Where it is short, `relieve` is called, and connections whose peers take nothing are closed, the longest idle first.
    /// `None` if that does not help in time.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize, relieve: impl Fn()) -> Option<Reservation> {
        let end = Instant::now() + PATIENCE;
        let _wanted = Wanted::new(self, bytes);
        loop {
            // Asked for before looking, so that what is freed in between is noticed.
            let freed = self.freed.notified();
            if let Some(reservation) = self.try_reserve(bytes) {
                return Some(reservation);
            }
            if Instant::now() >= end {
                return None;
            }
            relieve();
            let look_again = self.directory.close_idle_senders(self.kind, self.shortage());
            let look_again = look_again.unwrap_or(end).min(end);
            tokio::select! {
                () = freed => {}
                () = time::sleep_until(look_again) => {}
            }
        }
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> usize {
        self.bytes().reserved
    }

    /// What has to be freed so that all get what they wait for.
    fn shortage(&self) -> usize {
        let in_use = self.bytes();
        in_use.reserved.saturating_add(in_use.wanted).saturating_sub(self.max)
    }

    fn change(&self, from: usize, to: usize) {
        let mut in_use = self.bytes();
        in_use.reserved = in_use.reserved.saturating_sub(from).saturating_add(to);
        drop(in_use);
        if to < from {
            self.freed.notify_waiters();
        }
    }

    fn bytes(&self) -> MutexGuard<'_, InUse> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Wanted<'a> {
    fn new(budget: &'a Budget, bytes: usize) -> Self {
        budget.bytes().wanted += bytes;
        Self { budget, bytes }
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.budget.bytes().wanted -= self.bytes;
    }
}

impl Reservation {
    /// What whoever is sent what it is for holds.
    pub(crate) fn holding(&self) -> Holding {
        Holding { budget: self.budget.kind, reservation: self.name, bytes: self.bytes }
    }

    /// How much it turned out to be.
    pub(crate) fn resize(&mut self, bytes: usize) {
        self.budget.change(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.change(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(max: usize) -> Arc<Budget> {
        Arc::new(Budget::new(BudgetKind::Api, max, Arc::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_waits_for_a_second_and_is_refused() {
        let budget = budget(100);
        let mut first = budget.reserve(60, || {}).await.unwrap();
        assert!(budget.reserve(60, || {}).await.is_none());
        first.resize(40);
        let second = budget.reserve(60, || {}).await.unwrap();
        assert_eq!(budget.used(), 100);
        drop((first, second));
        assert_eq!(budget.used(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_as_soon_as_there_is_room() {
        let budget = budget(100);
        let held = budget.reserve(100, || {}).await.unwrap();
        let begun = Instant::now();
        let free = async {
            time::sleep(Duration::from_millis(300)).await;
            drop(held);
        };
        let (reserved, ()) = tokio::join!(budget.reserve(50, || {}), free);
        assert!(reserved.is_some() && begun.elapsed() == Duration::from_millis(300), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_larger_than_all_of_it_is_made_while_there_is_no_other() {
        let budget = budget(100);
        let large = budget.reserve(1000, || {}).await.unwrap();
        assert!(budget.reserve(1, || {}).await.is_none());
        drop(large);
        assert!(budget.reserve(1, || {}).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_for_others_makes_room_first() {
        let budget = budget(100);
        let reservation = Mutex::new(Some(budget.reserve(100, || {}).await.unwrap()));
        let begun = Instant::now();
        assert!(budget.reserve(100, || drop(reservation.lock().unwrap().take())).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
