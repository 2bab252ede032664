//! Division of named memory into pieces.
//!
//! A program can name any amount of memory. So pieces and their uses are first counted by
//! arithmetic on ranges, in time and memory that depend only on the number of ranges. They are
//! allocated only if they fit into a budget.

use std::{collections::BTreeMap, ops::Range};

use planner::Part;
use trace::{BlockId, OpStream, footprints::Extent};

use super::{AllocationInfo, CHUNK_BYTES, PIECES_MAX, Piece, is_aligned};
use crate::{claims::ClaimLimits, refusal::Refusal};

/// Maximum bytes of the pieces of an iteration.
pub(crate) const PIECES_BYTES_MAX: usize = 12 << 20;
/// Maximum bytes of the named ranges from which pieces are counted.
pub(crate) const NAMED_BYTES_MAX: usize = 12 << 20;

/// Bytes of a piece, and of one of its uses. Doubled, as tables grow by doubling.
const PIECE_BYTES: u64 = 2 * size_of::<((u64, BlockId), Piece)>() as u64 + MIN_USES_BYTES;
const USE_BYTES: u64 = 2 * size_of::<usize>() as u64;
const MIN_USES_BYTES: u64 = 4 * size_of::<usize>() as u64;

/// Unit size from which more than [`PIECES_MAX`] pieces are accepted, as then the number of
/// allocations alone exceeds it.
const PIECES_LIMIT_UNIT_BYTES_MAX: u64 = 1 << 40;
/// Maximum unit size.
const UNIT_BYTES_MAX: u64 = 1 << 62;

/// Memory that launches name, with its limits and properties.
pub(super) struct Claims<'a, F> {
    pub(super) stream: &'a OpStream,
    pub(super) limits: &'a ClaimLimits,
    pub(super) block: &'a F,
}

/// Mapped area of an allocation, which is cut separately.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Area {
    block: BlockId,
    begin: u64,
    end: u64,
}

/// Range of an area that launches name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NamedRange {
    area: Area,
    begin: u64,
    end: u64,
    outlives: bool,
}

/// Number of pieces and uses, counted before they are allocated.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Pieces.
    pieces: u64,
    /// Pieces of whole blocks. Their number depends on the unit size; that of partial blocks does
    /// not.
    whole_block_pieces: u64,
    /// Uses of pieces by launches.
    uses: u64,
}

impl Count {
    const fn bytes(self) -> u64 {
        self.pieces.saturating_mul(PIECE_BYTES).saturating_add(self.uses.saturating_mul(USE_BYTES))
    }
}

/// Pieces of the extents that each launch uses, in the smallest units that the limits permit.
pub(super) fn pieces<F: Fn(BlockId) -> AllocationInfo>(
    claims: &Claims<'_, F>,
    uses: &[Vec<Extent>],
) -> Result<Vec<Piece>, Refusal> {
    let named = claims.named(uses)?;
    let (limit_bytes, mut unit_bytes) = (PIECES_BYTES_MAX as u64, Part::BLOCK_BYTES);
    loop {
        let count = count(&named, unit_bytes);
        let is_small = count.whole_block_pieces <= PIECES_MAX as u64 || unit_bytes >= PIECES_LIMIT_UNIT_BYTES_MAX;
        if is_small && count.bytes() <= limit_bytes {
            return Ok(claims.pieces(uses, unit_bytes));
        }
        if unit_bytes >= UNIT_BYTES_MAX {
            return Err(Refusal::MemoryBudget { needed_bytes: count.bytes(), limit_bytes });
        }
        unit_bytes *= 2;
    }
}

impl<F: Fn(BlockId) -> AllocationInfo> Claims<'_, F> {
    /// Address ranges of an extent's allocation and of the extent, and the properties of the
    /// allocation.
    fn claim(&self, extent: &Extent) -> Option<(Range<u64>, Range<u64>, AllocationInfo)> {
        let of = &self.stream.blocks()[extent.block];
        let at = |offset: u64| of.address.map(|base| base.saturating_add(offset));
        let (allocation, range) = (at(0)?..at(of.bytes)?, at(extent.begin)?..at(extent.end)?);
        Some((allocation, range, (self.block)(extent.block)))
    }

    /// Areas that overlap an extent, with the named range of each.
    fn areas(&self, extent: &Extent) -> impl Iterator<Item = (NamedRange, AllocationInfo)> {
        self.claim(extent).into_iter().flat_map(move |(allocation, range, block)| {
            let areas = self.limits.areas(block.is_managed, &allocation, &range);
            areas.map(move |area| {
                let (begin, end) = (range.start.max(area.start), range.end.min(area.end));
                let area = Area { block: extent.block, begin: area.start, end: area.end };
                (NamedRange { area, begin, end, outlives: block.outlives }, block)
            })
        })
    }

    /// Named ranges by address, with their number of uses.
    fn named(&self, uses: &[Vec<Extent>]) -> Result<Vec<(NamedRange, u64)>, Refusal> {
        let areas = |extent: &Extent| {
            let claim = self.claim(extent);
            claim.map_or(0, |(_, range, block)| self.limits.area_count(block.is_managed, &range)) as u64
        };
        let count = uses.iter().flatten().map(areas).fold(0, u64::saturating_add);
        let needed_bytes = count.saturating_mul(size_of::<(NamedRange, u64)>() as u64);
        let limit_bytes = NAMED_BYTES_MAX as u64;
        if needed_bytes > limit_bytes {
            return Err(Refusal::MemoryBudget { needed_bytes, limit_bytes });
        }
        let mut named: Vec<(NamedRange, u64)> = Vec::with_capacity(usize::try_from(count).unwrap_or(0));
        named.extend(uses.iter().flatten().flat_map(|extent| self.areas(extent)).map(|(named, _)| (named, 1)));
        named.sort_unstable();
        named.dedup_by(|(next, uses), (last, all)| {
            let is_same = next == last;
            *all += if is_same { *uses } else { 0 };
            is_same
        });
        Ok(named)
    }

    /// Allocates the pieces.
    fn pieces(&self, uses: &[Vec<Extent>], unit_bytes: u64) -> Vec<Piece> {
        let mut pieces: BTreeMap<(u64, BlockId), Piece> = BTreeMap::new();
        for (op, extents) in uses.iter().enumerate() {
            for (named, AllocationInfo { is_managed, outlives }) in extents.iter().flat_map(|extent| self.areas(extent))
            {
                let block = named.area.block;
                let units = units(&named, unit_bytes);
                for (address, end) in units.flat_map(|unit| cut(&named.area, unit, unit_bytes)) {
                    let bytes = end - address;
                    let is_movable = is_managed && outlives && bytes >= CHUNK_BYTES;
                    let piece = pieces.entry((address, block)).or_insert_with(|| {
                        let uses = Vec::new();
                        Piece { block, address, bytes, is_managed, is_movable, outlives, uses }
                    });
                    if piece.uses.last() != Some(&op) {
                        piece.uses.push(op);
                    }
                }
            }
        }
        pieces.into_values().collect()
    }
}

/// Counts the pieces of named ranges, and their uses, for a unit size.
fn count(named: &[(NamedRange, u64)], unit_bytes: u64) -> Count {
    let mut all = Count::default();
    let mut add = |named: &NamedRange, units: Range<u64>| {
        let Count { pieces, whole_block_pieces, .. } = count_units(named, &units, unit_bytes);
        all.pieces = all.pieces.saturating_add(pieces);
        all.whole_block_pieces = all.whole_block_pieces.saturating_add(whole_block_pieces);
    };
    let mut uses = 0_u64;
    let mut last: Option<(&NamedRange, Range<u64>)> = None;
    for (next, times) in named {
        let next_units = units(next, unit_bytes);
        uses = uses.saturating_add(count_units(next, &next_units, unit_bytes).pieces.saturating_mul(*times));
        match &mut last {
            Some((named, units)) if named.area == next.area && next_units.start <= units.end => {
                units.end = units.end.max(next_units.end);
            }
            _ => {
                if let Some((named, units)) = last.replace((next, next_units)) {
                    add(named, units);
                }
            }
        }
    }
    if let Some((named, units)) = last {
        add(named, units);
    }
    Count { uses, ..all }
}

/// Counts the pieces in a range of units. Between the first unit and the last one, each is one
/// piece of whole blocks.
fn count_units(named: &NamedRange, units: &Range<u64>, unit_bytes: u64) -> Count {
    let (first, last) = (units.start, units.end.saturating_sub(1));
    let between = last.saturating_sub(first).saturating_sub(1);
    let mut count = Count { pieces: between, whole_block_pieces: between, uses: 0 };
    for unit in [Some(first), (last > first).then_some(last)].into_iter().flatten() {
        for (begin, end) in cut(&named.area, unit, unit_bytes) {
            let is_part = named.outlives && !(is_aligned(begin) && is_aligned(end - begin));
            count.pieces += 1;
            count.whole_block_pieces += u64::from(!is_part);
        }
    }
    count
}

/// Units that overlap a named range.
const fn units(named: &NamedRange, unit_bytes: u64) -> Range<u64> {
    named.begin / unit_bytes..named.end.div_ceil(unit_bytes)
}

/// Pieces of an area in a unit, which is cut at its first and at its last block boundary.
fn cut(area: &Area, unit: u64, unit_bytes: u64) -> impl Iterator<Item = (u64, u64)> + use<> {
    let begin = area.begin.max(unit.saturating_mul(unit_bytes));
    let end = area.end.min(unit.saturating_add(1).saturating_mul(unit_bytes));
    let first = begin.checked_next_multiple_of(Part::BLOCK_BYTES).map_or(end, |first| first.min(end));
    let last = (end / Part::BLOCK_BYTES * Part::BLOCK_BYTES).max(first);
    [(begin, first), (first, last), (last, end)].into_iter().filter(|(begin, end)| begin < end)
}
