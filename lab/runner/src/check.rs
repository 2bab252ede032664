//! What memory must hold, and whether it does: every word's last written value is remembered, and every word read is compared with it.

use serde::{Deserialize, Serialize};

use crate::scenario::order::mix;

/// The values an allocation must hold: 0 where nothing was written. Untouched parts cost no memory.
pub(crate) struct Shadow(Vec<u64>);

/// What was compared, and what was wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checked {
    /// Words that steps read and compared, the same word as often as it was read.
    pub(crate) words_read: u64,
    /// Bytes compared by the last verification, which covers every allocation.
    pub(crate) verified_bytes: u64,
    /// Words that did not hold what they must.
    pub(crate) mismatches: u64,
    /// The first of them.
    pub(crate) first_mismatch: Option<Mismatch>,
}

/// A word that did not hold what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mismatch {
    pub(crate) allocation: String,
    pub(crate) offset_bytes: u64,
    pub(crate) address: String,
    /// Who read it: `cpu` or `gpu`.
    pub(crate) reader: String,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// The value that the write number `write` of process number `process` puts at `address`: never that of another write, and never 0.
pub(crate) const fn value(process: u64, address: u64, write: u64) -> u64 {
    mix(mix(process << 48 ^ write) ^ address) | 1
}

// === impl Shadow ===

impl Shadow {
    pub(crate) fn new(words: usize) -> Self {
        // Zeroed memory comes from the kernel page by page, at the first touch.
        Self(vec![0; words])
    }

    pub(crate) fn words(&self) -> usize {
        self.0.len()
    }

    /// What the word must hold. Beyond the end nothing was ever written.
    pub(crate) fn expected(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    pub(crate) fn written(&mut self, word: usize, value: u64) {
        if let Some(remembered) = self.0.get_mut(word) {
            *remembered = value;
        }
    }
}

// === impl Checked ===

impl Checked {
    /// Compare one word; `describe` is asked only if it is wrong.
    pub(crate) fn compare(&mut self, expected: u64, found: u64, describe: impl FnOnce() -> Mismatch) {
        if expected != found {
            self.mismatches += 1;
            self.first_mismatch.get_or_insert_with(describe);
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
        let mut shadow = Shadow::new(4);
        assert_eq!(shadow.expected(2), 0);
        shadow.written(2, 5);
        shadow.written(2, 6);
        assert_eq!((shadow.expected(2), shadow.expected(3)), (6, 0));
    }

    #[test]
    fn mismatches_are_counted_and_the_first_is_kept() {
        let mismatch = |offset_bytes| Mismatch {
            allocation: "a".to_owned(),
            offset_bytes,
            address: "0x10".to_owned(),
            reader: "gpu".to_owned(),
            expected: "0x1".to_owned(),
            found: "0x2".to_owned(),
        };
        let mut checked = Checked::default();
        checked.compare(1, 1, || panic!("equal"));
        checked.compare(1, 2, || mismatch(8));
        checked.compare(1, 3, || mismatch(16));
        assert_eq!(checked.mismatches, 2);
        let first = checked.first_mismatch.unwrap();
        assert_eq!(first.to_string(), "a+8 (0x10) held 0x2 and not 0x1 when the gpu read it");
    }
}
