//! Ranges of one process's managed memory: its mappings from /proc, or adjacent blocks before they
//! are read.
//!
//! A range has the records of its addresses. A record of a whole block, or of a place in it without
//! a known range, belongs to the range that contains the block's start, or else to the first one in
//! the block: allocations of less than 2 MiB may share a block.

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

/// Maximum of ranges whose fault order is followed: those faulted on last.
const FOLLOWED_MAX: usize = 64;
/// Time without events after which a followed range is replaced by another.
const IDLE_NS: u64 = 10_000_000_000;
/// Faults on other ranges between two searches for one to replace.
const LOOK_EVERY: u32 = 1024;

/// Ranges of a process.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Ranges by first address; they do not overlap.
    by_address: BTreeMap<u64, Known>,
    /// Maximum of ranges.
    max: usize,
    /// Number of mappings.
    mappings: usize,
    /// Ranges evicted from the table to make room.
    forgotten: u64,
    /// Time of the reading of /proc, ns since boot.
    read_ns: Option<u64>,
    /// Range of the last record, which often has the next as well.
    last: Span,
    /// Ranges whose access order is followed.
    followed: Vec<u64>,
    /// Faults on other ranges since the last search.
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
    /// Order of its faults, if followed.
    pub(super) order: Option<Box<Order>>,
    /// Number of its known blocks.
    blocks: u32,
    /// Whether its counts are still to be summed from its blocks.
    is_fresh: bool,
}

/// Source of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Mapping in the last reading of /proc.
    Mapped,
    /// Former mapping.
    Unmapped,
    /// Place of blocks seen since the last reading of /proc.
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

    /// Adds a record.
    pub(super) fn count(&mut self, kind: RecordKind, record: &BlockRecord, reuse: &Reuse) {
        let Self { counts, last_ns, .. } = self;
        *last_ns = record.boottime_ns.max(*last_ns);
        let (events, bytes) = (u64::from(record.events), u64::from(record.bytes));
        let (counter, value) = match kind {
            RecordKind::GpuFaults => (&mut counts.fault_entries, events),
            RecordKind::CpuFault => (&mut counts.cpu_faults, events),
            RecordKind::CopyHtod => (&mut counts.bytes_htod, bytes),
            RecordKind::CopyDtoh | RecordKind::CopyStaged => (&mut counts.bytes_dtoh, bytes),
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

    /// Merges an adjacent range.
    fn join(&mut self, other: &Self) {
        self.counts += &other.counts;
        self.resident += other.resident;
        self.last_ns = self.last_ns.max(other.last_ns);
        self.blocks += other.blocks;
        self.order = self.order.take().or_else(|| other.order.clone());
    }
}

impl Ranges {
    /// Range of a record. Creates one if there is none.
    pub(super) fn of(&mut self, record: &BlockRecord) -> Option<(u64, &mut Known)> {
        let first_slot = if record.slots == 0 { 0 } else { record.slots.trailing_zeros() };
        let address = record.address.saturating_add(u64::from(first_slot) * SLOT_BYTES);
        if !self.last.contains(&address) {
            // Otherwise one that starts in the slot, or that of the block.
            let in_slot = if record.slots == 0 { None } else { self.find(address, address.saturating_add(SLOT_BYTES)) };
            let begin = in_slot.or_else(|| self.find_block(record.address)).or_else(|| self.begin(record.address))?;
            self.last = begin..self.by_address.get(&begin)?.end;
        }
        let begin = self.last.start;
        self.by_address.get_mut(&begin).map(|known| (begin, known))
    }

    /// Processes a GPU fault on a range.
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

    /// Stops following one range, if one was idle for long. Returns whether there was one.
    fn give_one_up(&mut self, now_ns: u64) -> bool {
        self.not_followed += 1;
        if self.not_followed < LOOK_EVERY {
            return false;
        }
        self.not_followed = 0;
        // Merged and removed ranges do not exist any more.
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

    /// Range of a whole block.
    pub(super) fn of_block(&mut self, number: u64) -> Option<(u64, &mut Known)> {
        let first = number.saturating_mul(BLOCK_BYTES);
        let begin = self.find_block(first)?;
        self.by_address.get_mut(&begin).map(|known| (begin, known))
    }

    /// Addresses of the range in whose sums a block is; empty if there is none.
    pub(super) fn span_of(&self, seen: &Seen) -> Span {
        let begin = if seen.is_placed { self.find_block(seen.number.saturating_mul(BLOCK_BYTES)) } else { None };
        begin.and_then(|begin| Some(begin..self.by_address.get(&begin)?.end)).unwrap_or_default()
    }

    /// Removes a forgotten block. A range without blocks is retained only while it is mapped.
    pub(super) fn lost(&mut self, seen: &Seen) {
        let Some((begin, known)) = self.of_block(seen.number).filter(|_| seen.is_placed) else { return };
        known.blocks = known.blocks.saturating_sub(1);
        if known.blocks == 0 && known.origin != Origin::Mapped {
            self.by_address.remove(&begin);
            self.last = 0..0;
        }
    }

    /// Range that contains an address, or the first one that starts before another.
    fn find(&self, address: u64, until: u64) -> Option<u64> {
        if let Some((begin, known)) = self.by_address.range(..=address).next_back()
            && address < known.end
        {
            return Some(*begin);
        }
        self.by_address.range(address..until).next().map(|(begin, _)| *begin)
    }

    /// Range that contains a block's start, or else the first one in the block.
    fn find_block(&self, first: u64) -> Option<u64> {
        self.find(first, first.saturating_add(BLOCK_BYTES))
    }

    /// Creates a range for a block without one, merged with adjacent ones of that kind.
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
            // Without room for another, it is extended to here.
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

    /// Clears the sums of residency.
    pub(super) fn clear_resident(&mut self) {
        self.by_address.values_mut().for_each(|known| known.resident = Resident::default());
    }

    /// Clears the sums of blocks, before [`Self::place`] of each.
    pub(super) fn clear_blocks(&mut self) {
        self.clear_resident();
        self.by_address.values_mut().for_each(|known| known.blocks = 0);
    }

    /// Adds a block to its range, if there is one.
    pub(super) fn place(&mut self, seen: &mut Seen) {
        let first = seen.number.saturating_mul(BLOCK_BYTES);
        // Memory without events since the last reading of /proc is not mapped.
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

    /// Removes a block from its range, until it is placed again.
    pub(super) fn displace(&mut self, seen: &mut Seen) {
        let was_placed = std::mem::replace(&mut seen.is_placed, false);
        if let Some((_, known)) = self.of_block(seen.number).filter(|_| was_placed) {
            known.blocks = known.blocks.saturating_sub(1);
        }
    }

    /// Marks all blocks as placed.
    pub(super) fn placed(&mut self) {
        self.by_address.retain(|_, known| {
            known.is_fresh = false;
            known.blocks > 0 || known.origin == Origin::Mapped
        });
        let followed = self.by_address.iter().filter(|(_, known)| known.order.is_some());
        self.followed = followed.map(|(begin, _)| *begin).collect();
    }

    /// Bytes that may be resident anywhere. `None` if /proc was not read since records of new
    /// memory may have been dropped, last at `lost_ns` since boot.
    pub(super) fn mapped_bytes(&self, lost_ns: u64) -> Option<u64> {
        let bytes = |(begin, known): (&u64, &Known)| match known.origin {
            // Only the certain bytes of its blocks, from which they are subtracted again.
            Origin::Unmapped => known.resident.certain_span_bytes,
            Origin::Mapped | Origin::Shown => known.end - begin,
        };
        self.read_ns.filter(|read_ns| *read_ns >= lost_ns).map(|_| self.by_address.iter().map(bytes).sum())
    }

    /// Marks the sums as uncertain, as records were dropped.
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

    /// All ranges, in the order of addresses.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (Span, &Known)> {
        self.by_address.iter().map(|(begin, known)| (*begin..known.end, known))
    }
}
