//! Every connection there is, on whatever it came in, and how those ended that the service closed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::Instant;

use crate::{
    closed::Closed,
    connection::{BudgetKind, Connection, STALLED},
};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    connections: Mutex<Vec<Weak<Connection>>>,
    closed: [AtomicU64; Closed::ALL.len()],
    rejected: AtomicU64,
}

/// An answer that is being sent, to whom, and when one of them took something last; `None` where all are to be closed.
#[derive(Default)]
struct Sent<'a> {
    bytes: usize,
    active: Option<Instant>,
    connections: Vec<&'a Arc<Connection>>,
}

impl ConnectionTable {
    pub(crate) fn enter(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections();
        connections.retain(|each| each.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// Connections that are open.
    pub(crate) fn open(&self) -> usize {
        self.connections().iter().filter(|each| each.strong_count() > 0).count()
    }

    /// Frees so many bytes of a budget, counting what is about to be free: closes those who are sent what holds them, of which nobody has taken anything
    /// for a moment, the longest idle first. Tells when it makes sense to ask again, if it does.
    pub(crate) fn close_idle_senders(&self, budget: BudgetKind, bytes: usize) -> Option<Instant> {
        let connections: Vec<_> = self.connections().iter().filter_map(Weak::upgrade).collect();
        let mut payloads: BTreeMap<u64, Sent<'_>> = BTreeMap::new();
        for connection in &connections {
            let (holdings, active) = connection.holdings();
            for holding in holdings.into_iter().filter(|holding| holding.budget == budget) {
                let sent = payloads.entry(holding.reservation).or_default();
                sent.bytes = holding.bytes;
                sent.active = sent.active.max(active);
                sent.connections.push(connection);
            }
        }
        let (open, closing): (Vec<_>, Vec<_>) = payloads.into_values().partition(|sent| sent.active.is_some());
        let mut freed: usize = closing.iter().map(|sent| sent.bytes).sum();
        let mut open: Vec<_> = open.into_iter().filter_map(|sent| Some((sent.active?, sent))).collect();
        open.sort_by_key(|(active, _)| *active);
        for (active, sent) in open {
            if freed >= bytes {
                break;
            }
            if active.elapsed() < STALLED {
                return Some(active + STALLED);
            }
            sent.connections.iter().for_each(|connection| connection.close(Closed::MemoryPressure));
            freed += sent.bytes;
        }
        (freed > 0).then(|| Instant::now() + STALLED)
    }

    /// A request was turned away for want of a place.
    pub(crate) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, closed: Closed) {
        if let Some(count) = self.closed.get(closed as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn closed(&self, closed: Closed) -> u64 {
        self.closed.get(closed as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Weak<Connection>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;
    use crate::{
        connection::{Holding, PlaceKind, Sending},
        peers::PeerKey,
    };

    /// Somebody who is being sent this.
    fn sender(directory: &ConnectionTable, budget: BudgetKind, reservation: u64) -> (Arc<Connection>, Sending) {
        let connection = Arc::new(Connection::new(PeerKey::Nobody, PlaceKind::Regular, Arc::default()));
        directory.enter(&connection);
        let sending = connection.sending(Some(Holding { budget, reservation, bytes: 10 }));
        (connection, sending)
    }

    fn closed(senders: &[(Arc<Connection>, Sending)]) -> Vec<bool> {
        senders.iter().map(|(connection, _)| connection.is_leaving()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn who_holds_memory_of_another_budget_is_left_alone() {
        let directory = ConnectionTable::default();
        let senders = [sender(&directory, BudgetKind::Api, 1), sender(&directory, BudgetKind::Metrics, 2)];
        time::advance(STALLED).await;
        assert!(directory.close_idle_senders(BudgetKind::Metrics, 100).is_some());
        assert_eq!(closed(&senders), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_are_closed_at_once_as_hold_what_is_needed_the_longest_idle_first() {
        let directory = ConnectionTable::default();
        let mut senders = Vec::new();
        for reservation in 1..=4 {
            senders.push(sender(&directory, BudgetKind::Api, reservation));
            time::advance(STALLED).await;
        }
        directory.close_idle_senders(BudgetKind::Api, 20);
        assert_eq!(closed(&senders), [true, true, false, false]);
        directory.close_idle_senders(BudgetKind::Api, 20);
        assert_eq!(closed(&senders), [true, true, false, false], "those are on their way");
    }

    #[tokio::test(start_paused = true)]
    async fn those_who_are_sent_the_same_are_closed_together_and_only_if_all_of_them_are_idle() {
        let directory = ConnectionTable::default();
        let shared = [sender(&directory, BudgetKind::Api, 1), sender(&directory, BudgetKind::Api, 1)];
        time::advance(STALLED).await;
        let late = [sender(&directory, BudgetKind::Api, 1)];
        let next = directory.close_idle_senders(BudgetKind::Api, 1);
        assert_eq!((closed(&shared), closed(&late)), (vec![false, false], vec![false]));
        assert_eq!(next, Some(Instant::now() + STALLED));
        time::advance(STALLED).await;
        directory.close_idle_senders(BudgetKind::Api, 1);
        assert_eq!((closed(&shared), closed(&late)), (vec![true, true], vec![true]));
    }
}
