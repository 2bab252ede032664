//! Calls of all lanes of a ring in the order of their sequence numbers.
//!
//! A thread takes a number, and publishes its call a little later: a number that is missing may
//! still come. One that was given out three polls ago, and has not come since, was of a call that did
//! not fit into its lane.

use std::collections::BTreeMap;

use call_ring::{
    Memory,
    call::{Call, Read, Reader},
};

use crate::window::bytes_of;

/// Most calls that wait for missing numbers: more than a ring holds. Of a helper's ring there are
/// never so many.
const WAITING_MAX: usize = 1 << 16;
/// Most bytes of these, likewise.
const WAITING_BYTES_MAX: usize = 8 << 20;
/// Most calls that a part of a poll returns. It takes as many records, and the rest of a lane: some
/// milliseconds of work.
const PART_MAX: usize = 2048;

/// Bytes of a call that waits. Nodes of the map are half full.
fn waiting_bytes_of(call: &Call) -> usize {
    bytes_of(call) + size_of::<Call>()
}

/// Counts of what is not among the calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Calls that found their lane full.
    pub dropped: u64,
    /// Calls that could not be recorded for another reason.
    pub unrecorded: u64,
    /// Records of kinds that this version does not know.
    pub unknown: u64,
    /// Records that no helper writes.
    pub invalid: u64,
}

/// Calls of a ring, merged.
#[derive(Debug, Default)]
pub struct Merge {
    /// Number of the next call.
    next: u64,
    waiting: BTreeMap<u64, Call>,
    waiting_bytes: usize,
    /// Numbers given out before the last polls, the latest first: missing ones are waited for so
    /// many polls.
    given_out: [u64; 3],
    /// Missing numbers below this one are waited for no longer.
    overdue: u64,
    /// Poll that is not over.
    pass: Option<Pass>,
    /// Whether there may be calls whose turn it is.
    is_releasing: bool,
    losses: Losses,
}

/// Poll of all lanes, one after another.
#[derive(Clone, Copy, Debug)]
struct Pass {
    /// Numbers given out before it.
    given_out: u64,
    /// Next lane.
    lane: usize,
    /// Whether it is between two polls.
    is_early: bool,
}

impl Merge {
    /// Takes what the lanes have, and returns the calls whose turn it is. `copy` copies bytes from a place
    /// in the memory on.
    ///
    /// # Errors
    /// That of `copy`.
    pub fn poll<E>(
        &mut self,
        memory: &Memory<'_>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<Vec<Call>, E> {
        let mut calls = self.poll_part(memory, &mut copy, false)?;
        while self.has_more() {
            calls.append(&mut self.poll_part(memory, &mut copy, false)?);
        }
        Ok(calls)
    }

    /// A part of a poll, or of an early one, between two polls: missing numbers are waited for as long as
    /// without that. The next part goes on where it ended.
    ///
    /// # Errors
    /// That of `copy`.
    pub fn poll_part<E>(
        &mut self,
        memory: &Memory<'_>,
        copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        is_early: bool,
    ) -> Result<Vec<Call>, E> {
        // Calls whose turn it is come first: they take memory.
        if !self.is_releasing {
            let new = Pass { given_out: memory.sequence(), lane: 0, is_early };
            let pass = self.pass.take().unwrap_or(new);
            self.take_some(memory, copy, Pass { is_early: is_early && pass.is_early, ..pass })?;
        }
        Ok(self.release())
    }

    /// Whether the poll of the last part is not over.
    #[must_use]
    pub const fn has_more(&self) -> bool {
        self.pass.is_some() || self.is_releasing
    }

    /// Takes records from where a poll is.
    fn take_some<E>(
        &mut self,
        memory: &Memory<'_>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        mut pass: Pass,
    ) -> Result<(), E> {
        let (mut reader, mut taken) = (Reader::default(), 0);
        for lane in memory.lanes().skip(pass.lane) {
            if taken >= PART_MAX {
                self.pass = Some(pass);
                return Ok(());
            }
            reader.read(&lane, &mut copy, |read| {
                taken += 1;
                match read {
                    Read::Call(call) => self.take(call),
                    Read::Unknown => self.losses.unknown += 1,
                    Read::Invalid => self.losses.invalid += 1,
                }
            })?;
            pass.lane += 1;
        }
        if !pass.is_early {
            let [first, second, overdue] = self.given_out;
            self.given_out = [pass.given_out, first, second];
            self.overdue = overdue;
        }
        self.losses.dropped =
            self.losses.dropped.max(memory.lanes().map(|lane| lane.dropped()).fold(0, u64::saturating_add));
        self.losses.unrecorded = self.losses.unrecorded.max(memory.unrecorded());
        Ok(())
    }

    /// Calls whose turn it is.
    fn release(&mut self) -> Vec<Call> {
        let mut calls = Vec::new();
        while let Some(entry) = self.waiting.first_entry() {
            let sequence = *entry.key();
            // Those that are overdue are waited for no longer; later ones are.
            self.next = self.next.max(sequence.min(self.overdue));
            if sequence != self.next {
                break;
            }
            if calls.len() >= PART_MAX {
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

    fn take(&mut self, call: Call) {
        let sequence = call.stamp.sequence;
        // Numbers that were waited for long enough, that come twice, or that are far ahead.
        let bytes = self.waiting_bytes + waiting_bytes_of(&call);
        let has_room = self.waiting.len() < WAITING_MAX && bytes <= WAITING_BYTES_MAX;
        if sequence < self.next || !has_room || self.waiting.contains_key(&sequence) {
            self.losses.invalid += 1;
            return;
        }
        self.waiting_bytes = bytes;
        self.waiting.insert(sequence, call);
    }

    /// Returns the calls that still wait for others: of a program that has ended, none come.
    pub fn finish(&mut self) -> Vec<Call> {
        self.waiting_bytes = 0;
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// What is not among the calls.
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

    use call_ring::{Group, Kind, Mode, Record, TOTAL_BYTES};

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
            move |place, bytes| memory.copy_to(place, bytes)
        }

        fn poll(&self, merge: &mut Merge) -> Vec<Call> {
            merge.poll(&self.memory(), self.copy()).unwrap()
        }

        fn poll_early(&self, merge: &mut Merge) -> Vec<Call> {
            let calls = merge.poll_part(&self.memory(), self.copy(), true).unwrap();
            assert!(!merge.has_more());
            calls
        }

        fn poll_part(&self, merge: &mut Merge) -> Vec<Call> {
            merge.poll_part(&self.memory(), self.copy(), false).unwrap()
        }

        /// A call that took its number and is not published yet.
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
    fn calls_wait_for_one_that_is_being_written() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let late = ring.begin(0);
        ring.begin(1).publish();
        assert!(ring.poll(&mut merge).is_empty() && ring.poll(&mut merge).is_empty());
        late.publish();
        assert_eq!(sequences(&ring.poll(&mut merge)), [0, 1]);
    }

    #[test]
    fn number_that_never_comes_is_passed_over_after_three_polls() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let late = ring.begin(0);
        ring.begin(1).publish();
        let polled: Vec<usize> = (0..4).map(|_| ring.poll(&mut merge).len()).collect();
        assert_eq!(polled, [0, 0, 0, 1]);
        // It comes all the same, and its turn is over.
        late.publish();
        assert!(ring.poll(&mut merge).is_empty());
        assert_eq!(merge.losses().invalid, 1);
    }

    #[test]
    fn polls_between_wait_for_missing_numbers_no_shorter() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let late = ring.begin(0);
        ring.begin(1).publish();
        assert!((0..100).all(|_| ring.poll_early(&mut merge).is_empty()));
        late.publish();
        assert_eq!(sequences(&ring.poll_early(&mut merge)), [0, 1]);
        let _lost = ring.begin(0);
        ring.begin(1).publish();
        let polled: Vec<usize> = (0..4).map(|_| ring.poll(&mut merge).len()).collect();
        assert_eq!(polled, [0, 0, 0, 1]);
        ring.begin(1).publish();
        assert_eq!(sequences(&ring.poll_early(&mut merge)), [4]);
    }

    #[test]
    fn number_that_is_not_overdue_is_waited_for_beside_one_that_is() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let _lost = ring.begin(0);
        let polled: Vec<usize> = (0..3).map(|_| ring.poll(&mut merge).len()).collect();
        let late = ring.begin(1);
        ring.begin(2).publish();
        assert_eq!(polled, [0, 0, 0]);
        assert!(ring.poll(&mut merge).is_empty(), "number 0 is passed over, and 1 is not");
        late.publish();
        assert_eq!(sequences(&ring.poll(&mut merge)), [1, 2]);
        assert_eq!(merge.losses().invalid, 0);
    }

    #[test]
    fn calls_of_an_exited_program_wait_for_none() {
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
        // Whatever the header says was given out, each poll ends.
        ring.0[8].store(u64::MAX, Ordering::Relaxed);
        let polled: Vec<usize> = (0..5).map(|_| ring.poll(&mut merge).len()).collect();
        assert_eq!(polled.iter().sum::<usize>(), 3);
    }

    #[test]
    fn parts_of_a_poll_are_bounded_and_together_what_the_poll_is() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let _lost = ring.begin(1);
        // A full first lane, whose calls have every other number.
        for at in 0..PART_MAX * 3 {
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
        assert!(parts.iter().all(|calls| calls.len() <= PART_MAX));
        let calls: Vec<Call> = parts.into_iter().flatten().collect();
        assert_eq!(sequences(&calls), (1..=PART_MAX as u64 * 3 + 512).collect::<Vec<_>>());
        assert_eq!(merge.losses(), Losses::default());
    }

    #[test]
    fn program_that_writes_all_the_time_ends_no_poll_and_no_part() {
        let (ring, mut merge) = (Ring::new(), Merge::default());
        let mut parts = 0;
        loop {
            assert!((0..PART_MAX * 2).all(|_| ring.begin(0).publish()));
            ring.poll_part(&mut merge);
            parts += 1;
            if !merge.has_more() {
                break;
            }
        }
        assert!(parts <= 20, "{parts} parts, and the first lane holds as many calls as eight");
    }
}
