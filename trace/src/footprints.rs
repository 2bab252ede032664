//! Memory that launches access, inferred from the addresses among their arguments.
//!
//! An address proves that a launch uses memory there, not how much of it. Frameworks take memory
//! from pools, so that a block is not a tensor. Here a tensor begins at an address that is named,
//! and ends where the next one begins, or with its block. docs/traces.md has the limitations, and
//! docs/measurements/footprints.md the precision.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ops::{Bound, Range},
};

use serde::Serialize;

use crate::{
    draft::{Draft, DraftKernel, Invalid},
    id::{BlockId, Id, OpId, TensorId},
    iteration::{Access, Iteration, Location, Role, Tensor},
    ops::{Argument, OpKind, OpStream},
};

/// Most operands of an iteration: a program can multiply them by addresses that overlap.
const OPERANDS_MAX: usize = 1 << 22;
/// Maximum of addresses searched after an address for one that is named between two launches. Addresses
/// beyond it count as such.
const ADDRESSES_MAX: usize = 1 << 10;

/// Least share of accessed bytes in footprints, for plans that rely on these.
pub const MIN_COVERAGE: f64 = 0.9;

/// Part of a block, by offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extent {
    /// Block.
    pub block: BlockId,
    /// Offset of the first byte.
    pub begin: u64,
    /// Offset behind the last byte.
    pub end: u64,
}

/// End of the extent at an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Until {
    /// The next address in the block that is named at all. Extents do not overlap. What an
    /// allocator reuses in smaller pieces is cut by these, and is found in part.
    #[default]
    NextNamed,
    /// The next address in the block that is in use, from its first launch to its last. More is
    /// found, and more that the launch does not access.
    NextInUse,
    /// As [`Until::NextInUse`], and no further than the next address that is named between two
    /// launches that name this one: what one writes and the other reads is not overwritten in
    /// between. Which two is unknown: the launch and that before it, or the launch and that behind
    /// it, whichever gives more.
    NextBetween,
}

/// Memory that each launch of a part of a stream may access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprints {
    ops: Range<usize>,
    /// Operations that use memory, with disjoint extents in order.
    extents: Vec<(OpId, Vec<Extent>)>,
}

/// Bytes of footprints beside bytes that were accessed, or faulted on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Bytes of the footprints.
    pub named_bytes: u64,
    /// Bytes that were accessed.
    pub accessed_bytes: u64,
    /// Bytes that were accessed and are in the footprints.
    pub both_bytes: u64,
}

impl Footprints {
    /// Footprints of the operations of a part of a stream, such as an iteration. Addresses that
    /// only other parts name are ignored.
    #[must_use]
    pub fn of(stream: &OpStream, ops: Range<OpId>, until: Until) -> Self {
        let ops = ops.start.index()..ops.end.index().min(stream.ops().len());
        let part =
            || stream.ops().iter().skip(ops.start).take(ops.len()).map(|(id, op)| (id, arguments(stream, op.kind)));
        let mut addresses = Addresses::default();
        for (id, arguments) in part() {
            for argument in arguments {
                addresses.add(id, argument);
            }
        }
        let mut in_use = InUse::default();
        let extents = part().map(|(id, arguments)| {
            in_use.advance(&addresses, id, &arguments);
            let found = arguments.into_iter().map(|argument| {
                let block_bytes = stream.blocks()[argument.block].bytes;
                let begin = argument.offset_bytes.unwrap_or(0).min(block_bytes);
                let end = match (argument.offset_bytes, argument.bytes) {
                    (_, Some(bytes)) => begin.saturating_add(bytes),
                    (Some(_), None) => addresses.end(id, argument.block, begin, until, &in_use).unwrap_or(u64::MAX),
                    (None, None) => u64::MAX,
                };
                Extent { block: argument.block, begin, end: end.min(block_bytes) }
            });
            (id, merged(found.collect()))
        });
        let extents = extents.filter(|(_, extents)| !extents.is_empty()).collect();
        Self { ops, extents }
    }

    /// Operations of the part, by their positions.
    #[must_use]
    pub const fn ops(&self) -> &Range<usize> {
        &self.ops
    }

    /// Operations that use memory, in order, with what they may access: disjoint extents in order.
    pub fn iter(&self) -> impl Iterator<Item = (OpId, &[Extent])> {
        self.extents.iter().map(|(id, extents)| (*id, extents.as_slice()))
    }

    /// What an operation may access.
    #[must_use]
    pub fn op(&self, op: OpId) -> &[Extent] {
        let place = self.extents.binary_search_by_key(&op, |(id, _)| *id);
        place.ok().and_then(|place| self.extents.get(place)).map_or(&[], |(_, extents)| extents)
    }

    /// Footprints in whole units of the address space, such as blocks of 2 MiB that a plan moves,
    /// cut at the ends of their blocks.
    #[must_use]
    pub fn rounded(&self, stream: &OpStream, unit_bytes: u64) -> Self {
        let extents = self.extents.iter().map(|(id, extents)| (*id, rounded(stream, extents, unit_bytes)));
        Self { ops: self.ops.clone(), extents: extents.collect() }
    }

    /// Iteration with a kernel for each operation that uses memory. Tensors are the largest pieces
    /// of blocks that the same operations use, named by block and offset, so that none overlap.
    ///
    /// A kernel lasts until the next operation; a launch lasts for its duration, if the trace
    /// records it. Where the trace has no kind of access, launches read and write what they use,
    /// and the first one only writes it if the part has allocated it. Blocks that live before and
    /// after the part are persistent. Tensors have locations if the trace has all addresses.
    ///
    /// # Errors
    /// If nothing uses memory, or too much of it overlaps.
    pub fn iteration(&self, stream: &OpStream) -> Result<Iteration, Invalid> {
        let mut cuts: HashMap<BlockId, Vec<u64>> = HashMap::new();
        for extent in self.extents.iter().flat_map(|(_, extents)| extents) {
            cuts.entry(extent.block).or_default().extend([extent.begin, extent.end]);
        }
        for cuts in cuts.values_mut() {
            cuts.sort_unstable();
            cuts.dedup();
        }
        let mut draft = Draft::default();
        let mut pieces = BTreeMap::new();
        let mut blocks: Vec<_> = cuts.iter().collect();
        blocks.sort_unstable_by_key(|(block, _)| **block);
        let mut locations = Vec::new();
        let mut is_new = Vec::new();
        for (block, cuts) in blocks {
            let persistent = self.outlives(stream, *block);
            for (begin, end) in cuts.iter().zip(cuts.iter().skip(1)) {
                locations.push(location(stream, *block, *begin));
                is_new.push(self.allocates(stream, *block));
                let name = format!("block {block} + {begin}");
                let tensor = Tensor { name, bytes: end - begin, role: Role::Other, persistent };
                pieces.insert((*block, *begin), draft.tensor(tensor));
            }
        }
        let mut operands = 0;
        for (place, (id, extents)) in self.extents.iter().enumerate() {
            let within = |extent: &Extent| {
                let range = (extent.block, extent.begin)..(extent.block, extent.end);
                pieces.range(range).map(|(_, id)| *id).collect::<Vec<TensorId>>()
            };
            let tensors: Vec<_> = extents.iter().flat_map(within).collect();
            operands += tensors.len();
            if operands > OPERANDS_MAX {
                return Err(Invalid::TooMany);
            }
            let next = self.extents.get(place + 1).map(|(next, _)| *next);
            let mut kernel = kernel(stream, *id, next, &tensors);
            // New memory has no contents to read.
            let mut is_unwritten = |tensor: &TensorId| is_new.get_mut(tensor.index()).is_some_and(std::mem::take);
            let unwritten: HashSet<_> = kernel.outputs.iter().copied().filter(|tensor| is_unwritten(tensor)).collect();
            kernel.inputs.retain(|tensor| !unwritten.contains(tensor));
            draft.kernel(kernel);
        }
        draft.locations = locations.into_iter().collect::<Option<_>>().unwrap_or_default();
        unused_left_out(draft).check()
    }

    /// Whether the part allocates a block.
    fn allocates(&self, stream: &OpStream, block: BlockId) -> bool {
        stream.malloc_of(block).is_some_and(|malloc| self.ops.contains(&malloc.index()))
    }

    /// Whether a block lives before and after the part.
    fn outlives(&self, stream: &OpStream, block: BlockId) -> bool {
        stream.malloc_of(block).is_none_or(|malloc| malloc.index() < self.ops.start)
            && stream.free_of(block).is_none_or(|free| free.index() >= self.ops.end)
    }
}

impl Coverage {
    /// Adds what may be accessed, what was, and bytes that were accessed outside of all blocks: of
    /// one launch, or of all. Extents need no order and may overlap.
    pub fn add(&mut self, named: &[Extent], accessed: &[Extent], elsewhere_bytes: u64) {
        let (named, accessed) = (merged(named.to_vec()), merged(accessed.to_vec()));
        let sum =
            |extents: &[Extent]| extents.iter().map(|extent| extent.end - extent.begin).fold(0, u64::saturating_add);
        self.named_bytes = self.named_bytes.saturating_add(sum(&named));
        self.accessed_bytes = self.accessed_bytes.saturating_add(sum(&accessed)).saturating_add(elsewhere_bytes);
        let (mut named, mut accessed) = (named.iter().peekable(), accessed.iter().peekable());
        while let (Some(one), Some(other)) = (named.peek(), accessed.peek()) {
            if one.block == other.block {
                let bytes = one.end.min(other.end).saturating_sub(one.begin.max(other.begin));
                self.both_bytes = self.both_bytes.saturating_add(bytes);
            }
            if (one.block, one.end) < (other.block, other.end) {
                named.next();
            } else {
                accessed.next();
            }
        }
    }

    /// Share of accessed bytes that are in the footprints; 1 if nothing was accessed.
    #[must_use]
    pub fn recall(&self) -> f64 {
        share(self.both_bytes, self.accessed_bytes)
    }

    /// Share of the footprints' bytes that were accessed; 1 if there are none.
    #[must_use]
    pub fn precision(&self) -> f64 {
        share(self.both_bytes, self.named_bytes)
    }

    /// Whether enough of what is accessed is in the footprints for a plan: [`MIN_COVERAGE`].
    #[must_use]
    pub fn suffices(&self) -> bool {
        self.recall() >= MIN_COVERAGE
    }
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 1.0 } else { part as f64 / all as f64 }
}

/// Extents in whole units of the address space, cut at the ends of their blocks; in order and
/// disjoint.
#[must_use]
pub fn rounded(stream: &OpStream, extents: &[Extent], unit_bytes: u64) -> Vec<Extent> {
    let unit_bytes = unit_bytes.max(1);
    let round = |extent: &Extent| {
        let block = &stream.blocks()[extent.block];
        let address = block.address.unwrap_or(0);
        let first = address.saturating_add(extent.begin) / unit_bytes * unit_bytes;
        let behind = address.saturating_add(extent.end).checked_next_multiple_of(unit_bytes).unwrap_or(u64::MAX);
        let (begin, end) = (first.saturating_sub(address), (behind - address).min(block.bytes));
        Extent { begin, end, ..*extent }
    };
    merged(extents.iter().map(round).collect())
}

/// Extents in order, without overlaps and empty ones.
fn merged(mut extents: Vec<Extent>) -> Vec<Extent> {
    extents.retain(|extent| extent.begin < extent.end);
    extents.sort_unstable();
    let mut merged: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match merged.last_mut() {
            Some(last) if last.block == extent.block && extent.begin <= last.end => last.end = last.end.max(extent.end),
            _ => merged.push(extent),
        }
    }
    merged
}

/// What an operation uses.
fn arguments(stream: &OpStream, op: OpKind) -> Vec<Argument> {
    match op {
        OpKind::Launch(launch) => stream.launches()[launch].arguments.clone(),
        OpKind::Read(block) => vec![Argument { access: Some(Access::Read), ..Argument::of(block) }],
        OpKind::Write(block) => vec![Argument { access: Some(Access::Write), ..Argument::of(block) }],
        _ => Vec::new(),
    }
}

/// Kernel of an operation.
fn kernel(stream: &OpStream, id: OpId, next: Option<OpId>, tensors: &[TensorId]) -> DraftKernel {
    let op = stream.ops()[id];
    let until_next_ns = next.map_or(0, |next| stream.ops()[next].time_ns - op.time_ns);
    let (name, duration_ns) = match op.kind {
        OpKind::Launch(launch) => {
            let launch = &stream.launches()[launch];
            (stream.signatures()[launch.signature].name.clone(), launch.duration_ns.unwrap_or(until_next_ns))
        }
        OpKind::Read(_) => ("read".to_owned(), until_next_ns),
        _ => ("write".to_owned(), until_next_ns),
    };
    let uses =
        |of: fn(Access) -> bool| arguments(stream, op.kind).iter().any(|argument| argument.access.is_none_or(of));
    // A part may be written where the whole is read, and the rest keeps its contents: a write of
    // extents overwrites all of them only if the trace says so of each.
    let (reads, writes) = (uses(Access::reads), uses(Access::writes));
    let list = |used: bool| if used { tensors.to_vec() } else { Vec::new() };
    DraftKernel { name, duration_ns, inputs: list(reads), outputs: list(writes) }
}

/// Location of the memory at an offset of a block.
fn location(stream: &OpStream, block: BlockId, offset_bytes: u64) -> Option<Location> {
    let block = &stream.blocks()[block];
    let allocation_address = block.address?;
    let address = allocation_address.checked_add(offset_bytes)?;
    Some(Location { address, allocation_address, allocation_bytes: block.bytes })
}

/// Draft without the tensors that no kernel uses: gaps between extents.
fn unused_left_out(draft: Draft) -> Draft {
    let Draft { name, tensors, mut kernels, locations } = draft;
    let mut locations = locations.into_iter();
    let mut left_locations = Vec::new();
    let mut ids = vec![None; tensors.len()];
    for id in kernels.iter().flat_map(|kernel| kernel.inputs.iter().chain(&kernel.outputs)) {
        if let Some(used) = ids.get_mut(id.index()) {
            *used = Some(TensorId(0));
        }
    }
    let mut left = Vec::new();
    for (tensor, id) in tensors.into_iter().zip(&mut ids) {
        let location = locations.next();
        if let Some(id) = id {
            *id = TensorId::new(left.len());
            left.push(tensor);
            left_locations.extend(location);
        }
    }
    for kernel in &mut kernels {
        for id in kernel.inputs.iter_mut().chain(&mut kernel.outputs) {
            *id = ids.get(id.index()).copied().flatten().unwrap_or(*id);
        }
    }
    Draft { name, tensors: left, kernels, locations: left_locations }
}

/// Offsets that are named, by block, with the operations that name each, in order.
#[derive(Debug, Default)]
struct Addresses {
    blocks: HashMap<BlockId, BTreeMap<u64, Vec<OpId>>>,
}

impl Addresses {
    fn add(&mut self, op: OpId, Argument { block, offset_bytes, .. }: Argument) {
        if let Some(offset) = offset_bytes {
            let ops = self.blocks.entry(block).or_default().entry(offset).or_default();
            if ops.last() != Some(&op) {
                ops.push(op);
            }
        }
    }

    /// First and last operation that name an offset.
    fn life(&self, block: BlockId, offset: u64) -> Option<(OpId, OpId)> {
        let ops = self.blocks.get(&block)?.get(&offset)?;
        Some((*ops.first()?, *ops.last()?))
    }

    /// Offset at which the extent of an operation ends that begins at an offset. `in_use`: at this
    /// operation.
    fn end(&self, op: OpId, block: BlockId, begin: u64, until: Until, in_use: &InUse) -> Option<u64> {
        let offsets = self.blocks.get(&block)?;
        let mut later = offsets.range((Bound::Excluded(begin), Bound::Unbounded));
        match until {
            Until::NextNamed => later.next().map(|(offset, _)| *offset),
            Until::NextInUse => in_use.after(block, begin),
            Until::NextBetween => {
                let between = |first: OpId, last: OpId| {
                    let named =
                        |ops: &[OpId]| ops.get(ops.partition_point(|of| *of < first)).is_some_and(|of| *of <= last);
                    let named =
                        later.clone().enumerate().find(|(place, (_, ops))| *place >= ADDRESSES_MAX || named(ops));
                    let named = named.map(|(_, (offset, _))| *offset);
                    named.into_iter().chain(in_use.after(block, begin)).min().unwrap_or(u64::MAX)
                };
                let own = offsets.get(&begin)?;
                let place = own.partition_point(|of| *of < op);
                let before = place.checked_sub(1).and_then(|before| own.get(before)).map(|before| between(*before, op));
                let after = own.get(place + 1).map(|after| between(op, *after));
                before.max(after).or_else(|| in_use.after(block, begin))
            }
        }
    }
}

/// Offsets that are in use at an operation, from the first one that names each to the last one.
#[derive(Debug, Default)]
struct InUse {
    offsets: HashMap<BlockId, BTreeSet<u64>>,
    /// Offsets whose last operation was the previous one.
    ended: Vec<(BlockId, u64)>,
}

impl InUse {
    /// Advances to an operation with these arguments, the next one that has any.
    fn advance(&mut self, addresses: &Addresses, op: OpId, arguments: &[Argument]) {
        for (block, offset) in self.ended.drain(..) {
            self.offsets.entry(block).or_default().remove(&offset);
        }
        for &Argument { block, offset_bytes, .. } in arguments {
            let Some(offset) = offset_bytes else { continue };
            let Some((first, last)) = addresses.life(block, offset) else { continue };
            if first == op {
                self.offsets.entry(block).or_default().insert(offset);
            }
            if last == op {
                self.ended.push((block, offset));
            }
        }
    }

    /// Next offset in use after one.
    fn after(&self, block: BlockId, offset: u64) -> Option<u64> {
        self.offsets.get(&block)?.range((Bound::Excluded(offset), Bound::Unbounded)).next().copied()
    }
}
