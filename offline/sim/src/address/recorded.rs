//! Addresses of a recorded program's tensors, and what allocations have of blocks.
//!
//! The driver's blocks end with their allocation. Those of less than 2 MiB share frames.

use std::collections::{BTreeMap, BTreeSet};

use trace::{Iteration, Location, Table, TensorId};

use crate::{
    memory::Parts,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules, Mask, PAGE_BYTES},
};

/// Addresses of all tensors.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    tensors: Table<TensorId, Tensor>,
    /// Blocks that no allocation has as a whole, with the allocated bytes of their granules.
    parts: BTreeMap<u64, Parts>,
}

/// Granules of a tensor, and of these the ones that are of no other.
#[derive(Clone, Copy, Debug)]
struct Tensor {
    range: Granules,
    own: Granules,
}

impl Recorded {
    /// Addresses of an iteration, if it has them, beside those of the program before it.
    pub(crate) fn of(iteration: &Iteration, before: &[Iteration]) -> Option<Self> {
        let locations = iteration.locations()?;
        let bytes = |tensor: TensorId| iteration.tensors()[tensor].bytes;
        let tensors = locations.iter().map(|(tensor, location)| Tensor::at(location.address, bytes(tensor))).collect();
        let before = before.iter().filter_map(Iteration::locations).flat_map(Table::values);
        Some(Self { tensors, parts: parts(locations.values().iter().chain(before)) })
    }

    /// Granules that contain any part of a tensor.
    pub(crate) fn range(&self, tensor: TensorId) -> Granules {
        self.tensors[tensor].range
    }

    /// Granules that contain nothing but a part of a tensor.
    pub(crate) fn own(&self, tensor: TensorId) -> Granules {
        self.tensors[tensor].own
    }

    /// Blocks that are allocated in part, with the allocated bytes of their granules.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, Parts)> {
        self.parts.iter().map(|(block, parts)| (*block, *parts))
    }

    /// These blocks, with their allocated granules.
    pub(crate) fn partial(&self) -> impl Iterator<Item = (u64, Mask)> {
        let granules = |parts: &Parts| {
            let allocated = parts.iter().enumerate().filter(|(_, bytes)| **bytes > 0);
            allocated.fold(0, |granules, (granule, _)| granules | 1 << granule)
        };
        self.parts.iter().map(move |(block, parts)| (*block, granules(parts)))
    }
}

impl Tensor {
    fn at(address: u64, bytes: u64) -> Self {
        let end = address + bytes;
        let range = Granules { first: address / GRANULE_BYTES, end: end.div_ceil(GRANULE_BYTES) };
        let first = address.div_ceil(GRANULE_BYTES);
        Self { range, own: Granules { first, end: first.max(end / GRANULE_BYTES) } }
    }
}

/// Blocks that allocations have in part. A program may have had several at an address, one after the
/// other: a block that one has as a whole is no part.
fn parts<'a>(locations: impl IntoIterator<Item = &'a Location>) -> BTreeMap<u64, Parts> {
    let allocation = |location: &Location| (location.allocation_address, location.allocation_bytes);
    let allocations: BTreeSet<_> = locations.into_iter().map(allocation).collect();
    let mut parts: BTreeMap<u64, Parts> = BTreeMap::new();
    // Of each allocation with a part: its whole blocks.
    let mut whole = Vec::new();
    for (address, bytes) in allocations {
        // The driver allocates whole pages.
        let (first, end) = (address / PAGE_BYTES * PAGE_BYTES, (address + bytes).next_multiple_of(PAGE_BYTES));
        whole.push(first.div_ceil(BLOCK_BYTES)..end / BLOCK_BYTES);
        for block in BTreeSet::from([first / BLOCK_BYTES, end.saturating_sub(1) / BLOCK_BYTES]) {
            let base = block * BLOCK_BYTES;
            if first <= base && base + BLOCK_BYTES <= end {
                continue;
            }
            let granules = (0..).map(|granule| base + granule * GRANULE_BYTES);
            for (at, allocated) in granules.zip(parts.entry(block).or_default()) {
                let within = end.min(at + GRANULE_BYTES).saturating_sub(first.max(at));
                let all = (u64::from(*allocated) + within).min(GRANULE_BYTES);
                *allocated = u32::try_from(all).unwrap_or_default();
            }
        }
    }
    for blocks in whole.into_iter().filter(|blocks| blocks.start < blocks.end) {
        parts.retain(|block, _| !blocks.contains(block));
    }
    parts
}

#[cfg(test)]
mod tests {
    use trace::{Draft, Role, draft::DraftKernel};

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    /// Tensors by their addresses and sizes, with those of their allocations; one kernel uses all.
    fn recorded(tensors: &[(u64, u64, u64, u64)]) -> Recorded {
        let mut draft = Draft::default();
        for &(address, bytes, allocation_address, allocation_bytes) in tensors {
            let (name, role) = (String::new(), Role::Other);
            draft.tensor(trace::Tensor { name, bytes, role, persistent: true });
            draft.locations.push(Location { address, allocation_address, allocation_bytes });
        }
        let inputs = (0..).map(TensorId).take(tensors.len()).collect();
        draft.kernel(DraftKernel { inputs, ..DraftKernel::default() });
        Recorded::of(&draft.check().unwrap(), &[]).unwrap()
    }

    #[test]
    fn tensors_in_a_granule_have_it_in_common_and_no_granule_of_their_own() {
        let of = recorded(&[(0, 4 * KIB, 0, 4 * MIB), (4 * KIB, 188 * KIB, 0, 4 * MIB)]);
        let ranges = [TensorId(0), TensorId(1)].map(|tensor| (of.range(tensor), of.own(tensor)));
        let granules = |first, end| Granules { first, end };
        assert_eq!(ranges, [(granules(0, 1), granules(0, 0)), (granules(0, 3), granules(1, 3))]);
        assert_eq!(of.partial().count(), 0);
    }

    #[test]
    fn the_ends_of_allocations_are_parts_of_blocks() {
        // The second one has a whole block between two parts.
        let allocations = [(0, 64 * KIB), (3 * MIB, 4 * MIB), (20 * MIB, 4), (30 * MIB, MIB)];
        let of = recorded(&allocations.map(|(address, bytes)| (address, bytes, address, bytes)));
        let partial: Vec<_> = of.partial().collect();
        assert_eq!(partial, [(0, 1), (1, 0xffff_0000), (3, 0xffff), (10, 1), (15, 0xffff)]);
        let bytes: Vec<u32> = of.parts().map(|(_, parts)| parts.iter().sum()).collect();
        assert_eq!(bytes, [64 << 10, 1 << 20, 1 << 20, 4 << 10, 1 << 20]);
    }

    #[test]
    fn a_block_that_an_allocation_has_as_a_whole_is_no_part_of_an_earlier_one() {
        let of = recorded(&[(0, MIB, 0, MIB), (0, 4 * MIB, 0, 4 * MIB), (4 * MIB, KIB, 4 * MIB, KIB)]);
        assert_eq!(of.partial().collect::<Vec<_>>(), [(2, 1)]);
    }
}
