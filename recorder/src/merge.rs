//! Calls of all lanes of a ring in the order of their sequence numbers.
//!
//! A thread takes a number, and publishes its call a little later: a number that is missing may
//! still come. One that was given out before the poll before last, and has not come since, was of a
//! call that found its lane full.

use std::collections::BTreeMap;

use call_ring::{
    Memory,
    call::{Call, Read, read},
};

/// Most calls that wait for missing numbers: more than a ring holds. Of a helper's ring there are
/// never so many.
const WAITING_MAX: usize = 1 << 16;
/// Most calls of a lane taken in a poll, so that a program that writes all the time ends none.
const CALLS_MAX: usize = 1 << 14;

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
    /// Numbers given out before the last polls, the latest first: missing ones are waited for so
    /// many polls.
    given_out: [u64; 3],
    losses: Losses,
}

impl Merge {
    /// Takes what the lanes have, and returns the calls whose turn it is.
    pub fn poll(&mut self, memory: &Memory<'_>) -> Vec<Call> {
        let given_out = memory.sequence();
        for lane in memory.lanes() {
            for _ in 0..CALLS_MAX {
                match read(&lane) {
                    None => break,
                    Some(Read::Call(call)) => self.take(call),
                    Some(Read::Unknown) => self.losses.unknown += 1,
                    Some(Read::Invalid) => self.losses.invalid += 1,
                }
            }
        }
        self.losses.dropped =
            self.losses.dropped.max(memory.lanes().map(|lane| lane.dropped()).fold(0, u64::saturating_add));
        self.losses.unrecorded = self.losses.unrecorded.max(memory.unrecorded());
        let [first, second, overdue] = self.given_out;
        self.given_out = [given_out, first, second];
        let mut calls = Vec::new();
        while let Some(entry) = self.waiting.first_entry() {
            let sequence = *entry.key();
            let is_next = sequence == self.next;
            let is_overdue = self.next < overdue;
            if !is_next && !is_overdue {
                break;
            }
            self.next = sequence.saturating_add(1);
            calls.push(entry.remove());
        }
        calls
    }

    fn take(&mut self, call: Call) {
        let sequence = call.stamp.sequence;
        // Numbers that were waited for long enough, that come twice, or that are far ahead.
        if sequence < self.next || self.waiting.len() >= WAITING_MAX || self.waiting.contains_key(&sequence) {
            self.losses.invalid += 1;
            return;
        }
        self.waiting.insert(sequence, call);
    }

    /// Returns the calls that still wait for others: of a program that has ended, none come.
    pub fn finish(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// What is not among the calls.
    #[must_use]
    pub const fn losses(&self) -> Losses {
        self.losses
    }
}
