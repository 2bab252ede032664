//! Published decisions and restrictions of the loop.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use actuator::{JournalHealth, JournalMonitor};
use model::{Decision, Following, ProcessId, Restriction};
use tokio::sync::watch;

/// Interval of restrictions: computing them takes as long as an interval of the loop.
const RESTRICTIONS_INTERVAL: Duration = Duration::from_secs(1);

/// Board: published decisions and restrictions of the loop.
pub(crate) struct Board {
    decisions: watch::Sender<Arc<[Decision]>>,
    /// Whether decisions have changed since their last publication.
    is_stale: bool,
    restrictions: watch::Sender<Arc<[Restriction]>>,
    following: watch::Sender<Arc<BTreeMap<ProcessId, Following>>>,
    /// Time at which restrictions are due; at once if none were published yet.
    next: Option<Instant>,
}

/// Reader of the board. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct BoardReader {
    decisions: watch::Receiver<Arc<[Decision]>>,
    restrictions: watch::Receiver<Arc<[Restriction]>>,
    following: watch::Receiver<Arc<BTreeMap<ProcessId, Following>>>,
    journal: Option<JournalMonitor>,
}

impl BoardReader {
    /// Decisions, newest first.
    pub(crate) fn decisions(&self) -> Arc<[Decision]> {
        Arc::clone(&self.decisions.borrow())
    }

    /// Restrictions of the processes with a policy in effect.
    pub(crate) fn restrictions(&self) -> Arc<[Restriction]> {
        Arc::clone(&self.restrictions.borrow())
    }

    /// Processes whose calls are followed for plans.
    pub(crate) fn following(&self) -> Arc<BTreeMap<ProcessId, Following>> {
        Arc::clone(&self.following.borrow())
    }

    /// Health of the journal of advice; `None` without a journal.
    pub(crate) fn journal(&self) -> Option<JournalHealth> {
        self.journal.as_ref().map(JournalMonitor::health)
    }
}

impl Board {
    /// Board with the journal of advice, if there is one.
    pub(crate) fn new(journal: Option<JournalMonitor>) -> (Self, BoardReader) {
        let (publish_decisions, decisions) = watch::channel(Arc::default());
        let (publish_restrictions, restrictions) = watch::channel(Arc::default());
        let (publish_following, following) = watch::channel(Arc::default());
        let board = Self {
            decisions: publish_decisions,
            is_stale: false,
            restrictions: publish_restrictions,
            following: publish_following,
            next: None,
        };
        (board, BoardReader { decisions, restrictions, following, journal })
    }

    /// Marks the decisions as changed.
    pub(super) const fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Publishes the current decisions, once per interval: there may be many, with hundreds of
    /// outcomes.
    pub(super) fn publish_decisions<'a>(&mut self, decisions: impl Iterator<Item = &'a Decision>) {
        if std::mem::take(&mut self.is_stale) {
            self.decisions.send_replace(decisions.cloned().collect());
        }
    }

    /// Publishes the restrictions, if they are due now.
    pub(crate) fn publish_restrictions(&mut self, now: Instant, restrictions: impl FnOnce() -> Vec<Restriction>) {
        if self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + RESTRICTIONS_INTERVAL);
            self.restrictions.send_replace(restrictions().into());
        }
    }

    /// Publishes the processes whose calls are followed.
    pub(super) fn publish_following(&self, following: BTreeMap<ProcessId, Following>) {
        self.following.send_if_modified(|published| {
            let has_changed = **published != following;
            if has_changed {
                *published = Arc::new(following);
            }
            has_changed
        });
    }

    /// Clears the restrictions while the loop is idle.
    pub(super) fn clear(&mut self) {
        self.next = None;
        self.publish_following(BTreeMap::new());
        self.restrictions.send_if_modified(|restrictions| {
            let was_there = !restrictions.is_empty();
            *restrictions = Arc::default();
            was_there
        });
    }
}

#[cfg(test)]
mod tests {
    use model::RestrictionScope;

    use super::*;

    #[test]
    fn restrictions_are_published_once_a_second_and_cleared_when_idle() {
        let restriction = |why: &str| Restriction {
            process: ProcessId { pid: 7, start_ticks: 1 },
            gpu: None,
            scope: RestrictionScope::Everything,
            reason: why.to_owned(),
        };
        let (mut board, reader) = Board::new(None);
        let start = Instant::now();
        let almost = start + Duration::from_millis(999);
        board.publish_restrictions(start, || vec![restriction("first")]);
        board.publish_restrictions(almost, || panic!("that was a moment ago"));
        assert_eq!(reader.restrictions()[..], [restriction("first")]);
        board.clear();
        assert_eq!(reader.restrictions()[..], []);
        board.publish_restrictions(almost, || vec![restriction("second")]);
        assert_eq!(reader.restrictions()[..], [restriction("second")]);
        board.publish_restrictions(almost + Duration::from_secs(1), || vec![restriction("third")]);
        assert_eq!(reader.restrictions()[..], [restriction("third")]);
    }
}
