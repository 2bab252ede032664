//! Header and lanes of the shared memory.
//!
//! | words | content |
//! | --- | --- |
//! | 0 | [`MAGIC`] |
//! | 1 | major version, minor version, each 32 bits |
//! | 2 | bytes of the whole |
//! | 3 | lanes |
//! | 8 | sequence number of the next record; a cache line of its own |
//! | 16 | [`Mode`], written by uvmd; a cache line of its own |
//! | 24 | calls that were not recorded, for any reason but a full lane |
//! | 25 | seccomp filters of the program when the helper started; the largest number if they are unknown |
//! | 32... | per lane two cache lines: see [`crate::lane`] |
//! | 512... | commands: see [`crate::command`] |
//!
//! The records of the lanes follow, at [`HEADER_BYTES`]: those of lane 0, which a program's first
//! thread has, then those of the others.

use core::{
    convert::Infallible,
    ffi::CStr,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    command::{COMMAND_WORDS, COMMANDS, Commands},
    lane::Lane,
    record::{RECORD_BYTES, Stamp},
};

/// Name of the memory, by which uvmd knows it among the mappings of a process.
pub const NAME: &CStr = c"uvmd-ring";
/// First word: `UVMDRING`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"UVMDRING");
/// Version of the layout. Another major one is not read; a later minor one has more kinds of
/// records, which are skipped and counted.
pub const MAJOR: u32 = 1;
/// See [`MAJOR`]. From 1 on, helpers carry out commands; from 2 on, launches are numbered, and there
/// is a memory for [plans](crate::plan) beside the ring.
pub const MINOR: u32 = 2;
/// Lanes.
pub const LANES: usize = 16;
/// Lanes that a thread has for itself. Threads beyond share the others, and take for each call one that
/// no other thread is writing to.
pub const OWN_LANES: usize = 12;
/// Bytes before the first record.
pub const HEADER_BYTES: usize = 8192;
/// Bytes of records of lane 0, of a program's first thread.
pub const FIRST_LANE_BYTES: usize = 1 << 20;
/// Bytes of records of each other lane.
pub const LANE_BYTES: usize = 64 << 10;
/// Bytes of the whole memory.
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
const _: () = assert!(FIRST_LANE_BYTES.is_power_of_two() && LANE_BYTES.is_power_of_two(), "positions are masked");
const _: () = assert!(TOTAL_BYTES <= 8 << 20, "the program pays for it");

/// What the helper shall do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Pass calls through.
    Off,
    /// Record calls.
    Record,
    /// Record calls, and carry out commands.
    Act,
}

/// Reason why memory is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Another size than that of such memory.
    Size {
        /// Bytes.
        bytes: usize,
        /// Bytes of such memory.
        expected: usize,
    },
    /// Another magic, or lanes that differ.
    Header,
    /// Another major version.
    Version {
        /// Major version there.
        major: u32,
    },
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { bytes, expected } => write!(f, "{bytes} bytes instead of {expected}"),
            Self::Header => f.write_str("no header of a ring"),
            Self::Version { major } => write!(f, "version {major} instead of {MAJOR}"),
        }
    }
}

impl core::error::Error for Invalid {}

/// The shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Memory<'a> {
    /// Makes a ring of memory that is all zeros.
    ///
    /// # Errors
    /// If the memory has another size.
    pub fn create(words: &'a [AtomicU64], mode: Mode) -> Result<Self, Invalid> {
        let memory = Self::of(words)?;
        memory.store(1, u64::from(MAJOR) << 32 | u64::from(MINOR));
        memory.store(2, TOTAL_BYTES as u64);
        memory.store(3, LANES as u64);
        memory.store(MODE, mode as u64);
        // Last: whoever sees it sees the rest.
        memory.store(0, MAGIC);
        Ok(memory)
    }

    /// Opens a ring that another process made, by its header of [`HEADER_BYTES`], or by the whole.
    ///
    /// # Errors
    /// If it is none, or one of another version.
    pub fn open(words: &'a [AtomicU64]) -> Result<Self, Invalid> {
        let is_header = words.len().saturating_mul(WORD_BYTES) == HEADER_BYTES;
        let memory = if is_header { Self { words } } else { Self::of(words)? };
        if memory.load(0) != MAGIC {
            return Err(Invalid::Header);
        }
        let major = (memory.load(1) >> 32) as u32;
        if major != MAJOR {
            return Err(Invalid::Version { major });
        }
        if memory.load(2) != TOTAL_BYTES as u64 || memory.load(3) != LANES as u64 {
            return Err(Invalid::Header);
        }
        Ok(memory)
    }

    fn of(words: &'a [AtomicU64]) -> Result<Self, Invalid> {
        let bytes = words.len().saturating_mul(WORD_BYTES);
        if bytes == TOTAL_BYTES { Ok(Self { words }) } else { Err(Invalid::Size { bytes, expected: TOTAL_BYTES }) }
    }

    fn load(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Release);
        }
    }

    /// What the helper shall do. Anything unknown is off.
    #[must_use]
    pub fn mode(&self) -> Mode {
        let word = self.load(MODE);
        let known = [Mode::Record, Mode::Act].into_iter().find(|mode| *mode as u64 == word);
        known.unwrap_or(Mode::Off)
    }

    /// Tells the helper what to do.
    pub fn set_mode(&self, mode: Mode) {
        self.store(MODE, mode as u64);
    }

    /// Has the helper act, if it is not off: whoever switched it off keeps it off. Whether it acts.
    #[must_use]
    pub fn act(&self) -> bool {
        let is_off = self.mode() == Mode::Off;
        if !is_off {
            self.set_mode(Mode::Act);
        }
        !is_off
    }

    /// Sets the number of seccomp filters when the helper started; `None` if it is unknown.
    pub fn set_filters(&self, filters: Option<u64>) {
        self.store(FILTERS, filters.unwrap_or(u64::MAX));
    }

    /// Seccomp filters of the program when the helper started.
    #[must_use]
    pub fn filters(&self) -> Option<u64> {
        Some(self.load(FILTERS)).filter(|filters| *filters != u64::MAX)
    }

    /// Whether the helper knows commands.
    #[must_use]
    pub fn has_commands(&self) -> bool {
        self.load(1) & u64::from(u32::MAX) >= 1
    }

    /// Place of the command.
    #[must_use]
    pub fn commands(&self) -> Commands<'a> {
        Commands::new(self.words.get(COMMANDS..COMMANDS + COMMAND_WORDS).unwrap_or_default())
    }

    /// Stamp of a call that is made now, with the next sequence number.
    #[must_use]
    pub fn stamp(&self, time_ns: u64, thread: u32) -> Stamp {
        let sequence = self.words.get(SEQUENCE).map_or(0, |word| word.fetch_add(1, Ordering::Relaxed));
        Stamp { sequence, time_ns, thread }
    }

    /// Sequence number of the next record.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.load(SEQUENCE)
    }

    /// Counts a call that is not recorded, other than for want of room.
    pub fn count_unrecorded(&self) {
        if let Some(word) = self.words.get(UNRECORDED) {
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls not recorded, other than for want of room.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.load(UNRECORDED)
    }

    /// Lanes that threads share, from another first one for each thread.
    pub fn shared_lanes(&self, thread: u32) -> impl Iterator<Item = Lane<'a>> + use<'a> {
        let memory = *self;
        let shared = LANES - OWN_LANES;
        (0..shared).map(move |at| memory.lane(OWN_LANES + (at + thread as usize) % shared))
    }

    /// A lane; the last one for any number beyond.
    #[must_use]
    pub fn lane(&self, number: usize) -> Lane<'a> {
        let number = number.min(LANES - 1);
        let header = LANE_HEADERS + number * LANE_HEADER_WORDS;
        let (begin, bytes) = match number.checked_sub(1) {
            None => (HEADER_BYTES, FIRST_LANE_BYTES),
            Some(before) => (HEADER_BYTES + FIRST_LANE_BYTES + before * LANE_BYTES, LANE_BYTES),
        };
        let slice = |from: usize, count: usize| self.words.get(from..from + count).unwrap_or_default();
        let records = slice(begin / WORD_BYTES, bytes / WORD_BYTES);
        Lane::new(slice(header, LANE_HEADER_WORDS), records, begin, bytes / RECORD_BYTES)
    }

    /// Copies bytes from a place in the memory on, of which all is mapped: what is not is left as it is.
    ///
    /// # Errors
    /// None.
    pub fn copy_to(&self, place: usize, bytes: &mut [u8]) -> Result<(), Infallible> {
        let words = self.words.get(place / WORD_BYTES..).unwrap_or_default();
        for (word, to) in words.iter().zip(bytes.as_chunks_mut::<WORD_BYTES>().0) {
            *to = word.load(Ordering::Relaxed).to_le_bytes();
        }
        Ok(())
    }

    /// All lanes.
    pub fn lanes(&self) -> impl Iterator<Item = Lane<'a>> + use<'a> {
        let memory = *self;
        (0..LANES).map(move |number| memory.lane(number))
    }
}
