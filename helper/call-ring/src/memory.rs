//! Header of the shared memory, and layout of its lanes.
//!
//! | words | content |
//! | --- | --- |
//! | 0 | [`MAGIC`] |
//! | 1 | major version, minor version, each 32 bits |
//! | 2 | size of the memory in bytes |
//! | 3 | count of lanes |
//! | 8 | sequence number of the next record; a cache line of its own |
//! | 16 | [`Mode`], written by uvmd; a cache line of its own |
//! | 24 | calls not recorded, for other reasons than a full lane |
//! | 25 | count of the program's seccomp filters when the helper started; `u64::MAX` if unknown |
//! | 32... | two cache lines for each lane: see [`crate::lane`] |
//! | 512... | commands: see [`crate::command`] |
//!
//! The lanes' records follow at [`HEADER_BYTES`], in the order of the lanes. Lane 0 is the largest: the
//! first thread that calls the driver takes it.

use core::{convert::Infallible, ffi::CStr, fmt};

use crate::{
    command::{COMMAND_WORDS, COMMANDS, Commands},
    lane::Lane,
    operation::Operation,
    record::{RECORD_BYTES, Stamp},
    sync::{AtomicU64, Ordering},
    word::{self, Word, copyable},
};

/// Name of the memory file, by which uvmd finds it among the mappings of a process.
pub const NAME: &CStr = c"uvmd-ring";
/// First word: `UVMDRING`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"UVMDRING");
/// Major version of the layout. Memory of another major version is rejected. A later minor version may
/// add kinds of records, which the reader skips and counts.
pub const MAJOR: u32 = 1;
/// Minor version. From 1: commands. From 2: launch numbers, and a separate memory for
/// [plans](crate::plan). From 3: discards and host nodes.
pub const MINOR: u32 = 3;
/// Count of lanes.
pub const LANES: usize = 16;
/// Number of lanes with a single owner. Further threads share the other lanes: for each call, they lock a
/// free lane.
pub const DEDICATED_LANES: usize = 12;
/// Size of the header.
pub const HEADER_BYTES: usize = 8192;
/// Words of the header.
pub const HEADER_WORDS: usize = HEADER_BYTES / WORD_BYTES;
/// Size of lane 0's records.
pub const FIRST_LANE_BYTES: usize = 1 << 20;
/// Size of the records of each other lane.
pub const LANE_BYTES: usize = 64 << 10;
/// Size of the whole memory.
pub const TOTAL_BYTES: usize = HEADER_BYTES + FIRST_LANE_BYTES + (LANES - 1) * LANE_BYTES;

const WORD_BYTES: usize = 8;
const SEQUENCE: usize = 8;
const MODE: usize = 16;
const UNRECORDED: usize = 24;
const FILTERS: usize = 25;
const LANE_HEADERS: usize = 32;
const LANE_HEADER_WORDS: usize = 16;

const _: () = assert!(LANE_HEADERS + LANES * LANE_HEADER_WORDS <= COMMANDS, "lanes end before the commands");
const _: () = assert!((COMMANDS + COMMAND_WORDS) * WORD_BYTES <= HEADER_BYTES, "commands fit the header");
const _: () =
    assert!(FIRST_LANE_BYTES.is_power_of_two() && LANE_BYTES.is_power_of_two(), "positions are masked by the capacity");
const _: () = assert!(TOTAL_BYTES <= 8 << 20, "the memory is charged to the program");

/// Mode of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Pass calls through.
    Off,
    /// Record calls.
    Record,
    /// Record calls, and carry out commands.
    Act,
}

/// Reason why a shared memory is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// Wrong size.
    Size {
        /// Size found.
        bytes: usize,
        /// Size expected.
        expected: usize,
    },
    /// Wrong magic number or layout.
    Header,
    /// Unsupported major version.
    Version {
        /// Major version found.
        major: u32,
    },
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { bytes, expected } => write!(f, "{bytes} bytes instead of {expected}"),
            Self::Header => f.write_str("unknown header"),
            Self::Version { major } => write!(f, "unsupported version {major}"),
        }
    }
}

impl core::error::Error for LayoutError {}

/// Shared memory of the ring, or a copy of its words.
#[derive(Debug)]
pub struct Memory<'a, W = AtomicU64> {
    words: &'a [W],
}

copyable!(Memory);

impl<'a> Memory<'a> {
    /// Creates a ring in zeroed memory.
    ///
    /// # Errors
    /// If the memory has the wrong size.
    pub fn create(words: &'a [AtomicU64], mode: Mode) -> Result<Self, LayoutError> {
        let memory = Self::from_words(words)?;
        memory.store(1, u64::from(MAJOR) << 32 | u64::from(MINOR));
        memory.store(2, TOTAL_BYTES as u64);
        memory.store(3, LANES as u64);
        memory.store(MODE, mode as u64);
        // Last, so that a reader that sees the magic number sees the rest.
        memory.store(0, MAGIC);
        Ok(memory)
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    /// Sets the mode of the helper.
    pub fn set_mode(&self, mode: Mode) {
        self.store(MODE, mode as u64);
    }

    /// Sets the count of seccomp filters when the helper started; `None` if it is unknown.
    pub fn set_filters(&self, filters: Option<u64>) {
        self.store(FILTERS, filters.unwrap_or(u64::MAX));
    }

    /// Stamp of a call, with the next sequence number.
    #[must_use]
    pub fn stamp(&self, time_ns: u64, thread: u32) -> Stamp {
        let sequence = self.words.get(SEQUENCE).map_or(0, |word| word.fetch_add(1, Ordering::Relaxed));
        Stamp { sequence, time_ns, thread }
    }

    /// Counts a call that is not recorded for another reason than a full lane.
    pub fn count_unrecorded(&self) {
        if let Some(word) = self.words.get(UNRECORDED) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Shared lanes, in an order that starts at another lane for each thread.
    pub fn shared_lanes(&self, thread: u32) -> impl Iterator<Item = Lane<'a>> + use<'a> {
        let memory = *self;
        let shared = LANES - DEDICATED_LANES;
        (0..shared).map(move |at| memory.lane(DEDICATED_LANES + (at + thread as usize) % shared))
    }

    /// Copies bytes at an offset of the memory. Bytes outside of the mapping are left unchanged.
    ///
    /// # Errors
    /// Never.
    pub fn copy_to(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<(), Infallible> {
        let words = self.words.get(offset_bytes / WORD_BYTES..).unwrap_or_default();
        for (word, to) in words.iter().zip(bytes.as_chunks_mut::<WORD_BYTES>().0) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        Ok(())
    }
}

impl Memory<'_, u64> {
    /// Sets the mode of the helper.
    #[must_use]
    pub const fn set_mode(&self, mode: Mode) -> Operation {
        Operation::Store { at: MODE, value: mode as u64 }
    }

    /// Changes the mode of the helper; fails if it has changed.
    #[must_use]
    pub fn change_mode(&self, mode: Mode) -> Operation {
        Operation::CompareExchange { at: MODE, from: self.load(MODE), to: mode as u64 }
    }
}

impl<'a, W: Word> Memory<'a, W> {
    /// Opens another process's ring, of which the header ([`HEADER_BYTES`]) or all is there.
    ///
    /// # Errors
    /// If it is not a ring of this version.
    pub fn open(words: &'a [W]) -> Result<Self, LayoutError> {
        let is_header = words.len() == HEADER_WORDS;
        let memory = if is_header { Self { words } } else { Self::from_words(words)? };
        if memory.load(0) != MAGIC {
            return Err(LayoutError::Header);
        }
        let major = (memory.load(1) >> 32) as u32;
        if major != MAJOR {
            return Err(LayoutError::Version { major });
        }
        if memory.load(2) != TOTAL_BYTES as u64 || memory.load(3) != LANES as u64 {
            return Err(LayoutError::Header);
        }
        Ok(memory)
    }

    fn from_words(words: &'a [W]) -> Result<Self, LayoutError> {
        let bytes = words.len().saturating_mul(WORD_BYTES);
        if bytes == TOTAL_BYTES { Ok(Self { words }) } else { Err(LayoutError::Size { bytes, expected: TOTAL_BYTES }) }
    }

    fn load(&self, at: usize) -> u64 {
        word::load(self.words, at)
    }

    /// Mode of the helper. Unknown values count as [`Mode::Off`].
    #[must_use]
    pub fn mode(&self) -> Mode {
        let word = self.load(MODE);
        let known = [Mode::Record, Mode::Act].into_iter().find(|mode| *mode as u64 == word);
        known.unwrap_or(Mode::Off)
    }

    /// Count of the program's seccomp filters when the helper started.
    #[must_use]
    pub fn filters(&self) -> Option<u64> {
        Some(self.load(FILTERS)).filter(|filters| *filters != u64::MAX)
    }

    /// Whether the helper supports commands.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        self.load(1) & u64::from(u32::MAX) >= 1
    }

    /// Command slot.
    #[must_use]
    pub fn commands(&self) -> Commands<'a, W> {
        Commands::new(self.words.get(COMMANDS..COMMANDS + COMMAND_WORDS).unwrap_or_default(), COMMANDS)
    }

    /// Sequence number of the next record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.load(SEQUENCE)
    }

    /// Calls not recorded, for other reasons than a full lane.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.load(UNRECORDED)
    }

    /// Lane of this number, which is clamped to the last one.
    #[must_use]
    pub fn lane(&self, number: usize) -> Lane<'a, W> {
        let number = number.min(LANES - 1);
        let header = LANE_HEADERS + number * LANE_HEADER_WORDS;
        let (begin, bytes) = match number.checked_sub(1) {
            None => (HEADER_BYTES, FIRST_LANE_BYTES),
            Some(before) => (HEADER_BYTES + FIRST_LANE_BYTES + before * LANE_BYTES, LANE_BYTES),
        };
        let slice = |from: usize, count: usize| self.words.get(from..from + count).unwrap_or_default();
        let records = slice(begin / WORD_BYTES, bytes / WORD_BYTES);
        Lane::new(slice(header, LANE_HEADER_WORDS), header, records, begin, bytes / RECORD_BYTES)
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = Lane<'a, W>> + use<'a, W> {
        let memory = *self;
        (0..LANES).map(move |number| memory.lane(number))
    }
}
