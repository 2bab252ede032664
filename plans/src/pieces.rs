//! Memory that an iteration uses, in units of the driver's blocks.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::plan::PAGE_BYTES;
use planner::Part;
use trace::{BlockId, Draft, Iteration, OpStream, Role, Tensor, TensorId, draft::DraftKernel, footprints::Extent};

use crate::refusal::Refusal;

/// Most pieces of an iteration; units are larger where there were more.
pub const PIECES_MAX: usize = 1024;
/// Most units of an iteration that are made to count the pieces in them; extents overlap.
const UNITS_MAX: u64 = 64 * PIECES_MAX as u64;

/// Chunk in which the driver has parts of blocks, and the least bytes of a part that moves.
const CHUNK_BYTES: u64 = 64 << 10;

/// Memory that moves as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Allocation that it is in.
    pub block: BlockId,
    /// First address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Whether it is managed.
    pub is_managed: bool,
    /// Whether it may be moved: managed memory that outlives iterations, but for the smallest parts of blocks.
    pub moves: bool,
    /// Whether it lives before and after the iteration.
    pub outlives: bool,
    /// Launches that use it, by their places in the iteration, in order. Not empty.
    pub uses: Vec<usize>,
}

impl Piece {
    /// Whether it has frames of the GPU of its own, which are free where it leaves. A part of a block of
    /// the driver is in chunks of a frame that it shares with other parts, and keeps them.
    #[must_use]
    pub const fn is_block(&self) -> bool {
        is_whole(self.address) && is_whole(self.bytes)
    }
}

/// Memory of an iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// Number of launches.
    pub ops: usize,
    /// All pieces, by address.
    pub all: Vec<Piece>,
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) is_managed: bool,
    pub(crate) outlives: bool,
}

impl Pieces {
    /// Pieces of the extents that each launch of an iteration uses.
    pub(crate) fn of(stream: &OpStream, uses: &[Vec<Extent>], block: impl Fn(BlockId) -> Block) -> Self {
        let mut unit_bytes = Part::BLOCK_BYTES;
        // Blocks are as large as the program says: their units are counted before they are made.
        while units_of(stream, uses, unit_bytes) > UNITS_MAX {
            unit_bytes *= 2;
        }
        loop {
            let all = pieces(stream, uses, unit_bytes, &block);
            // Parts of blocks stay as they are, however large units are.
            let is_part = |piece: &Piece| piece.outlives && !piece.is_block();
            let units = all.iter().filter(|piece| !is_part(piece)).count();
            if units <= PIECES_MAX || unit_bytes >= 1 << 40 {
                return Self { ops: uses.len(), all };
            }
            unit_bytes *= 2;
        }
    }

    /// Those that are managed.
    pub(crate) fn managed(mut self) -> Self {
        self.all.retain(|piece| piece.is_managed);
        self
    }

    /// Those that have frames of their own.
    pub(crate) fn blocks(&self) -> Self {
        self.filtered(Piece::is_block)
    }

    /// Those that share frames.
    pub(crate) fn parts(&self) -> Self {
        self.filtered(|piece| !piece.is_block())
    }

    fn filtered(&self, is_in: impl Fn(&Piece) -> bool) -> Self {
        Self { ops: self.ops, all: self.all.iter().filter(|piece| is_in(piece)).cloned().collect() }
    }

    /// Most bytes that a launch uses.
    #[must_use]
    pub fn op_bytes_max(&self) -> u64 {
        let mut bytes = vec![0_u64; self.ops];
        for piece in &self.all {
            for op in &piece.uses {
                if let Some(bytes) = bytes.get_mut(*op) {
                    *bytes = piece.bytes.saturating_add(*bytes);
                }
            }
        }
        bytes.into_iter().max().unwrap_or(0)
    }

    /// Places of the pieces that each launch uses.
    pub(crate) fn by_op(&self) -> Vec<Vec<usize>> {
        let mut by_op = vec![Vec::new(); self.ops];
        for (place, piece) in self.all.iter().enumerate() {
            for op in &piece.uses {
                if let Some(uses) = by_op.get_mut(*op) {
                    uses.push(place);
                }
            }
        }
        by_op
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        sum(self.all.iter())
    }

    /// Bytes that are on the GPU throughout.
    #[must_use]
    pub fn staying_bytes(&self) -> u64 {
        sum(self.all.iter().filter(|piece| piece.outlives && !piece.moves))
    }

    /// Bytes that the driver's chunks have more than the pieces, as far as these share frames.
    #[must_use]
    pub fn padding_bytes(&self) -> u64 {
        let chunks = |bytes: u64, chunk_bytes| bytes.checked_next_multiple_of(chunk_bytes).unwrap_or(bytes);
        let (mut bytes, mut large_bytes, mut small_bytes) = (0_u64, 0_u64, 0_u64);
        for piece in self.all.iter().filter(|piece| !piece.is_block()) {
            bytes = bytes.saturating_add(piece.bytes);
            if piece.bytes < CHUNK_BYTES {
                small_bytes = small_bytes.saturating_add(chunks(piece.bytes, PAGE_BYTES));
            } else {
                large_bytes = large_bytes.saturating_add(chunks(piece.bytes, CHUNK_BYTES));
            }
        }
        large_bytes.saturating_add(chunks(small_bytes, CHUNK_BYTES)).saturating_sub(bytes)
    }

    /// Iteration for planners, with a tensor for each piece that does not stay, and a kernel for each
    /// launch; and the pieces of the tensors.
    pub(crate) fn iteration(&self, durations_ns: &[u64]) -> Result<(Iteration, Vec<usize>), Refusal> {
        let mut draft = Draft::default();
        let mut kernels = vec![Vec::new(); self.ops];
        let mut of_tensors = Vec::new();
        for (place, piece) in self.all.iter().enumerate().filter(|(_, piece)| piece.moves || !piece.outlives) {
            let name = format!("{:#x}", piece.address);
            let tensor = Tensor { name, bytes: piece.bytes, role: Role::Other, persistent: piece.outlives };
            let id: TensorId = draft.tensor(tensor);
            of_tensors.push(place);
            for op in &piece.uses {
                if let Some(tensors) = kernels.get_mut(*op) {
                    tensors.push(id);
                }
            }
        }
        // What a launch does with memory is not known.
        for (tensors, duration_ns) in kernels.into_iter().zip(durations_ns) {
            let name = String::new();
            draft.kernel(DraftKernel { name, duration_ns: *duration_ns, inputs: tensors.clone(), outputs: tensors });
        }
        let iteration = draft.check().map_err(|reason| Refusal::Invalid { reason: reason.to_string() })?;
        Ok((iteration, of_tensors))
    }
}

/// First unit of an extent, and the one behind its last.
fn units(base: u64, extent: &Extent, unit_bytes: u64) -> (u64, u64) {
    (base.saturating_add(extent.begin) / unit_bytes, base.saturating_add(extent.end).div_ceil(unit_bytes))
}

/// Units of all extents, which count once for each of these.
fn units_of(stream: &OpStream, uses: &[Vec<Extent>], unit_bytes: u64) -> u64 {
    let extents: BTreeSet<(BlockId, u64, u64)> =
        uses.iter().flatten().map(|extent| (extent.block, extent.begin, extent.end)).collect();
    let count = |(block, begin, end): (BlockId, u64, u64)| {
        let base = stream.blocks()[block].address.unwrap_or(0);
        let (first, behind) = units(base, &Extent { block, begin, end }, unit_bytes);
        behind - first
    };
    extents.into_iter().map(count).fold(0, u64::saturating_add)
}

const fn is_whole(bytes: u64) -> bool {
    bytes.is_multiple_of(Part::BLOCK_BYTES)
}

/// Range, cut at the first and at the last boundary of a block in it; parts may be empty.
fn parts(begin: u64, end: u64) -> [(u64, u64); 3] {
    let first = begin.checked_next_multiple_of(Part::BLOCK_BYTES).map_or(end, |first| first.min(end));
    let last = (end / Part::BLOCK_BYTES * Part::BLOCK_BYTES).max(first);
    [(begin, first), (first, last), (last, end)]
}

fn sum<'a>(pieces: impl Iterator<Item = &'a Piece>) -> u64 {
    pieces.map(|piece| piece.bytes).fold(0, u64::saturating_add)
}

fn pieces(stream: &OpStream, uses: &[Vec<Extent>], unit_bytes: u64, block: &impl Fn(BlockId) -> Block) -> Vec<Piece> {
    let mut pieces: BTreeMap<(u64, BlockId), Piece> = BTreeMap::new();
    for (op, extents) in uses.iter().enumerate() {
        for extent in extents {
            let of = &stream.blocks()[extent.block];
            let (Some(base), Block { is_managed, outlives }) = (of.address, block(extent.block)) else { continue };
            let (first, behind) = units(base, extent, unit_bytes);
            for unit in first..behind {
                let begin = base.max(unit * unit_bytes);
                let end = base.saturating_add(of.bytes).min((unit + 1).saturating_mul(unit_bytes));
                for (address, behind) in parts(begin, end).into_iter().filter(|(begin, end)| begin < end) {
                    let bytes = behind - address;
                    let moves = is_managed && outlives && bytes >= CHUNK_BYTES;
                    let piece = pieces.entry((address, extent.block)).or_insert_with(|| Piece {
                        block: extent.block,
                        address,
                        bytes,
                        is_managed,
                        moves,
                        outlives,
                        uses: Vec::new(),
                    });
                    if piece.uses.last() != Some(&op) {
                        piece.uses.push(op);
                    }
                }
            }
        }
    }
    pieces.into_values().collect()
}
