//! Whole blocks that come back to a GPU by request, and that no GPU accessed while they were absent.
//!
//! A block counts if it was absent from before the process had memory moved to the host until all of it
//! came back by a call of the process. Order decides: what is accessed arrives by a fault, and may be
//! evicted before the call. Arrivals and departures are seen in the records of residency, which are
//! never sampled out.

use std::collections::{BTreeMap, btree_map::Entry};

use abi::{
    BlockRecord, RecordKind,
    block::{BLOCK_BYTES, RESIDENT_UNKNOWN},
};

/// Cause of a copy that the process itself requested, by the driver's numbers: `API_MIGRATE`, without
/// the flag of another process's call.
const REQUESTED: u16 = 6;

/// What is counted of a block. Counts only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReturnCounts {
    /// Times that it came back without an access.
    pub(super) idle_returns: u64,
    /// Times that something else than a request ended an absence that began before the process had memory
    /// moved to the host.
    pub(super) interrupted_absences: u64,
}

/// Absences of blocks that a process had moved.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Copies to the host that the process requested.
    departures: u64,
    /// Number of losses of records: what was known to be absent before the last one is not any more.
    losses: u64,
    /// Most blocks.
    max: usize,
    blocks: BTreeMap<u64, State>,
}

/// State of a block.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Departures of the process when it left, without its own; `None` while it is not known to be absent.
    absent_since: Option<u64>,
    /// Losses of records until then.
    losses: u64,
    /// Whether its own departure is the last one of the process.
    is_requested: bool,
    /// Bytes that have come back by request since.
    returned_bytes: u64,
    counts: ReturnCounts,
}

impl State {
    const fn present(self) -> Self {
        let Self { losses, counts, .. } = self;
        Self { absent_since: None, losses, is_requested: false, returned_bytes: 0, counts }
    }

    /// Whether it is absent since before the process had memory moved to the host.
    fn is_away(&self, departures: u64) -> bool {
        self.absent_since.is_some_and(|since| departures > since)
    }

    /// Present by something else than a request.
    fn accessed(self, departures: u64) -> Self {
        let mut present = self.present();
        present.counts.interrupted_absences += u64::from(self.is_away(departures));
        present
    }
}

impl Returns {
    /// None yet, of at most so many blocks: further ones have no returns.
    pub(super) fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    /// Adds a record of the block of this number.
    pub(super) fn add(&mut self, number: u64, kind: RecordKind, record: &BlockRecord) {
        if self.max == 0 {
            return;
        }
        let is_requested = record.cause == REQUESTED;
        if kind == RecordKind::CopyDtoh && is_requested {
            self.departures += 1;
        }
        let is_moved = is_requested && matches!(kind, RecordKind::CopyDtoh | RecordKind::CopyHtod);
        if kind == RecordKind::Gone {
            self.blocks.remove(&number);
            return;
        }
        let (departures, losses, has_room) = (self.departures, self.losses, self.blocks.len() < self.max);
        let state = match self.blocks.entry(number) {
            Entry::Occupied(there) => there.into_mut(),
            Entry::Vacant(vacant) if is_moved && has_room => vacant.insert(State::default()),
            Entry::Vacant(_) => return,
        };
        if state.losses != losses {
            *state = State { losses, ..state.present() };
        }
        match kind {
            RecordKind::CopyDtoh => state.is_requested = is_requested,
            RecordKind::CopyHtod if is_requested => {
                state.returned_bytes += u64::from(record.bytes);
                if state.is_away(departures) && state.returned_bytes >= BLOCK_BYTES {
                    *state = state.present();
                    state.counts.idle_returns += 1;
                }
            }
            // What is neither read nor written has none of these.
            RecordKind::CopyHtod | RecordKind::CopyDtod | RecordKind::Populated | RecordKind::GpuFaults => {
                *state = state.accessed(departures);
            }
            RecordKind::Residency if record.resident_pages == 0 && record.first_page == 0 => {
                if state.absent_since.is_none() {
                    let own = u64::from(state.is_requested);
                    let absent_since = Some(departures.saturating_sub(own));
                    *state = State { absent_since, is_requested: false, ..state.present() };
                }
            }
            // With all that is there for it, or in a state that cannot be read.
            RecordKind::Residency => *state = state.accessed(departures),
            RecordKind::CpuFault | RecordKind::CopyStaged | RecordKind::Evicted | RecordKind::Gone => {}
        }
        const { assert!(RESIDENT_UNKNOWN != 0, "unknown residency is no absence") };
    }

    /// Forgets a block.
    pub(super) fn forget(&mut self, number: u64) {
        self.blocks.remove(&number);
    }

    /// Nothing is known to be absent: records were lost.
    pub(super) const fn lost(&mut self) {
        self.losses = self.losses.wrapping_add(1);
    }

    /// Counts of the block of this number.
    pub(super) fn of(&self, number: u64) -> ReturnCounts {
        self.blocks.get(&number).map_or_else(ReturnCounts::default, |state| state.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAULT: u16 = 0;
    const EVICTION: u16 = 4;
    const OF_A_TOOL: u16 = REQUESTED | abi::count::REQUESTED_BY_TOOL;
    const WHOLE: u32 = 2 << 20;
    const MAX: usize = 8;

    fn add(returns: &mut Returns, number: u64, kind: RecordKind, cause: u16, bytes: u32, resident_pages: u16) {
        returns.add(number, kind, &BlockRecord { cause, bytes, resident_pages, ..BlockRecord::default() });
    }

    fn leaves(returns: &mut Returns, number: u64, cause: u16) {
        add(returns, number, RecordKind::CopyDtoh, cause, WHOLE, 0);
        add(returns, number, RecordKind::Residency, 0, 0, 0);
    }

    fn comes(returns: &mut Returns, number: u64, cause: u16, bytes: u32) {
        add(returns, number, RecordKind::CopyHtod, cause, bytes, 0);
        add(returns, number, RecordKind::Residency, 0, 0, 512);
    }

    /// Idle returns of block 1, which the process has moved before, after these events.
    fn after(events: impl FnOnce(&mut Returns)) -> u64 {
        let mut returns = Returns::new(MAX);
        comes(&mut returns, 1, REQUESTED, WHOLE);
        events(&mut returns);
        returns.of(1).idle_returns
    }

    #[test]
    fn block_that_leaves_and_comes_back_whole_by_request_is_idle_meanwhile() {
        let round_trip = |returns: &mut Returns| {
            leaves(returns, 1, REQUESTED);
            comes(returns, 1, REQUESTED, WHOLE);
        };
        assert_eq!(after(round_trip), 1);
        assert_eq!(after(|returns| (0..3).for_each(|_| round_trip(returns))), 3);
        let mut returns = Returns::new(MAX);
        round_trip(&mut returns);
        assert_eq!(returns.of(1).idle_returns, 1, "its first departure is observed");
    }

    #[test]
    fn block_of_which_a_part_came_by_a_fault_was_accessed() {
        let accessed = |returns: &mut Returns| {
            leaves(returns, 1, REQUESTED);
            comes(returns, 1, FAULT, 64 << 10);
            comes(returns, 1, REQUESTED, WHOLE - (64 << 10));
        };
        assert_eq!(after(accessed), 0);
    }

    #[test]
    fn access_that_ends_an_absence_from_before_a_departure_is_counted() {
        let mut returns = Returns::new(MAX);
        leaves(&mut returns, 1, REQUESTED);
        comes(&mut returns, 1, FAULT, WHOLE);
        let counted = ReturnCounts { idle_returns: 0, interrupted_absences: 1 };
        assert_eq!(returns.of(1), counted);
        // Away by an eviction, without a departure since.
        leaves(&mut returns, 1, EVICTION);
        comes(&mut returns, 1, FAULT, WHOLE);
        assert_eq!(returns.of(1), counted);
        // What was lost says neither.
        leaves(&mut returns, 1, REQUESTED);
        returns.lost();
        comes(&mut returns, 1, REQUESTED, WHOLE);
        assert_eq!(returns.of(1), counted);
    }

    #[test]
    fn block_that_was_accessed_and_evicted_before_it_came_back_was_accessed() {
        let evicted = |returns: &mut Returns| {
            leaves(returns, 1, REQUESTED);
            comes(returns, 1, FAULT, WHOLE);
            leaves(returns, 1, EVICTION);
            comes(returns, 1, REQUESTED, WHOLE);
        };
        assert_eq!(after(evicted), 0);
        let sampled_out = |returns: &mut Returns| {
            leaves(returns, 1, REQUESTED);
            add(returns, 1, RecordKind::Residency, 0, 0, 512);
            add(returns, 1, RecordKind::Residency, 0, 0, 0);
            comes(returns, 1, REQUESTED, WHOLE);
        };
        assert_eq!(after(sampled_out), 0, "records of residency suffice");
    }

    #[test]
    fn block_that_was_evicted_counts_if_other_memory_was_moved_to_the_host_after_that() {
        let evicted = |returns: &mut Returns, departs: bool| {
            leaves(returns, 1, EVICTION);
            if departs {
                leaves(returns, 2, REQUESTED);
            }
            comes(returns, 1, REQUESTED, WHOLE);
        };
        assert_eq!(after(|returns| evicted(returns, true)), 1);
        assert_eq!(after(|returns| evicted(returns, false)), 0, "nobody knows when it left");
    }

    #[test]
    fn what_a_tool_moves_and_what_comes_back_in_part_does_not_count() {
        let moved = |out: u16, back: u16, bytes: u32| {
            after(|returns| {
                leaves(returns, 1, out);
                comes(returns, 1, back, bytes);
            })
        };
        assert_eq!([moved(REQUESTED, OF_A_TOOL, WHOLE), moved(OF_A_TOOL, REQUESTED, WHOLE)], [0, 0]);
        assert_eq!(moved(REQUESTED, REQUESTED, WHOLE - 4096), 0);
    }

    #[test]
    fn lost_records_may_have_been_accesses() {
        let lost = |returns: &mut Returns| {
            leaves(returns, 1, REQUESTED);
            returns.lost();
            comes(returns, 1, REQUESTED, WHOLE);
        };
        assert_eq!(after(lost), 0);
    }

    #[test]
    fn blocks_that_nobody_moves_are_not_observed() {
        let mut returns = Returns::new(MAX);
        for number in 0..100 {
            comes(&mut returns, number, FAULT, WHOLE);
            leaves(&mut returns, number, EVICTION);
        }
        assert!(returns.blocks.is_empty());
    }

    #[test]
    fn no_more_blocks_are_observed_than_may_be() {
        let mut returns = Returns::new(MAX);
        (0..100).for_each(|number| leaves(&mut returns, number, REQUESTED));
        assert_eq!(returns.blocks.len(), MAX);
        let record = BlockRecord { cause: REQUESTED, bytes: WHOLE, ..BlockRecord::default() };
        let mut nobody = Returns::default();
        nobody.add(1, RecordKind::CopyDtoh, &record);
        assert!(nobody.blocks.is_empty());
    }
}
