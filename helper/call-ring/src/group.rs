//! Records of one call, which uvmd sees all at once or not at all.

use crate::{
    kind::{CUT, Kind, TARGET_SHIFT, Target},
    lane::Lane,
    memory::Memory,
    record::Record,
};

/// Most pointers of a launch: those that its arguments, of at most 4 KiB, have room for.
pub const POINTERS_MAX: usize = 512;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 1024;
/// Pointers in a record.
pub const POINTERS: usize = 4;
/// Bytes of a name in a record.
pub const NAME_BYTES: usize = 40;

/// When, and by whom, a call was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Place of the call among all of them.
    pub sequence: u64,
    /// Time, of the monotonic clock.
    pub time_ns: u64,
    /// Thread of the program.
    pub thread: u32,
}

/// A call that is being written.
#[derive(Debug)]
pub struct Group<'a> {
    lane: Lane<'a>,
    stamp: Stamp,
    first: Record,
    /// Records behind the first that are written.
    more: u16,
    pointers: Record,
    pointer_count: usize,
    fits: bool,
}

impl<'a> Group<'a> {
    /// Begins a call in a lane that the thread has to itself.
    #[must_use]
    pub fn begin(lane: Lane<'a>, stamp: Stamp, kind: Kind, flags: u8, words: [u64; 5]) -> Self {
        let record = |kind: Kind, flags, words| Record {
            sequence: stamp.sequence,
            time_ns: stamp.time_ns,
            kind: kind as u8,
            flags,
            count: 0,
            thread: stamp.thread,
            words,
        };
        let (first, pointers) = (record(kind, flags, words), record(Kind::Pointers, 0, [0; 5]));
        Self { lane, stamp, first, more: 0, pointers, pointer_count: 0, fits: lane.has_room(1) }
    }

    /// Begins a call whose work has a target, the first of its words.
    #[must_use]
    pub fn with_target(
        lane: Lane<'a>,
        stamp: Stamp,
        kind: Kind,
        flags: u8,
        target: Target,
        [second, third, fourth, fifth]: [u64; 4],
    ) -> Self {
        let (bits, word) = target.parts();
        let mut group =
            Self::begin(lane, stamp, kind, flags | bits << TARGET_SHIFT, [word, second, third, fourth, fifth]);
        if let Some(node) = target.node() {
            group.add(Kind::Node, 1, [0, node, 0, 0, 0]);
        }
        group
    }

    fn add(&mut self, kind: Kind, count: u16, words: [u64; 5]) {
        let Stamp { sequence, time_ns, thread } = self.stamp;
        self.add_record(Record { sequence, time_ns, kind: kind as u8, flags: 0, count, thread, words });
    }

    fn add_record(&mut self, record: Record) {
        let ahead = usize::from(self.more) + 1;
        self.fits = self.fits && self.lane.has_room(ahead + 1);
        if self.fits {
            self.lane.write(ahead, record);
            self.more = self.more.saturating_add(1);
        }
    }

    /// Adds a pointer, and where among the arguments it lies.
    pub fn pointer(&mut self, offset_bytes: u16, address: u64) {
        if self.pointer_count >= POINTERS_MAX {
            self.first.flags |= CUT;
            return;
        }
        self.pointer_count += 1;
        let at = self.pointers.count;
        let [offsets, addresses @ ..] = &mut self.pointers.words;
        *offsets |= u64::from(offset_bytes) << (16 * u32::from(at));
        if let Some(word) = addresses.get_mut(usize::from(at)) {
            *word = address;
        }
        self.pointers.count = at + 1;
        if usize::from(self.pointers.count) == POINTERS {
            self.end_pointers();
        }
    }

    fn end_pointers(&mut self) {
        if self.pointers.count > 0 {
            self.add_record(self.pointers);
            (self.pointers.count, self.pointers.words) = (0, [0; 5]);
        }
    }

    /// Adds a name.
    pub fn name(&mut self, name: impl Iterator<Item = u8>) {
        let (mut words, mut bytes) = ([0_u64; 5], 0_usize);
        for byte in name {
            if bytes == NAME_BYTES_MAX {
                self.first.flags |= CUT;
                break;
            }
            let within = bytes % NAME_BYTES;
            if let Some(word) = words.get_mut(within / 8) {
                *word |= u64::from(byte) << (8 * (within % 8));
            }
            bytes += 1;
            if within + 1 == NAME_BYTES {
                self.add(Kind::Name, 0, words);
                words = [0; 5];
            }
        }
        if !bytes.is_multiple_of(NAME_BYTES) {
            self.add(Kind::Name, 0, words);
        }
        let [.., length, _, _] = &mut self.first.words;
        *length = bytes as u64;
    }

    /// The arguments are not known.
    pub fn without_arguments(&mut self) {
        self.first.flags |= crate::kind::NO_ARGUMENTS;
    }

    /// Publishes the call; counts it as dropped, and returns false, if it does not fit.
    #[expect(clippy::must_use_candidate, reason = "it is counted")]
    pub fn publish(mut self) -> bool {
        self.end_pointers();
        if !self.fits {
            self.lane.count_dropped();
            return false;
        }
        self.first.count = self.more;
        self.lane.write(0, self.first);
        self.lane.publish(usize::from(self.more) + 1);
        true
    }
}

/// Stamp of a call that is made now.
#[must_use]
pub fn stamp(memory: &Memory<'_>, time_ns: u64, thread: u32) -> Stamp {
    Stamp { sequence: memory.next_sequence(), time_ns, thread }
}
