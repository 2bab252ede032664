//! Record as it lies in memory.
//!
//! | word | content |
//! | --- | --- |
//! | 0 | sequence number, over all lanes |
//! | 1 | time in nanoseconds, `CLOCK_MONOTONIC` |
//! | 2 | kind (8 bits), flags (8), a count or device (16), thread (32) |
//! | 3 | stream, as the program names it, or what the kind says |
//! | 4–7 | what the kind says |

/// Words of a record.
pub const RECORD_WORDS: usize = 8;
/// Bytes of a record: a cache line.
pub const RECORD_BYTES: usize = RECORD_WORDS * 8;

/// Record of 64 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Sequence number.
    pub sequence: u64,
    /// Time, of the monotonic clock.
    pub time_ns: u64,
    /// Kind of a call, or of what follows it.
    pub kind: u8,
    /// Flags of the kind.
    pub flags: u8,
    /// Count or device of the kind.
    pub count: u16,
    /// Thread of the program.
    pub thread: u32,
    /// What the kind says.
    pub words: [u64; 5],
}

impl Record {
    /// As words of memory.
    #[must_use]
    pub const fn to_words(self) -> [u64; RECORD_WORDS] {
        let [first, second, third, fourth, fifth] = self.words;
        let head = self.kind as u64 | (self.flags as u64) << 8 | (self.count as u64) << 16 | (self.thread as u64) << 32;
        [self.sequence, self.time_ns, head, first, second, third, fourth, fifth]
    }

    /// Of words of memory; any words are a record.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn from_words([sequence, time_ns, head, words @ ..]: [u64; RECORD_WORDS]) -> Self {
        Self {
            sequence,
            time_ns,
            kind: head as u8,
            flags: (head >> 8) as u8,
            count: (head >> 16) as u16,
            thread: (head >> 32) as u32,
            words,
        }
    }
}
