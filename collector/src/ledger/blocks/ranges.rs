//! The ranges of one process's managed memory: its mappings as /proc tells them, and until it does, blocks next to each other.
//!
//! A range has what the records tell of its addresses. What is told of a whole block, or of a place in it where no range is known, belongs to the
//! range in which the block begins, or else to the first one in it: allocations of less than 2 MiB may share a block.

use std::collections::BTreeMap;

use abi::{
    BlockRecord, RecordKind,
    block::{BLOCK_BYTES, SLOT_BYTES},
};
use model::{Cause, RangeCounts, Reuse};

use super::{
    super::{cause, pattern::Order},
    resident::Resident,
    seen::Seen,
};
use crate::spans::{RANGES_MAX, Span};

mod reading;

pub(super) use reading::Changes;

/// Of how many it is looked at in which order they are faulted on: those that were last.
const FOLLOWED_MAX: usize = 64;
/// Time without events after which a followed range is given up for another.
const IDLE_NS: u64 = 10_000_000_000;
/// So often, by faults on ranges that are not followed, it is looked for one to give up.
const LOOK_EVERY: u32 = 1024;

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Ranges {
    /// By their first; they do not overlap.
    by_address: BTreeMap<u64, Known>,
    /// Maximum of ranges.
    max: usize,
    /// Number of mappings.
    mappings: usize,
    /// Ranges evicted from the table to make room.
    forgotten: u64,
    /// Time of the reading of /proc, ns since boot.
    read_ns: Option<u64>,
    /// Where a record was last: the next is often there too.
    last: Span,
    /// Ranges whose access order is followed.
    followed: Vec<u64>,
    /// Faults on others since it was looked for one to give up.
    not_followed: u32,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            by_address: BTreeMap::new(),
            max: RANGES_MAX,
            mappings: 0,
            forgotten: 0,
            read_ns: None,
            last: 0..0,
            followed: Vec::new(),
            not_followed: 0,
        }
    }
}

/// State of a range.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) end: u64,
    pub(super) origin: Origin,
    pub(super) counts: RangeCounts,
    pub(super) resident: Resident,
    /// Time of its last event, ns since boot.
    last_ns: u64,
    /// In which order it is faulted on, where that is followed.
    pub(super) order: Option<Box<Order>>,
    /// Number of its known blocks.
    blocks: u32,
    /// Whether its counts are still to be summed up from its blocks.
    is_fresh: bool,
}

/// Source of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A mapping in the last reading of /proc.
    Mapped,
    /// No mapping any more.
    Unmapped,
    /// Blocks were seen there since /proc was read.
    Shown,
}

impl Known {
    fn new(end: u64, origin: Origin) -> Self {
        Self {
            end,
            origin,
            counts: RangeCounts::default(),
            resident: Resident::default(),
            last_ns: 0,
            order: None,
            blocks: 0,
            is_fresh: false,
        }
    }

    /// Adds what a record tells.
    pub(super) fn count(&mut self, kind: RecordKind, record: &BlockRecord, reuse: &Reuse) {
        let Self { counts, last_ns, .. } = self;
        *last_ns = record.boottime_ns.max(*last_ns);
        let (events, bytes) = (u64::from(record.events), u64::from(record.bytes));
        let (counter, value) = match kind {
            RecordKind::GpuFaults => (&mut counts.fault_entries, events),
            RecordKind::CpuFault => (&mut counts.cpu_faults, events),
            RecordKind::CopyHtod => (&mut counts.bytes_htod, bytes),
            RecordKind::CopyDtoh => (&mut counts.bytes_dtoh, bytes),
            RecordKind::CopyDtod => (&mut counts.bytes_dtod, bytes),
            RecordKind::Populated => (&mut counts.populated_bytes, bytes),
            RecordKind::Evicted => (&mut counts.evictions, events),
            RecordKind::Residency | RecordKind::Gone => return,
        };
        *counter = counter.saturating_add(value);
        if kind == RecordKind::CopyDtoh && cause(record.cause) == Cause::Eviction {
            counts.evicted_bytes = counts.evicted_bytes.saturating_add(bytes);
        }
        counts.reuse += reuse;
    }

    /// Takes another range in, which ends where this one begins or begins where it ends.
    fn join(&mut self, other: &Self) {
        self.counts += &other.counts;
        self.resident += other.resident;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.blocks += other.blocks;
        self.order = self.order.take().or_else(|| other.order.clone());
    }
}

impl Ranges {
    /// The range that a record is about. Begins one where there is none.
    pub(super) fn of(&mut self, record: &BlockRecord) -> Option<(u64, &mut Known)> {
        let first_slot = if record.slots == 0 { 0 } else { record.slots.trailing_zeros() };
        let address = record.address.saturating_add(u64::from(first_slot) * SLOT_BYTES);
        if !self.last.contains(&address) {
            // Else one that begins in the slot, or else that of the block.
            let in_slot = if record.slots == 0 { None } else { self.find(address, address.saturating_add(SLOT_BYTES)) };
            let begin = in_slot.or_else(|| self.find_block(record.address)).or_else(|| self.begin(record.address))?;
            self.last = begin..self.by_address.get(&begin)?.end;
        }
        let begin = self.last.start;
        self.by_address.get_mut(&begin).map(|known| (begin, known))
    }

    /// A GPU faulted on a range.
    pub(super) fn faulted(&mut self, begin: u64, record: &BlockRecord) {
        let Some(known) = self.by_address.get_mut(&begin) else { return };
        if let Some(order) = &mut known.order {
            order.faulted(record);
            return;
        }
        if !self.followed.contains(&begin) {
            if self.followed.len() >= FOLLOWED_MAX && !self.give_one_up(record.boottime_ns) {
                return;
            }
            self.followed.push(begin);
        }
        if let Some(known) = self.by_address.get_mut(&begin) {
            known.order.insert(Box::new(Order::new(record))).faulted(record);
        }
    }

    /// Follows one range less, if there is one of which nothing was seen for long.
    fn give_one_up(&mut self, now_ns: u64) -> bool {
        self.not_followed += 1;
        if self.not_followed < LOOK_EVERY {
            return false;
        }
        self.not_followed = 0;
        // Ranges that were taken together or are gone are not there any more.
        let last_ns = |begin: &u64| self.by_address.get(begin).map_or(0, |known| known.last_ns);
        let Some((place, last_ns)) = self.followed.iter().map(last_ns).enumerate().min_by_key(|(_, last_ns)| *last_ns)
        else {
            return false;
        };
        if now_ns.saturating_sub(last_ns) < IDLE_NS {
            return false;
        }
        let begin = self.followed.swap_remove(place);
        if let Some(known) = self.by_address.get_mut(&begin) {
            known.order = None;
        }
        true
    }

    /// The range of a whole block.
    pub(super) fn of_block(&mut self, number: u64) -> Option<(u64, &mut Known)> {
        let first = number.saturating_mul(BLOCK_BYTES);
        let begin = self.find_block(first)?;
        self.by_address.get_mut(&begin).map(|known| (begin, known))
    }

    /// The addresses of the range that a block is summed up in; none if it is in none.
    pub(super) fn span_of(&self, seen: &Seen) -> Span {
        let begin = if seen.is_placed { self.find_block(seen.number.saturating_mul(BLOCK_BYTES)) } else { None };
        begin.and_then(|begin| Some(begin..self.by_address.get(&begin)?.end)).unwrap_or_default()
    }

    /// A block was forgotten. A range without any is kept only while it is mapped.
    pub(super) fn lost(&mut self, seen: &Seen) {
        let Some((begin, known)) = self.of_block(seen.number).filter(|_| seen.is_placed) else { return };
        known.blocks = known.blocks.saturating_sub(1);
        if known.blocks == 0 && known.origin != Origin::Mapped {
            self.by_address.remove(&begin);
            self.last = 0..0;
        }
    }

    /// The range that contains an address, or the first that begins before another.
    fn find(&self, address: u64, until: u64) -> Option<u64> {
        if let Some((begin, known)) = self.by_address.range(..=address).next_back()
            && address < known.end
        {
            return Some(*begin);
        }
        self.by_address.range(address..until).next().map(|(begin, _)| *begin)
    }

    /// The range in which a block begins, or else the first one in it.
    fn find_block(&self, first: u64) -> Option<u64> {
        self.find(first, first.saturating_add(BLOCK_BYTES))
    }

    /// A range for a block that is in none, as one with its neighbours of that kind.
    fn begin(&mut self, first: u64) -> Option<u64> {
        let mut known = Known::new(first.saturating_add(BLOCK_BYTES), Origin::Shown);
        if self.by_address.get(&known.end).is_some_and(|next| next.origin == Origin::Shown)
            && let Some(next) = self.by_address.remove(&known.end)
        {
            known.end = next.end;
            known.join(&next);
        }
        let is_full = self.by_address.len() >= self.max;
        if let Some((begin, below)) = self.by_address.range_mut(..first).next_back()
            && below.origin == Origin::Shown
            // Where there is no room for another, it reaches up to here.
            && (below.end == first || is_full)
        {
            below.end = known.end;
            below.join(&known);
            return Some(*begin);
        }
        (!is_full).then(|| {
            self.by_address.insert(first, known);
            first
        })
    }

    /// Nothing is summed up any more of what is resident.
    pub(super) fn clear_resident(&mut self) {
        self.by_address.values_mut().for_each(|known| known.resident = Resident::default());
    }

    /// Nor of blocks: they are to be given to [`Self::place`].
    pub(super) fn clear_blocks(&mut self) {
        self.clear_resident();
        self.by_address.values_mut().for_each(|known| known.blocks = 0);
    }

    /// Gives a block its place in a range, if there is one.
    pub(super) fn place(&mut self, seen: &mut Seen) {
        let first = seen.number.saturating_mul(BLOCK_BYTES);
        // Where nothing was seen since /proc was read, nothing is mapped.
        let is_new = self.of_block(seen.number).is_none() && self.read_ns.is_none_or(|read_ns| seen.last_ns >= read_ns);
        if is_new {
            self.begin(first);
        }
        seen.is_placed = false;
        let Some((_, known)) = self.of_block(seen.number) else { return };
        seen.is_placed = true;
        known.blocks += 1;
        if known.is_fresh || is_new {
            known.last_ns = known.last_ns.max(seen.last_ns);
            known.counts += &seen.counts();
        }
    }

    /// A block leaves its place, until it is given another.
    pub(super) fn displace(&mut self, seen: &mut Seen) {
        let was_placed = std::mem::replace(&mut seen.is_placed, false);
        if let Some((_, known)) = self.of_block(seen.number).filter(|_| was_placed) {
            known.blocks = known.blocks.saturating_sub(1);
        }
    }

    /// All blocks have their place.
    pub(super) fn placed(&mut self) {
        self.by_address.retain(|_, known| {
            known.is_fresh = false;
            known.blocks > 0 || known.origin == Origin::Mapped
        });
        let followed = self.by_address.iter().filter(|(_, known)| known.order.is_some());
        self.followed = followed.map(|(begin, _)| *begin).collect();
    }

    /// Bytes that may be resident somewhere; `None` where /proc was not read since what is seen of memory that is new may have been lost.
    /// `lost_ns`: when that was last, ns since boot.
    pub(super) fn mapped_bytes(&self, lost_ns: u64) -> Option<u64> {
        let bytes = |(begin, known): (&u64, &Known)| match known.origin {
            // Nothing more than what blocks told for certain, from which it is taken away again.
            Origin::Unmapped => known.resident.certain_span_bytes,
            Origin::Mapped | Origin::Shown => known.end - begin,
        };
        self.read_ns.filter(|read_ns| *read_ns >= lost_ns).map(|_| self.by_address.iter().map(bytes).sum())
    }

    /// Records were lost.
    pub(super) fn doubt(&mut self) {
        self.by_address.values_mut().for_each(|known| known.resident.doubt());
    }

    /// Number of mappings, which may be more than ranges.
    pub(super) const fn mappings(&self) -> u64 {
        self.mappings as u64
    }

    /// Ranges evicted from the table to make room.
    pub(super) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// All of them, in the order of addresses.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (Span, &Known)> {
        self.by_address.iter().map(|(begin, known)| (*begin..known.end, known))
    }
}
