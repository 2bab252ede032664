//! Layout of a record.
//!
//! | word | content |
//! | --- | --- |
//! | 0 | sequence number, across all lanes |
//! | 1 | time in nanoseconds, `CLOCK_MONOTONIC` |
//! | 2 | kind (8 bits), flags (8), count (16), thread (32) |
//! | 3–7 | words of the kind: see [`crate::kind`] |

/// Words per record.
pub const RECORD_WORDS: usize = 8;
/// Bytes per record: a cache line.
pub const RECORD_BYTES: usize = RECORD_WORDS * 8;

/// Order, time and thread of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Sequence number, across all lanes.
    pub sequence: u64,
    /// Time of the monotonic clock.
    pub time_ns: u64,
    /// Thread id.
    pub thread: u32,
}

/// Record of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Stamp of the call.
    pub stamp: Stamp,
    /// Number of the [`Kind`](crate::Kind).
    pub kind: u8,
    /// Flags of the kind.
    pub flags: u8,
    /// In the first record of a call: records that follow. In a record of pointers: pointers in it.
    pub count: u16,
    /// Words of the kind.
    pub words: [u64; 5],
}

impl Record {
    /// Record from bytes, all of which are valid.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut words = [0; RECORD_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::from_words(words)
    }

    /// Words of the record.
    #[must_use]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let Self { stamp: Stamp { sequence, time_ns, thread }, kind, flags, count, words } = self;
        let [first, second, third, fourth, fifth] = words;
        let head = kind as u64 | (flags as u64) << 8 | (count as u64) << 16 | (thread as u64) << 32;
        [sequence, time_ns, head, first, second, third, fourth, fifth]
    }

    /// Record from words, all of which are valid.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn from_words([sequence, time_ns, head, words @ ..]: [u64; RECORD_WORDS]) -> Self {
        Self {
            stamp: Stamp { sequence, time_ns, thread: (head >> 32) as u32 },
            kind: head as u8,
            flags: (head >> 8) as u8,
            count: (head >> 16) as u16,
            words,
        }
    }
}
