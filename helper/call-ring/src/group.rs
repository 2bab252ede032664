//! Records of one call, published atomically: uvmd sees all of them or none.

use core::num::NonZeroU32;

use crate::{
    kind::{ARGUMENTS_UNKNOWN, CUT, Kind, TARGET_SHIFT, Target},
    lane::Lane,
    record::{Record, Stamp},
    token::PointersHash,
};

/// Maximum number of pointers recorded for a launch; further pointers are cut.
pub const POINTERS_MAX: usize = 512;
/// Maximum bytes recorded of a name; the rest is cut.
pub const NAME_BYTES_MAX: usize = 1024;
/// Pointers per record.
pub const POINTERS_PER_RECORD: usize = 4;
/// Bytes of a name per record.
pub const NAME_BYTES_PER_RECORD: usize = 40;

/// Writer of one call's records.
#[derive(Debug)]
pub struct Group<'a> {
    lane: Lane<'a>,
    first: Record,
    /// Records written after the first.
    following_count: u16,
    pointers: Record,
    pointer_count: usize,
    /// Hash of the pointers, once [`enable_pointers_hash`](Self::enable_pointers_hash) requests it.
    pointers_hash: Option<PointersHash>,
    fits: bool,
}

impl<'a> Group<'a> {
    /// Begins a call. The lane must be the calling thread's alone, and have room for a record.
    #[must_use]
    pub fn begin(lane: Lane<'a>, stamp: Stamp, kind: Kind, flags: u8, words: [u64; 5]) -> Self {
        let first = Record { stamp, kind: kind as u8, flags, count: 0, words };
        let pointers = Record { kind: Kind::Pointers as u8, flags: 0, words: [0; 5], ..first };
        Self { lane, first, following_count: 0, pointers, pointer_count: 0, pointers_hash: None, fits: true }
    }

    /// Begins a call with a target, which becomes the first word.
    #[must_use]
    pub fn with_target(
        lane: Lane<'a>,
        stamp: Stamp,
        kind: Kind,
        flags: u8,
        target: Target,
        [second, third, fourth, fifth]: [u64; 4],
    ) -> Self {
        let (bits, word) = target.to_parts();
        let words = [word, second, third, fourth, fifth];
        let mut group = Self::begin(lane, stamp, kind, flags | bits << TARGET_SHIFT, words);
        if let Some(node) = target.node() {
            group.add(Kind::Node, [0, node, 0, 0, 0]);
        }
        group
    }

    fn add(&mut self, kind: Kind, words: [u64; 5]) {
        self.add_record(Record { kind: kind as u8, flags: 0, count: 0, words, ..self.first });
    }

    fn add_record(&mut self, record: Record) {
        let ahead = usize::from(self.following_count) + 1;
        self.fits = self.fits && self.lane.has_room(ahead + 1);
        if self.fits {
            self.lane.write(ahead, record);
            self.following_count = self.following_count.saturating_add(1);
        }
    }

    /// Adds a pointer, with its offset in the arguments.
    pub fn add_pointer(&mut self, offset_bytes: u16, address: u64) {
        if self.pointer_count >= POINTERS_MAX {
            self.first.flags |= CUT;
            return;
        }
        self.pointer_count += 1;
        if let Some(hash) = &mut self.pointers_hash {
            hash.add(offset_bytes, address);
        }
        let at = self.pointers.count;
        let [offsets, addresses @ ..] = &mut self.pointers.words;
        *offsets |= u64::from(offset_bytes) << (16 * u32::from(at));
        if let Some(word) = addresses.get_mut(usize::from(at)) {
            *word = address;
        }
        self.pointers.count = at + 1;
        if usize::from(self.pointers.count) == POINTERS_PER_RECORD {
            self.flush_pointers();
        }
    }

    fn flush_pointers(&mut self) {
        if self.pointers.count > 0 {
            self.add_record(self.pointers);
            (self.pointers.count, self.pointers.words) = (0, [0; 5]);
        }
    }

    /// Adds a name.
    pub fn add_name(&mut self, name: impl Iterator<Item = u8>) {
        let (mut words, mut bytes) = ([0_u64; 5], 0_usize);
        for byte in name {
            if bytes == NAME_BYTES_MAX {
                self.first.flags |= CUT;
                break;
            }
            let within = bytes % NAME_BYTES_PER_RECORD;
            if let Some(word) = words.get_mut(within / 8) {
                *word |= u64::from(byte) << (8 * (within % 8));
            }
            bytes += 1;
            if within + 1 == NAME_BYTES_PER_RECORD {
                self.add(Kind::Name, words);
                words = [0; 5];
            }
        }
        if !bytes.is_multiple_of(NAME_BYTES_PER_RECORD) {
            self.add(Kind::Name, words);
        }
        let [.., length, _, _] = &mut self.first.words;
        *length = bytes as u64;
    }

    /// Starts to hash added pointers.
    pub const fn enable_pointers_hash(&mut self) {
        self.pointers_hash = Some(PointersHash::new());
    }

    /// Hash of the pointers; `None` if they are not hashed, or the arguments are unknown.
    #[must_use]
    pub const fn pointers_hash(&self) -> Option<NonZeroU32> {
        match self.pointers_hash {
            Some(hash) if self.first.flags & ARGUMENTS_UNKNOWN == 0 => Some(hash.finish()),
            _ => None,
        }
    }

    /// Marks the arguments as unknown.
    pub fn set_arguments_unknown(&mut self) {
        self.first.flags |= ARGUMENTS_UNKNOWN;
    }

    /// Publishes the call. If it does not fit, it counts as dropped and the result is false.
    #[expect(clippy::must_use_candidate, reason = "a dropped call is counted")]
    pub fn publish(mut self) -> bool {
        self.flush_pointers();
        if !self.fits {
            self.lane.count_dropped();
            return false;
        }
        self.first.count = self.following_count;
        self.lane.write(0, self.first);
        self.lane.publish(usize::from(self.following_count) + 1);
        true
    }
}
