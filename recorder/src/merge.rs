//! Merge of the calls of all lanes of a ring, by sequence number.
//!
//! A thread takes a number, and publishes its call a little later: a missing number may still
//! arrive. A number that was issued three polls ago and has not arrived usually belongs to a call that
//! did not fit into its lane. If its call arrives after all, it is late: calls after it have been
//! released, so it is counted and omitted.

use std::collections::BTreeMap;

use call_ring::{
    Memory, Operation, Word,
    call::{Call, Read, Reader},
    memory::LANES,
};

use crate::window::bytes_of;

/// Maximum number of calls that wait for missing numbers: more than a ring holds, so that a helper
/// never reaches it.
const WAITING_CALLS_MAX: usize = 1 << 16;
/// Maximum bytes of these calls, which a helper never reaches either.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Maximum number of calls that a part of a poll returns. A part stops reading at the end of the
/// lane in which it exceeds this number of records: some milliseconds of work.
const PART_CALLS_MAX: usize = 2048;

/// Bytes of a waiting call. Nodes of the map are half full.
fn waiting_bytes_of(call: &Call) -> usize {
    bytes_of(call) + size_of::<Call>()
}

/// Counts of lost calls and records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls dropped because their lane was full.
    pub dropped: u64,
    /// Calls that arrived after calls with later numbers were released.
    pub late: u64,
    /// Calls not recorded for another reason.
    pub unrecorded: u64,
    /// Records of kinds unknown to this version.
    pub unknown: u64,
    /// Records that no helper writes.
    pub invalid: u64,
}

/// Merge of the calls of a ring.
#[derive(Debug, Default)]
pub struct Merge {
    /// Sequence number of the next call.
    next: u64,
    waiting: BTreeMap<u64, Call>,
    waiting_bytes: usize,
    /// Counts of numbers issued before each of the last polls, latest first. Calls wait for a
    /// missing number during as many polls.
    issued: [u64; 3],
    /// Missing numbers below this one are overdue: calls no longer wait for them.
    overdue: u64,
    /// Positions in the lanes up to which records were read. The process can write other tails.
    positions: [Option<u64>; LANES],
    /// The same when the helper was last informed of them.
    consumed: [Option<u64>; LANES],
    /// Poll in progress.
    poll: Option<LanePoll>,
    /// Whether calls may be ready for release.
    is_releasing: bool,
    losses: Losses,
}

/// Poll of all lanes, one after the other.
#[derive(Clone, Copy, Debug)]
struct LanePoll {
    /// Count of numbers issued before the poll.
    issued: u64,
    /// Next lane.
    lane: usize,
}

impl Merge {
    /// Reads the lanes, and returns the calls that are next in order. `copy` copies bytes at an
    /// offset of the memory.
    ///
    /// # Errors
    /// The error of `copy`.
    pub fn poll<W: Word, E>(
        &mut self,
        memory: &Memory<'_, W>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<Call>, E> {
        let mut calls = self.poll_part(memory, &mut copy)?;
        while self.has_more() {
            calls.append(&mut self.poll_part(memory, &mut copy)?);
        }
        Ok(calls)
    }

    /// Reads a part of a poll, and returns the calls that are next in order. The next part
    /// continues from there, also after an error.
    ///
    /// # Errors
    /// The error of `copy`.
    pub fn poll_part<W: Word, E>(
        &mut self,
        memory: &Memory<'_, W>,
        copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<Call>, E> {
        // Calls that are ready are released before others are read, as they take memory.
        if !self.is_releasing {
            let new = LanePoll { issued: memory.sequence(), lane: 0 };
            let poll = self.poll.take().unwrap_or(new);
            self.read_lanes(memory, copy, poll)?;
        }
        Ok(self.release())
    }

    /// Operations by which the helper may overwrite the records read, until [`Self::set_consumed`].
    #[must_use]
    pub fn consumed<W: Word>(&self, memory: &Memory<'_, W>) -> Vec<Operation> {
        let positions = self.positions.iter().zip(&self.consumed);
        let changed = memory.lanes().zip(positions).filter(|(_, (position, consumed))| position != consumed);
        changed.filter_map(|(lane, (position, _))| Some(lane.consume((*position)?))).collect()
    }

    /// Notes that the operations were applied.
    pub const fn set_consumed(&mut self) {
        self.consumed = self.positions;
    }

    /// Whether the poll has further parts.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.poll.is_some() || self.is_releasing
    }

    /// Reads a part of a poll, from its current lane on.
    fn read_lanes<W: Word, E>(
        &mut self,
        memory: &Memory<'_, W>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        mut poll: LanePoll,
    ) -> Result<(), E> {
        let (mut reader, mut read_records) = (Reader::default(), 0);
        for (number, lane) in memory.lanes().enumerate().skip(poll.lane) {
            if read_records >= PART_CALLS_MAX {
                self.poll = Some(poll);
                return Ok(());
            }
            let mut position = self.positions.get(number).copied().flatten();
            let result = reader.read(&lane, &mut position, &mut copy, |read| {
                read_records += 1;
                match read {
                    Read::Call(call) => self.enqueue(call),
                    Read::Unknown => self.losses.unknown += 1,
                    Read::Invalid => self.losses.invalid += 1,
                }
            });
            if let Some(known) = self.positions.get_mut(number) {
                *known = position;
            }
            if let Err(error) = result {
                self.poll = Some(poll);
                return Err(error);
            }
            poll.lane += 1;
        }
        let [first, second, overdue] = self.issued;
        self.issued = [poll.issued, first, second];
        self.overdue = overdue;
        self.losses.dropped =
            self.losses.dropped.max(memory.lanes().map(|lane| lane.dropped()).fold(0, u64::saturating_add));
        self.losses.unrecorded = self.losses.unrecorded.max(memory.unrecorded());
        Ok(())
    }

    /// Releases the calls that are next in order, of those read.
    pub fn release(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(entry) = self.waiting.first_entry() {
            let sequence = *entry.key();
            // Skips overdue numbers, and waits for later ones.
            self.next = self.next.max(sequence.min(self.overdue));
            if sequence != self.next {
                break;
            }
            if calls.len() >= PART_CALLS_MAX {
                self.is_releasing = true;
                return calls;
            }
            self.next = sequence.saturating_add(1);
            let call = entry.remove();
            self.waiting_bytes -= waiting_bytes_of(&call);
            calls.push(call);
        }
        self.is_releasing = false;
        calls
    }

    fn enqueue(&mut self, call: Call) {
        let sequence = call.stamp.sequence;
        // Also a number that was released before, which no helper writes: released numbers are not
        // retained.
        if sequence < self.next {
            self.losses.late += 1;
            return;
        }
        // Rejects numbers that are repeated, and any beyond the limits.
        let bytes = self.waiting_bytes + waiting_bytes_of(&call);
        let has_room = self.waiting.len() < WAITING_CALLS_MAX && bytes <= WAITING_BYTES_MAX;
        if !has_room || self.waiting.contains_key(&sequence) {
            self.losses.invalid += 1;
            return;
        }
        self.waiting_bytes = bytes;
        self.waiting.insert(sequence, call);
    }

    /// Returns the calls that still wait for missing numbers, for a process that has exited.
    pub fn finish(&mut self) -> Vec<Call> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// Counts of lost calls and records.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::atomic::{AtomicU64, Ordering},
    };

    use call_ring::{Group, Kind, Mode, Record, TOTAL_BYTES, operation::apply};

    use super::*;

    struct Ring(Vec<AtomicU64>);

    impl Ring {
        fn new() -> Self {
            let words: Vec<_> = (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
            Memory::create(&words, Mode::Record).unwrap();
            Self(words)
        }

        fn memory(&self) -> Memory<'_> {
            Memory::open(&self.0).unwrap()
        }

        fn copy(&self) -> impl FnMut(usize, &mut [u8]) -> Result<(), Infallible> {
            let memory = self.memory();
            move |offset, bytes| memory.copy_to(offset, bytes)
        }

        fn poll(&self, merge: &mut Merge) -> Vec<Call> {
            let calls = merge.poll(&self.memory(), self.copy()).unwrap();
            self.consume(merge);
            calls
        }

        fn poll_part(&self, merge: &mut Merge) -> Vec<Call> {
            let calls = merge.poll_part(&self.memory(), self.copy()).unwrap();
            self.consume(merge);
            calls
        }

        fn consume(&self, merge: &mut Merge) {
            let operations = merge.consumed(&self.memory());
            assert_eq!(apply(operations.iter().copied(), &self.0), operations.len());
            merge.set_consumed();
            assert_eq!(merge.consumed(&self.memory()), []);
        }

        /// Begins a call: it has its number and is not published yet.
        fn begin(&self, lane: usize) -> Group<'_> {
            let memory = self.memory();
            Group::begin(memory.lane(lane), memory.stamp(0, 1), Kind::Free, 0, [0; 5])
        }
    }

    fn sequences(calls: &[Call]) -> Vec<u64> {
        calls.iter().map(|call| call.stamp.sequence).collect()
    }

    #[test]
    fn calls_of_all_lanes_come_in_the_order_of_their_numbers() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        for lane in [3, 0, 15, 0, 1] {
            ring.begin(lane).publish();
        }
        assert_eq!(sequences(&ring.poll(&mut merge)), [0, 1, 2, 3, 4]);
        assert_eq!(merge.losses(), Losses::default());
    }

    #[test]
    fn calls_read_before_an_error_are_neither_lost_nor_read_again() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        for lane in [0, 1, 0, 1] {
            ring.begin(lane).publish();
        }
        let (mut copy, mut copies) = (ring.copy(), 0);
        let fails_second = |offset, bytes: &mut [u8]| {
            copies += 1;
            if copies == 2 { Err(()) } else { copy(offset, bytes).map_err(|_| ()) }
        };
        assert_eq!(merge.poll_part(&ring.memory(), fails_second), Err(()));
        // The tails in the memory are still at the begin.
        assert_eq!(sequences(&merge.poll_part(&ring.memory(), ring.copy()).unwrap()), [0, 1, 2, 3]);
        assert_eq!((merge.consumed(&ring.memory()).len(), merge.losses()), (2, Losses::default()));
    }

    #[test]
    fn polls_that_are_all_interrupted_reach_every_lane() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let (mut begun, mut released) = (0, 0);
        for _ in 0..400 {
            for lane in [0; 300].into_iter().chain([1, 2, 3]) {
                ring.begin(lane).publish();
                begun += 1;
            }
            let (mut copy, mut copies) = (ring.copy(), 0);
            let fails_third = |offset, bytes: &mut [u8]| {
                copies += 1;
                if copies == 3 { Err(()) } else { copy(offset, bytes).map_err(|_| ()) }
            };
            released += merge.poll_part(&ring.memory(), fails_third).map_or(0, |calls| calls.len());
            ring.consume(&mut merge);
        }
        released += ring.poll(&mut merge).len();
        assert_eq!((released, merge.losses()), (begun, Losses::default()));
    }

    #[test]
    fn calls_wait_for_an_unpublished_one() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let late = ring.begin(0);
        ring.begin(1).publish();
        assert!(ring.poll(&mut merge).is_empty() && ring.poll(&mut merge).is_empty());
        late.publish();
        assert_eq!(sequences(&ring.poll(&mut merge)), [0, 1]);
    }

    #[test]
    fn missing_number_is_skipped_after_three_polls() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let late = ring.begin(0);
        ring.begin(1).publish();
        let polled: Vec<usize> = (0..4).map(|_| ring.poll(&mut merge).len()).collect();
        assert_eq!(polled, [0, 0, 0, 1]);
        // The call arrives after all, too late.
        late.publish();
        assert!(ring.poll(&mut merge).is_empty());
        assert_eq!(merge.losses(), Losses { late: 1, ..Losses::default() });
    }

    #[test]
    fn late_number_is_awaited_after_an_overdue_one_is_skipped() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let _lost = ring.begin(0);
        let polled: Vec<usize> = (0..3).map(|_| ring.poll(&mut merge).len()).collect();
        let late = ring.begin(1);
        ring.begin(2).publish();
        assert_eq!(polled, [0, 0, 0]);
        assert!(ring.poll(&mut merge).is_empty(), "number 0 is passed over, and 1 is not");
        late.publish();
        assert_eq!(sequences(&ring.poll(&mut merge)), [1, 2]);
        assert_eq!(merge.losses(), Losses::default());
    }

    #[test]
    fn calls_of_an_exited_program_do_not_wait() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let _lost = ring.begin(0);
        ring.begin(1).publish();
        assert!(ring.poll(&mut merge).is_empty());
        assert_eq!(sequences(&merge.finish()), [1]);
    }

    #[test]
    fn records_that_no_helper_writes_are_counted_and_bounded() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let lane = ring.memory().lane(0);
        for sequence in [u64::MAX, 7, 7, u64::MAX - 1] {
            let mut record = Record { kind: Kind::Free as u8, ..Record::default() };
            record.stamp.sequence = sequence;
            lane.write(0, record);
            lane.publish(1);
        }
        lane.write(0, Record { kind: 40, ..Record::default() });
        lane.publish(1);
        assert!(ring.poll(&mut merge).is_empty());
        assert_eq!((merge.losses().invalid, merge.losses().unknown), (1, 1));
        // A poll ends, whatever the count of issued numbers in the header.
        ring.0[8].store(u64::MAX, Ordering::Relaxed);
        let polled: Vec<usize> = (0..5).map(|_| ring.poll(&mut merge).len()).collect();
        assert_eq!(polled.iter().sum::<usize>(), 3);
    }

    #[test]
    fn parts_of_a_poll_are_bounded_and_complete() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let _lost = ring.begin(1);
        // Fills the first lane with several parts; at first, its calls have alternate numbers.
        for at in 0..PART_CALLS_MAX * 3 {
            ring.begin(0).publish();
            if at < 512 {
                ring.begin(2).publish();
            }
        }
        let mut parts: Vec<Vec<Call>> = Vec::new();
        for _ in 0..4 {
            parts.push(ring.poll_part(&mut merge));
            while merge.has_more() {
                parts.push(ring.poll_part(&mut merge));
            }
        }
        assert!(parts.iter().all(|calls| calls.len() <= PART_CALLS_MAX));
        let calls: Vec<Call> = parts.into_iter().flatten().collect();
        assert_eq!(sequences(&calls), (1..=PART_CALLS_MAX as u64 * 3 + 512).collect::<Vec<_>>());
        assert_eq!(merge.losses(), Losses::default());
    }

    #[test]
    fn poll_ends_while_the_program_keeps_writing() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let mut parts = 0;
        loop {
            assert!((0..PART_CALLS_MAX * 2).all(|_| ring.begin(0).publish()));
            ring.poll_part(&mut merge);
            parts += 1;
            if !merge.has_more() {
                break;
            }
        }
        assert!(parts <= 20, "{parts} parts, and the first lane holds as many calls as eight");
    }
}
