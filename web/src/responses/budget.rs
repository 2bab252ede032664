//! Memory for responses, from the start of their building until the last receiver has them. A
//! shared response counts once.

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

/// Maximum wait of a response for memory before it is rejected.
const MEMORY_WAIT_MAX: Duration = Duration::from_secs(1);

/// Budget of memory.
#[derive(Debug)]
pub(crate) struct Budget {
    kind: BudgetKind,
    max: usize,
    bytes: Mutex<InUse>,
    /// Id of the next reservation.
    next: AtomicU64,
    freed: Notify,
    /// Connections, which may hold memory of the budget.
    table: Arc<ConnectionTable>,
}

#[derive(Debug, Default)]
struct InUse {
    reserved: usize,
    /// Bytes that callers wait for.
    awaited: usize,
}

/// Bytes that a caller waits for, until this is dropped.
struct Awaited<'a> {
    budget: &'a Budget,
    bytes: usize,
}

/// Part of the budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    id: u64,
    bytes: usize,
}

impl Budget {
    pub(crate) fn new(kind: BudgetKind, max: usize, table: Arc<ConnectionTable>) -> Self {
        Self { kind, max, bytes: Mutex::default(), next: AtomicU64::new(0), freed: Notify::new(), table }
    }

    /// Reserves bytes if they are available. While none are in use, any amount is.
    pub(crate) fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        let mut in_use = self.bytes();
        let fits = in_use.reserved == 0 || in_use.reserved.saturating_add(bytes) <= self.max;
        fits.then(|| {
            in_use.reserved = in_use.reserved.saturating_add(bytes);
            Reservation { budget: Arc::clone(self), id: self.next.fetch_add(1, Ordering::Relaxed), bytes }
        })
    }

    /// Waits for bytes. If they are not available, `relieve` is called, and connections whose peers
    /// accept no bytes are closed, the longest idle first. `None` if that does not help in time.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize, relieve: impl Fn()) -> Option<Reservation> {
        let end = Instant::now() + MEMORY_WAIT_MAX;
        let _awaited = Awaited::new(self, bytes);
        loop {
            // Registered before the attempt, so that memory freed in between is noticed.
            let freed = self.freed.notified();
            if let Some(reservation) = self.try_reserve(bytes) {
                return Some(reservation);
            }
            if Instant::now() >= end {
                return None;
            }
            relieve();
            let next_attempt = self.table.close_idle_senders(self.kind, self.shortage());
            let next_attempt = next_attempt.unwrap_or(end).min(end);
            tokio::select! {
                () = freed => {}
                () = time::sleep_until(next_attempt) => {}
            }
        }
    }

    /// Reserved bytes.
    pub(crate) fn used(&self) -> usize {
        self.bytes().reserved
    }

    /// Bytes to free for all waiting callers.
    fn shortage(&self) -> usize {
        let in_use = self.bytes();
        in_use.reserved.saturating_add(in_use.awaited).saturating_sub(self.max)
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

impl<'a> Awaited<'a> {
    fn new(budget: &'a Budget, bytes: usize) -> Self {
        budget.bytes().awaited += bytes;
        Self { budget, bytes }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.budget.bytes().awaited -= self.bytes;
    }
}

impl Reservation {
    /// The reservation as held by a connection to which the response is being sent.
    pub(crate) fn holding(&self) -> Holding {
        Holding { budget: self.budget.kind, reservation: self.id, bytes: self.bytes }
    }

    /// Changes the reservation to the actual size.
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
    async fn a_reservation_waits_for_a_second_and_fails() {
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
    async fn a_reservation_succeeds_as_soon_as_memory_is_freed() {
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
    async fn a_reservation_beyond_the_budget_succeeds_while_there_is_no_other() {
        let budget = budget(100);
        let large = budget.reserve(1000, || {}).await.unwrap();
        assert!(budget.reserve(1, || {}).await.is_none());
        drop(large);
        assert!(budget.reserve(1, || {}).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn cached_responses_are_dropped_first() {
        let budget = budget(100);
        let reservation = Mutex::new(Some(budget.reserve(100, || {}).await.unwrap()));
        let begun = Instant::now();
        assert!(budget.reserve(100, || drop(reservation.lock().unwrap().take())).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
