//! Lower bound of the bytes that cross the link, for any order of evictions and prefetches.
//!
//! The lab, the simulator and the documents take it from here: [`least`].

use std::collections::{BTreeMap, HashMap};

use planner::Part;
use trace::{Access, BlockId, Iteration, id::Id};
use trace_sources::import::lab::{LabLog, PAGE_BYTES};

/// Use of an item by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Item, by its position in [`Accesses::items`].
    pub item: usize,
    /// Whether the operation writes the item, too.
    pub writes: bool,
}

/// Memory that is accessed as a whole, such as a page or block of the driver, or a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Size in any unit of which the GPU has a whole number: bytes, pages, blocks.
    pub size: u64,
    /// Whether it has contents before the first operation, on the GPU or not. If not, its first use
    /// costs nothing.
    pub has_contents: bool,
    /// Operation before which its contents are freed or dropped; the number of operations, if they
    /// never are.
    pub end: usize,
}

/// Accesses of operations, which run one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    /// Uses by operation, in the order of execution. An item comes once per operation.
    pub ops: Vec<Vec<Use>>,
    /// All items.
    pub items: Vec<Item>,
}

/// Copies that an eviction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// All contents. Managed memory without read duplication is at one place: a migration to the
    /// GPU ends the validity of the host's copy, so that a later eviction copies clean pages, too
    /// (`block_page_is_clean` of `uvm_va_block.c`, 535 to 595, excepts GPUs without faults alone).
    All,
    /// Contents that were written on the GPU since their arrival: memory that is read-duplicated.
    Written,
}

/// Presence of the memory that an operation uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// It may come and go during the operation, as faults have it.
    Streamed,
    /// All of it is on the GPU at some instant of the operation, as without faults.
    Together,
}

/// Lower bound of the amounts that cross the link, in the unit of [`Item::size`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Amount that is copied to the GPU.
    pub to_gpu: u64,
    /// Amount that is copied from the GPU.
    pub from_gpu: u64,
}

impl Traffic {
    /// Amount in both directions.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.to_gpu.saturating_add(self.from_gpu)
    }
}

/// Lower bound of what any policy copies that gives these operations their memory on a GPU with
/// `room` units.
///
/// # Model
/// * At any instant each unit is on the GPU or is not, and at most `room` units are. Operations run
///   one after the other, and each unit that an operation uses is on the GPU at some instant of it;
///   with [`Operands::Together`], at one instant for all of them.
/// * A unit that comes to the GPU with contents is copied. One that leaves the GPU is copied if
///   [`Copies`] says so, until its [`Item::end`]. Nothing else is discarded, and nothing is mapped
///   remotely or compressed.
/// * Policies may evict and prefetch at any time, and know the future.
///
/// # Proof
/// Take for each use an instant of its operation at which the unit is on the GPU; if the operation
/// writes it, one at which it does so. An interval leads from a use at operation `i` to the next use
/// of the same unit, at `j`. If the unit is on the GPU all the time between the two instants, the
/// interval is retained. If not, the unit leaves the GPU in it and comes back: at least one copy to the
/// GPU, and with [`Copies::All`] one from it. Intervals of one unit do not overlap, so that no copy
/// counts twice, and the bound is the number of intervals less the most that can be retained.
///
/// Retained intervals with `i <= k < j` are on the GPU when operation `k` has ended and `k + 1` has not
/// begun: at most `room`. Those with `i < k < j` are on the GPU when operation `k` uses a unit, which
/// is none of theirs: at most `room - 1`. These conditions are necessary, so that the most intervals
/// that meet them are at least as many as any policy keeps. They are found from the first condition
/// to the last: where more intervals hold than may, those that end last are evicted, as Belady's
/// MIN does. That is optimal, by exchange: all candidates meet the conditions so far, and what ends
/// later takes part in all later conditions of what ends earlier.
///
/// Contents from before the first operation are intervals from a point before it, and count in the
/// direction to the GPU alone. After its last use a unit stays or is copied from the GPU, until its
/// end: an interval to the end, which counts in that direction alone. A bound of each direction
/// holds by itself, so that their sum is one of both.
///
/// With [`Copies::Written`], a span leads from an operation that writes a unit to the next one that
/// does, or else to the unit's end. If the unit leaves the GPU in a span, it has been copied from
/// the GPU after the write; spans of a unit do not overlap either, and the first of the two
/// conditions holds for those that are retained.
///
/// The bound is the optimum of these conditions, not of the model: an operation that needs one more
/// unit at an instant at which `room` units of its own stay is not seen.
///
/// With [`Operands::Together`], the instant of each use is that at which all units of its operation are
/// on the GPU. Those of the intervals with `i < k < j` are there at that of operation `k`, too, and are
/// others: at most `room` less the units of the operation. Spans of [`Copies::Written`] may be of units
/// that it uses, and meet the first condition alone.
///
/// # Units
/// The driver moves pages of 4 KiB within blocks of 2 MiB, and takes less of the GPU's memory for
/// blocks of which an allocation covers a part alone (`uvm_va_block_gpu_chunk_index_range`). So for
/// bytes that were measured, take pages of 4 KiB as items, and all memory of the GPU as `room`. With
/// items of 2 MiB the bound holds for policies that move whole blocks, such as plans that are
/// rounded to blocks. [`Accesses::of_whole_blocks`] adds that blocks share no frames with parts of
/// blocks.
///
/// Complexity: O(u log o) for u uses by o operations.
#[must_use]
pub fn least(accesses: &Accesses, room: u64, copies: Copies, operands: Operands) -> Traffic {
    let from_gpu = match copies {
        Copies::All => Intervals::from_uses(accesses, operands),
        Copies::Written => Intervals::from_writes(accesses),
    };
    let to_gpu = Intervals::to_uses(accesses, operands);
    Traffic { to_gpu: to_gpu.least_evicted(room), from_gpu: from_gpu.least_evicted(room) }
}

/// Amounts that could be retained, by the points from and to which.
#[derive(Debug)]
struct Intervals {
    /// By the first point: last point and amount. Point 0 is before the first operation, point k + 1
    /// is operation k, and the last is behind all.
    begins: Vec<Vec<(usize, u64)>>,
    /// Amount at each point that is on the GPU with the intervals across the point, and of none of them.
    operands: Vec<u64>,
}

impl Intervals {
    fn empty(accesses: &Accesses) -> Self {
        let points = accesses.ops.len() + 2;
        Self { begins: vec![Vec::new(); points], operands: vec![0; points] }
    }

    fn add(&mut self, first: usize, last: usize, amount: u64) {
        if first < last
            && let Some(begins) = self.begins.get_mut(first)
        {
            begins.push((last, amount));
        }
    }

    /// Intervals to each use, from the one before or from contents of before.
    fn to_uses(accesses: &Accesses, operands: Operands) -> Self {
        let mut intervals = Self::empty(accesses);
        let mut previous: Vec<_> = accesses.items.iter().map(|item| item.has_contents.then_some(0)).collect();
        intervals.set_operands(accesses, operands);
        accesses.for_uses(|point, of, size| {
            if let Some(first) = previous.get_mut(of.item).and_then(|previous| previous.replace(point)) {
                intervals.add(first, point, size);
            }
        });
        intervals
    }

    /// Intervals from each use to the next, or to the end.
    fn from_uses(accesses: &Accesses, operands: Operands) -> Self {
        let mut intervals = Self::from_each(accesses, |_| true);
        intervals.set_operands(accesses, operands);
        intervals
    }

    /// Spans from each write to the next, or to the end. Other uses of the item may be within them.
    fn from_writes(accesses: &Accesses) -> Self {
        Self::from_each(accesses, |of| of.writes)
    }

    fn from_each(accesses: &Accesses, counts: impl Fn(Use) -> bool) -> Self {
        let mut intervals = Self::empty(accesses);
        let mut previous: Vec<Option<usize>> = vec![None; accesses.items.len()];
        accesses.for_uses(|point, of, size| {
            if counts(of)
                && let Some(first) = previous.get_mut(of.item).and_then(|previous| previous.replace(point))
            {
                intervals.add(first, point, size);
            }
        });
        let behind = accesses.ops.len() + 1;
        for (item, first) in accesses.items.iter().zip(previous) {
            if let Some(first) = first {
                intervals.add(first, behind.min(item.end.saturating_add(1)), item.size);
            }
        }
        intervals
    }

    fn set_operands(&mut self, accesses: &Accesses, operands: Operands) {
        for (amount, of) in self.operands.iter_mut().skip(1).zip(&accesses.ops) {
            let sizes = of.iter().map(|of| accesses.items.get(of.item).map_or(0, |item| item.size));
            let all = sizes.fold(0, u64::saturating_add);
            *amount = match operands {
                Operands::Streamed => all.min(1),
                Operands::Together => all,
            };
        }
    }

    /// Least amount of intervals that cannot be retained.
    fn least_evicted(&self, room: u64) -> u64 {
        let mut retained = Retained::default();
        for (point, (begins, operands)) in self.begins.iter().zip(&self.operands).enumerate() {
            retained.end_at(point);
            retained.shrink_to(room.saturating_sub(*operands));
            for (last, amount) in begins {
                retained.add(*last, *amount);
            }
            retained.shrink_to(room);
        }
        retained.evicted
    }
}

impl Accesses {
    /// Accesses of an iteration in the steady state, with bytes as units.
    ///
    /// Contents that a kernel overwrites without a read need not be copied if the schedule drops
    /// them. So each such write begins a new item, and the bound holds for schedules that drop
    /// memory, too.
    #[must_use]
    pub fn of_iteration(iteration: &Iteration) -> Self {
        let kernels = iteration.kernels().len();
        let mut accesses = Self { ops: vec![Vec::new(); kernels], items: Vec::new() };
        for (id, tensor) in iteration.tensors().iter() {
            let uses = iteration.uses(id);
            let wraps = tensor.persistent && uses.first().is_some_and(|of| of.access.reads());
            for (place, of) in uses.iter().enumerate() {
                let kernel = of.kernel.index();
                if place == 0 || of.access == Access::Write {
                    let has_contents = place == 0 && wraps;
                    accesses.items.push(Item { size: tensor.bytes, has_contents, end: kernel });
                }
                let item = accesses.items.len() - 1;
                if let Some(uses) = accesses.ops.get_mut(kernel) {
                    uses.push(Use { item, writes: of.access.writes() });
                }
                if let Some(item) = accesses.items.last_mut() {
                    item.end = if wraps && place + 1 == uses.len() { kernels } else { kernel };
                }
            }
        }
        accesses
    }

    /// Accesses of a run that the lab's CUDA driver has logged, with pages of 4 KiB as units. Items
    /// are the parts of allocations in units of the address space of `item_bytes`: pages, or blocks
    /// of 2 MiB. Copies and fills use memory on the GPU, as they do in the lab, and work counts in
    /// the order in which it ended.
    #[must_use]
    pub fn of_log(log: &LabLog, item_bytes: u64) -> Self {
        let item_bytes = item_bytes.max(PAGE_BYTES);
        let mut accesses = Self::default();
        let mut ids: HashMap<(BlockId, u64), usize> = HashMap::new();
        for (place, executed) in log.executed.iter().enumerate() {
            let mut writes = BTreeMap::new();
            let both = [(&executed.read, false), (&executed.written, true)];
            for (extent, is_written) in
                both.iter().flat_map(|(extents, is_written)| extents.iter().zip(std::iter::repeat(*is_written)))
            {
                let block = &log.stream.blocks()[extent.block];
                let address = block.address.unwrap_or(0);
                for number in (address + extent.begin) / item_bytes..(address + extent.end).div_ceil(item_bytes) {
                    let item = *ids.entry((extent.block, number)).or_insert_with(|| {
                        let begin = address.max(number * item_bytes);
                        let end = (address + block.bytes).min((number + 1).saturating_mul(item_bytes));
                        let size = end.div_ceil(PAGE_BYTES) - begin / PAGE_BYTES;
                        let end = log.freed_after.get(&extent.block).copied().unwrap_or(log.executed.len());
                        accesses.items.push(Item { size, has_contents: false, end });
                        accesses.items.len() - 1
                    });
                    *writes.entry(item).or_insert(false) |= is_written;
                }
            }
            for item in writes.keys() {
                if let Some(item) = accesses.items.get_mut(*item) {
                    // The log has a free that waits for a stream where it was called.
                    item.end = item.end.max(place);
                }
            }
            accesses.ops.push(writes.into_iter().map(|(item, writes)| Use { item, writes }).collect());
        }
        accesses
    }

    /// Accesses of a run that the lab's CUDA driver has logged, for policies that move blocks of 2 MiB as
    /// a whole, as plans do. Units are pages.
    ///
    /// The driver has a block that an allocation covers in one frame of 2 MiB, and parts of blocks in
    /// chunks of other frames (`uvm_va_block_gpu_chunk_index_range` of `uvm_va_block.c`). Items are such
    /// blocks. The parts that an operation uses fill frames while it runs; copies of parts do not count.
    /// With [`Operands::Together`], it is a bound for policies that copy blocks whole and have all
    /// operands of an operation on the GPU at once. Faults, and evictions of blocks that are there in part,
    /// may copy less.
    #[must_use]
    pub fn of_whole_blocks(log: &LabLog) -> Self {
        let mut accesses = Self::of_log(log, Part::BLOCK_BYTES);
        let pages = Part::BLOCK_BYTES / PAGE_BYTES;
        let is_block = |of: &Use, items: &[Item]| items.get(of.item).is_some_and(|item| item.size == pages);
        for (place, uses) in accesses.ops.iter_mut().enumerate() {
            let parts = uses.iter().filter(|of| !is_block(of, &accesses.items));
            let parts: u64 = parts.filter_map(|of| accesses.items.get(of.item)).map(|item| item.size).sum();
            uses.retain(|of| is_block(of, &accesses.items));
            if parts > 0 {
                // It ends with the operation, so that no interval is of it.
                let size = parts.next_multiple_of(pages);
                accesses.items.push(Item { size, has_contents: false, end: place });
                uses.push(Use { item: accesses.items.len() - 1, writes: false });
            }
        }
        accesses
    }

    /// Calls a function for each use, with its point and the size of its item.
    fn for_uses(&self, mut work: impl FnMut(usize, Use, u64)) {
        for (point, uses) in (1..).zip(&self.ops) {
            for of in uses {
                work(point, *of, self.items.get(of.item).map_or(0, |item| item.size));
            }
        }
    }
}

/// Intervals that are retained at a point.
#[derive(Debug, Default)]
struct Retained {
    /// Amounts by their last points.
    amounts: BTreeMap<usize, u64>,
    total: u64,
    evicted: u64,
}

impl Retained {
    fn add(&mut self, last: usize, amount: u64) {
        *self.amounts.entry(last).or_default() += amount;
        self.total += amount;
    }

    fn end_at(&mut self, point: usize) {
        self.total -= self.amounts.remove(&point).unwrap_or(0);
    }

    /// Gives up what ends last, until no more than `room` is left.
    fn shrink_to(&mut self, room: u64) {
        while let Some(excess) = self.total.checked_sub(room).filter(|excess| *excess > 0)
            && let Some(mut latest) = self.amounts.last_entry()
        {
            let amount = excess.min(*latest.get());
            *latest.get_mut() -= amount;
            if *latest.get() == 0 {
                latest.remove();
            }
            self.total -= amount;
            self.evicted += amount;
        }
    }
}
