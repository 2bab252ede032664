//! Memory of a follower. Programs choose what it holds, so that each part has a limit, which is checked
//! before memory is taken for it.
//!
//! | part | limit | beyond it |
//! | --- | --- | --- |
//! | what the program has: now, before the window, and while an iteration is taken apart | [`PROGRAM_BYTES_MAX`] each | [`Refusal::Incomplete`] |
//! | calls of the window | [`WINDOW_BYTES`] | the first ones leave |
//! | detector, and marks of calls | [`DETECTOR_BYTES_MAX`] | tokens leave |
//! | counts of faults, at first and last | [`FAULTED_BLOCKS_MAX`] each | [`Refusal::TooManyFaults`] |
//! | an iteration as a stream of operations, with footprints | [`STREAM_BYTES_MAX`] | [`Refusal::MemoryBudget`] |
//! | pieces, also reduced ones, and what they are counted by | 12 MiB each | the same |
//!
//! Planners have limits of their own. Iterations are taken apart by one follower at a time, so that
//! [`TURN_BYTES_MAX`] is taken once by all of them.

use recorder::PROGRAM_BYTES_MAX;

use crate::{
    coverage::{COUNT_BYTES, FAULTED_BLOCKS_MAX},
    pieces::{NAMED_BYTES_MAX, PIECES_BYTES_MAX},
    refusal::Refusal,
};

/// Most bytes of a follower between calls.
pub const HELD_BYTES_MAX: usize =
    2 * PROGRAM_BYTES_MAX + WINDOW_BYTES + DETECTOR_BYTES_MAX + 2 * FAULTED_BLOCKS_MAX * COUNT_BYTES + PIECES_BYTES_MAX;
/// Most bytes that it takes beyond these while it takes an iteration apart.
pub const TURN_BYTES_MAX: usize = PROGRAM_BYTES_MAX + STREAM_BYTES_MAX + NAMED_BYTES_MAX + PIECES_BYTES_MAX;
/// Bytes of calls that are retained.
pub const WINDOW_BYTES: usize = 8 << 20;
/// Most bytes of the detector, and of the marks of calls.
pub const DETECTOR_BYTES_MAX: usize = 24 << 20;
/// Most bytes of an iteration as a stream of operations.
pub const STREAM_BYTES_MAX: usize = 48 << 20;

/// Bytes of an operation in a stream, and of an address that one names.
const OP_BYTES: usize = 160;
const ADDRESS_BYTES: usize = 192;

/// Checks the size of a stream of operations, by their number and that of the addresses in them.
pub(crate) const fn check_stream(ops: usize, addresses: usize) -> Result<(), Refusal> {
    let bytes = ops.saturating_mul(OP_BYTES).saturating_add(addresses.saturating_mul(ADDRESS_BYTES));
    if bytes > STREAM_BYTES_MAX {
        return Err(Refusal::MemoryBudget { needed_bytes: bytes as u64, limit_bytes: STREAM_BYTES_MAX as u64 });
    }
    Ok(())
}
