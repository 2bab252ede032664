//! Expected contents of memory: the last written value of every word is recorded, and every word
//! read is compared with it.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::{
    mix::mix,
    sys::{memory::zeroed, tally::Tally},
};

/// Expected values of an allocation: 0 where nothing was written. Untouched parts cost no memory.
pub(crate) struct Shadow(Box<[AtomicU64]>);

/// Amount of compared memory, and mismatches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Checked {
    pub(crate) words_read: u64,
    pub(crate) verified_bytes: u64,
    pub(crate) mismatches: u64,
    /// First mismatch, if the process lived to report it.
    pub(crate) first_mismatch: Option<Mismatch>,
}

/// Word with an unexpected value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mismatch {
    pub(crate) allocation: String,
    pub(crate) offset_bytes: u64,
    pub(crate) address: String,
    /// Processor that read it: `cpu` or `gpu`.
    pub(crate) reader: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// Value that write number `write` of process number `process` puts at `address`: unique among
/// writes, and never 0.
pub(crate) const fn value(process: u64, address: u64, write: u64) -> u64 {
    mix(mix(process << 48 ^ write) ^ address) | 1
}

// === impl Shadow ===

impl Shadow {
    pub(crate) fn new(words: usize) -> Self {
        Self(zeroed(words))
    }

    pub(crate) fn words(&self) -> usize {
        self.0.len()
    }

    /// Expected value of a word; 0 beyond the end, where nothing was ever written.
    pub(crate) fn expected(&self, word: usize) -> u64 {
        self.0.get(word).map_or(0, |recorded| recorded.load(Ordering::Relaxed))
    }

    pub(crate) fn record_write(&self, word: usize, value: u64) {
        if let Some(recorded) = self.0.get(word) {
            recorded.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn record_add(&self, word: usize, addend: u64) {
        if let Some(recorded) = self.0.get(word) {
            recorded.fetch_add(addend, Ordering::Relaxed);
        }
    }
}

// === impl Checked ===

impl Checked {
    /// Counts up to now.
    pub(crate) fn of(tally: &Tally) -> Self {
        Self {
            words_read: tally.words_read.load(Ordering::Relaxed),
            verified_bytes: tally.verified_bytes.load(Ordering::Relaxed),
            mismatches: tally.mismatches.load(Ordering::Relaxed),
            first_mismatch: None,
        }
    }
}

// === impl Mismatch ===

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { allocation, offset_bytes, address, reader, expected, found } = self;
        write!(f, "{allocation}+{offset_bytes} ({address}) held {found} and not {expected} when the {reader} read it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_has_a_value_of_its_own() {
        let mut values: Vec<_> = (1..4)
            .flat_map(|process| (0..50).flat_map(move |write| (0..50).map(move |word| value(process, word * 8, write))))
            .collect();
        assert!(values.iter().all(|value| *value != 0));
        let count = values.len();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), count);
    }

    #[test]
    fn a_shadow_remembers_the_last_write_and_zero_before_it() {
        let shadow = Shadow::new(4);
        assert_eq!(shadow.expected(2), 0);
        shadow.record_write(2, 5);
        shadow.record_write(2, 6);
        shadow.record_add(2, u64::MAX);
        assert_eq!((shadow.expected(2), shadow.expected(3), shadow.expected(4)), (5, 0, 0));
    }
}
