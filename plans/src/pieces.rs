//! Memory used by an iteration, in units of the driver's blocks.
//!
//! * `cut`: division of memory into pieces, which are counted before they are allocated

mod cut;

use call_ring::plan::PAGE_BYTES;
use planner::Part;
use serde::{Deserialize, Serialize};
use trace::{BlockId, Draft, Iteration, OpStream, Role, Tensor, TensorId, draft::DraftKernel, footprints::Extent};

pub(crate) use self::cut::{NAMED_BYTES_MAX, PIECES_BYTES_MAX};
use crate::{claims::ClaimLimits, refusal::Refusal};

/// Maximum number of pieces in an iteration; units are enlarged to stay within it.
pub const PIECES_MAX: usize = 1024;

/// Size of a driver chunk, and minimum size of a partial block that is prefetched.
const CHUNK_BYTES: u64 = 64 << 10;

/// Unit of memory that moves as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// Allocation that contains the piece.
    pub block: BlockId,
    /// First address.
    pub address: u64,
    /// Size.
    pub bytes: u64,
    /// Whether the memory is managed.
    pub is_managed: bool,
    /// Whether the piece may be moved: managed memory that outlives iterations, except partial
    /// blocks smaller than a driver chunk.
    pub is_movable: bool,
    /// Whether the memory is alive before and after the iteration.
    pub outlives: bool,
    /// Launches that use the piece, by index in the iteration, ascending. Not empty.
    pub uses: Vec<usize>,
}

impl Piece {
    /// Whether the piece consists of whole driver blocks. These have GPU frames of their own, which
    /// are freed when the piece leaves. A partial block has chunks of a frame that it shares with
    /// other parts, and keeps them.
    #[must_use]
    pub const fn is_block_aligned(&self) -> bool {
        is_aligned(self.address) && is_aligned(self.bytes)
    }
}

/// Memory used by an iteration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pieces {
    /// Number of launches.
    pub ops: usize,
    /// All pieces, sorted by address.
    pub all: Vec<Piece>,
}

/// Properties of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationInfo {
    pub(crate) is_managed: bool,
    pub(crate) outlives: bool,
}

impl Pieces {
    /// Cuts the extents that each launch of an iteration uses into pieces. Unmapped claims are
    /// omitted.
    ///
    /// # Errors
    /// If the pieces would exceed their memory budget.
    pub(crate) fn of(
        stream: &OpStream,
        uses: &[Vec<Extent>],
        limits: &ClaimLimits,
        block: impl Fn(BlockId) -> AllocationInfo,
    ) -> Result<Self, Refusal> {
        Ok(Self { ops: uses.len(), all: cut::pieces(&cut::Claims { stream, limits, block: &block }, uses)? })
    }

    /// Heap bytes held.
    pub(crate) fn heap_bytes(&self) -> usize {
        let uses = self.all.iter().map(|piece| piece.uses.capacity() * size_of::<usize>()).sum::<usize>();
        self.all.capacity() * size_of::<Piece>() + uses
    }

    /// Keeps the managed pieces only.
    pub(crate) fn managed(mut self) -> Self {
        self.all.retain(|piece| piece.is_managed);
        self
    }

    /// Pieces of whole blocks, which have frames of their own.
    pub(crate) fn whole_blocks(&self) -> Self {
        self.filtered(Piece::is_block_aligned)
    }

    /// Partial blocks, which share frames.
    pub(crate) fn partial_blocks(&self) -> Self {
        self.filtered(|piece| !piece.is_block_aligned())
    }

    fn filtered(&self, is_in: impl Fn(&Piece) -> bool) -> Self {
        Self { ops: self.ops, all: self.all.iter().filter(|piece| is_in(piece)).cloned().collect() }
    }

    /// Maximum bytes used by a launch.
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

    /// Indices of the pieces that each launch uses.
    pub(crate) fn by_op(&self) -> Vec<Vec<usize>> {
        let mut by_op = vec![Vec::new(); self.ops];
        for (index, piece) in self.all.iter().enumerate() {
            for op in &piece.uses {
                if let Some(uses) = by_op.get_mut(*op) {
                    uses.push(index);
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

    /// Bytes resident on the GPU throughout the iteration.
    #[must_use]
    pub fn immovable_bytes(&self) -> u64 {
        sum(self.all.iter().filter(|piece| piece.outlives && !piece.is_movable))
    }

    /// Bytes alive at each launch.
    pub(crate) fn bytes_by_op(&self) -> Vec<u64> {
        // Difference array over launches: there may be many pieces, each alive for many launches.
        let mut changes = vec![0_i128; self.ops + 1];
        for piece in &self.all {
            let (first, end) = match (piece.uses.first(), piece.uses.last()) {
                (Some(first), Some(last)) if !piece.outlives => (*first, last + 1),
                _ => (0, self.ops),
            };
            for (at, change) in [(first, i128::from(piece.bytes)), (end, -i128::from(piece.bytes))] {
                if let Some(bytes) = changes.get_mut(at) {
                    *bytes += change;
                }
            }
        }
        let alive = changes.into_iter().scan(0, |bytes, change| {
            *bytes += change;
            Some(u64::try_from(*bytes).unwrap_or(u64::MAX))
        });
        alive.take(self.ops).collect()
    }

    /// Padding of partial blocks: bytes of driver chunks that they do not fill. The driver places
    /// aligned 64 KiB of a part in a chunk of their own, and the remaining pages in other chunks
    /// (`uvm_va_block_gpu_chunk_index_range` of `uvm_va_block.c`, 535 to 550).
    #[must_use]
    pub fn padding_bytes(&self) -> u64 {
        let rounded = |bytes: u64, unit: u64| bytes.checked_next_multiple_of(unit).unwrap_or(bytes);
        let (mut bytes, mut chunks_bytes, mut pages_bytes) = (0_u64, 0_u64, 0_u64);
        for piece in self.all.iter().filter(|piece| !piece.is_block_aligned()) {
            let (begin, end) = (piece.address, piece.address.saturating_add(piece.bytes));
            let in_chunks_bytes = (end / CHUNK_BYTES * CHUNK_BYTES).saturating_sub(rounded(begin, CHUNK_BYTES));
            let in_pages_bytes = rounded(end, PAGE_BYTES) - begin / PAGE_BYTES * PAGE_BYTES - in_chunks_bytes;
            bytes = bytes.saturating_add(piece.bytes);
            chunks_bytes = chunks_bytes.saturating_add(in_chunks_bytes);
            pages_bytes = pages_bytes.saturating_add(in_pages_bytes);
        }
        chunks_bytes.saturating_add(rounded(pages_bytes, CHUNK_BYTES)).saturating_sub(bytes)
    }

    /// Iteration for planners, with a tensor per piece that is not resident throughout and a kernel
    /// per launch; and the piece index of each tensor.
    pub(crate) fn iteration(&self, durations_ns: &[u64]) -> Result<(Iteration, Vec<usize>), Refusal> {
        let mut draft = Draft::default();
        let mut kernels = vec![Vec::new(); self.ops];
        let mut tensor_pieces = Vec::new();
        for (index, piece) in self.all.iter().enumerate().filter(|(_, piece)| piece.is_movable || !piece.outlives) {
            let name = format!("{:#x}", piece.address);
            let tensor = Tensor { name, bytes: piece.bytes, role: Role::Other, persistent: piece.outlives };
            let id: TensorId = draft.tensor(tensor);
            tensor_pieces.push(index);
            for op in &piece.uses {
                if let Some(tensors) = kernels.get_mut(*op) {
                    tensors.push(id);
                }
            }
        }
        // Reads and writes are not distinguished, so all memory is input and output.
        for (tensors, duration_ns) in kernels.into_iter().zip(durations_ns) {
            let name = String::new();
            draft.kernel(DraftKernel { name, duration_ns: *duration_ns, inputs: tensors.clone(), outputs: tensors });
        }
        let iteration = draft.check().map_err(|reason| Refusal::Invalid { reason: reason.to_string() })?;
        Ok((iteration, tensor_pieces))
    }
}

const fn is_aligned(bytes: u64) -> bool {
    bytes.is_multiple_of(Part::BLOCK_BYTES)
}

fn sum<'a>(pieces: impl Iterator<Item = &'a Piece>) -> u64 {
    pieces.map(|piece| piece.bytes).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Partial blocks, each freed after the launch that uses it, unless it outlives iterations.
    fn pieces(parts: &[(u64, u64, bool, usize)]) -> Pieces {
        let piece = |&(address, bytes, outlives, op): &(u64, u64, bool, usize)| Piece {
            block: BlockId(0),
            address,
            bytes,
            is_managed: true,
            is_movable: false,
            outlives,
            uses: vec![op],
        };
        Pieces { ops: 2, all: parts.iter().map(piece).collect() }
    }

    #[test]
    fn partial_blocks_use_chunks_where_aligned_and_pages_elsewhere() {
        const KIB: u64 = 1 << 10;
        let padding = |parts: &[(u64, u64)]| {
            let parts: Vec<_> = parts.iter().map(|(address, bytes)| (*address, *bytes, true, 0)).collect();
            pieces(&parts).padding_bytes()
        };
        assert_eq!(padding(&[(0, 128 * KIB)]), 0);
        assert_eq!(padding(&[(0, 100 * KIB)]), 28 * KIB);
        // The remainders of both share a chunk.
        assert_eq!(padding(&[(0, 100 * KIB), (2048 * KIB, 68 * KIB)]), 24 * KIB);
        assert_eq!(padding(&[(32 * KIB, 64 * KIB)]), 0);
        assert_eq!(padding(&[(0, 16)]), 64 * KIB - 16);
        assert_eq!(padding(&[(0, 2048 * KIB)]), 0);
    }

    #[test]
    fn freed_memory_counts_from_its_first_to_its_last_use() {
        let pieces = pieces(&[(0, 10, true, 1), (100, 20, false, 0), (200, 40, false, 1)]);
        assert_eq!(pieces.bytes_by_op(), [30, 50]);
    }
}
