//! All open connections of all listeners, and counts of those that the service closed.

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
    connection::{BudgetKind, Connection, STALL_GRACE},
};

/// Table of connections; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct ConnectionTable {
    connections: Mutex<Vec<Weak<Connection>>>,
    closed: [AtomicU64; Closed::ALL.len()],
    rejected: AtomicU64,
}

/// Response that is being sent, its receivers, and the last progress of any of them; `None` if all
/// of them are closing.
#[derive(Default)]
struct Sent<'a> {
    bytes: usize,
    active: Option<Instant>,
    connections: Vec<&'a Arc<Connection>>,
}

impl ConnectionTable {
    pub(crate) fn insert(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections();
        connections.retain(|each| each.strong_count() > 0);
        connections.push(Arc::downgrade(connection));
    }

    /// Number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.connections().iter().filter(|each| each.strong_count() > 0).count()
    }

    /// Frees at least `bytes` of a budget, counting memory of connections that are closing. Closes
    /// the receivers of a response if none of them has made progress for [`STALL_GRACE`], the
    /// longest idle first. Returns the time for the next attempt, if one makes sense.
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
            if active.elapsed() < STALL_GRACE {
                return Some(active + STALL_GRACE);
            }
            sent.connections.iter().for_each(|connection| connection.close(Closed::MemoryPressure));
            freed += sent.bytes;
        }
        (freed > 0).then(|| Instant::now() + STALL_GRACE)
    }

    /// Counts a request that was rejected for want of a place.
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

    /// A connection to which a response with this reservation is being sent.
    fn sender(table: &ConnectionTable, budget: BudgetKind, reservation: u64) -> (Arc<Connection>, Sending) {
        let connection = Arc::new(Connection::new(PeerKey::Unidentified, PlaceKind::Regular, Arc::default()));
        table.insert(&connection);
        let sending = connection.sending(Some(Holding { budget, reservation, bytes: 10 }));
        (connection, sending)
    }

    fn closed(senders: &[(Arc<Connection>, Sending)]) -> Vec<bool> {
        senders.iter().map(|(connection, _)| connection.is_closing()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_memory_of_another_budget_stays_open() {
        let table = ConnectionTable::default();
        let senders = [sender(&table, BudgetKind::Api, 1), sender(&table, BudgetKind::Metrics, 2)];
        time::advance(STALL_GRACE).await;
        assert!(table.close_idle_senders(BudgetKind::Metrics, 100).is_some());
        assert_eq!(closed(&senders), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connections_that_hold_the_needed_bytes_are_closed() {
        let table = ConnectionTable::default();
        let mut senders = Vec::new();
        for reservation in 1..=4 {
            senders.push(sender(&table, BudgetKind::Api, reservation));
            time::advance(STALL_GRACE).await;
        }
        table.close_idle_senders(BudgetKind::Api, 20);
        assert_eq!(closed(&senders), [true, true, false, false]);
        table.close_idle_senders(BudgetKind::Api, 20);
        assert_eq!(closed(&senders), [true, true, false, false], "those that are closing count");
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_of_one_response_are_closed_together_and_only_if_all_are_idle() {
        let table = ConnectionTable::default();
        let shared = [sender(&table, BudgetKind::Api, 1), sender(&table, BudgetKind::Api, 1)];
        time::advance(STALL_GRACE).await;
        let late = [sender(&table, BudgetKind::Api, 1)];
        let next = table.close_idle_senders(BudgetKind::Api, 1);
        assert_eq!((closed(&shared), closed(&late)), (vec![false, false], vec![false]));
        assert_eq!(next, Some(Instant::now() + STALL_GRACE));
        time::advance(STALL_GRACE).await;
        table.close_idle_senders(BudgetKind::Api, 1);
        assert_eq!((closed(&shared), closed(&late)), (vec![true, true], vec![true]));
    }
}
