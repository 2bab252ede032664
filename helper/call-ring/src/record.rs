//! Record as it lies in memory.
//!
//! | word | content |
//! | --- | --- |
//! | 0 | sequence number, over all lanes |
//! | 1 | time in nanoseconds, `CLOCK_MONOTONIC` |
//! | 2 | kind (8 bits), flags (8), a count (16), thread (32) |
//! | 3–7 | what the kind says |

/// Words of a record.
pub const RECORD_WORDS: usize = 8;
/// Bytes of a record: a cache line.
pub const RECORD_BYTES: usize = RECORD_WORDS * 8;

/// When, and by whom, a call was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// Place of the call among all of them.
    pub sequence: u64,
    /// Time, of the monotonic clock.
    pub time_ns: u64,
    /// Thread of the program.
    pub thread: u32,
}

/// Record of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// That of the call.
    pub stamp: Stamp,
    /// Kind of a call, or of what follows it.
    pub kind: u8,
    /// Flags of the kind.
    pub flags: u8,
    /// Of the first record of a call, those that follow it; of pointers, how many.
    pub count: u16,
    /// What the kind says.
    pub words: [u64; 5],
}

impl Record {
    /// Of bytes of memory; any bytes are a record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut words = [0; RECORD_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::from_words(words)
    }

    /// As words of memory.
    #[must_use]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let Self { stamp: Stamp { sequence, time_ns, thread }, kind, flags, count, words } = self;
        let [first, second, third, fourth, fifth] = words;
        let head = kind as u64 | (flags as u64) << 8 | (count as u64) << 16 | (thread as u64) << 32;
        [sequence, time_ns, head, first, second, third, fourth, fifth]
    }

    /// Of words of memory; any words are a record.
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
