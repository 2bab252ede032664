//! Residency of a block beyond its own note: at other GPUs, and of parts that the driver manages
//! separately.

use std::collections::HashMap;

use super::seen::GpuIndex;

/// Maximum of one process: seldom more than a few.
const PIECES_MAX: usize = 16_384;

/// Pieces of blocks.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Pieces by block number.
    pieces: HashMap<u64, Vec<Piece>>,
    count: usize,
}

/// Part of a block, or all of it, at a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) gpu: GpuIndex,
    /// First page in the block.
    pub(super) first_page: u16,
    /// Pages of 4 KiB.
    pub(super) resident: u16,
    /// Time of the record, ns since boot.
    pub(super) recorded_ns: u64,
}

impl Pieces {
    /// Sets the residency of a piece; returns the former one. `Err` if there is no room.
    pub(super) fn set(&mut self, number: u64, piece: Piece) -> Result<Option<Piece>, Full> {
        let before = self.take(number, |other| other.gpu == piece.gpu && other.first_page == piece.first_page).pop();
        if piece.resident > 0 {
            if self.count >= PIECES_MAX {
                return Err(Full(before));
            }
            self.pieces.entry(number).or_default().push(piece);
            self.count += 1;
        }
        Ok(before)
    }

    /// Removes some pieces of a block.
    pub(super) fn take(&mut self, number: u64, mut which: impl FnMut(&Piece) -> bool) -> Vec<Piece> {
        let Some(pieces) = self.pieces.get_mut(&number) else { return Vec::new() };
        let taken: Vec<_> = pieces.extract_if(.., |piece| which(piece)).collect();
        self.count -= taken.len();
        if pieces.is_empty() {
            self.pieces.remove(&number);
        }
        taken
    }

    /// Pieces of a block.
    pub(super) fn of(&self, number: u64) -> &[Piece] {
        self.pieces.get(&number).map_or(&[], Vec::as_slice)
    }

    /// Changes all pieces; empty ones are removed.
    pub(super) fn change(&mut self, mut change: impl FnMut(&mut Piece)) {
        self.pieces.retain(|_, pieces| {
            pieces.iter_mut().for_each(&mut change);
            pieces.retain(|piece| piece.resident > 0);
            !pieces.is_empty()
        });
        self.count = self.pieces.values().map(Vec::len).sum();
    }
}

/// Error: there is no room. The former entry is removed.
#[derive(Debug)]
pub(super) struct Full(pub(super) Option<Piece>);
