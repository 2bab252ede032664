//! Memory budget of a follower. Its size depends on untrusted programs, so each part has a limit,
//! which is checked before memory is allocated.
//!
//! | memory | limit | beyond the limit |
//! | --- | --- | --- |
//! | program state: the current one, one before the window, and one during an analysis | [`PROGRAM_BYTES_MAX`] each | [`Refusal::Incomplete`] |
//! | calls of the window | [`WINDOW_BYTES`] | the oldest are dropped |
//! | detector, and marks of calls | [`DETECTOR_BYTES_MAX`] | tokens are dropped |
//! | first and last fault counts | [`FAULTED_BLOCKS_MAX`] blocks each | [`Refusal::TooManyFaults`] |
//! | operations of an iteration, with footprints | [`STREAM_BYTES_MAX`] | [`Refusal::MemoryBudget`] |
//! | pieces, and pieces reduced by probes | `PIECES_BYTES_MAX` each | [`Refusal::MemoryBudget`] |
//! | named ranges from which pieces are counted | `NAMED_BYTES_MAX` | [`Refusal::MemoryBudget`] |
//!
//! Planners have limits of their own. One follower at a time analyses an iteration, so
//! [`TURN_BYTES_MAX`] is needed once for all followers.

use recorder::PROGRAM_BYTES_MAX;

use crate::{
    coverage::{COUNT_BYTES, FAULTED_BLOCKS_MAX},
    pieces::{NAMED_BYTES_MAX, PIECES_BYTES_MAX},
    refusal::Refusal,
};

/// Maximum bytes of a follower between calls.
pub const HELD_BYTES_MAX: usize =
    2 * PROGRAM_BYTES_MAX + WINDOW_BYTES + DETECTOR_BYTES_MAX + 2 * FAULTED_BLOCKS_MAX * COUNT_BYTES + PIECES_BYTES_MAX;
/// Maximum additional bytes of a follower while it analyses an iteration.
pub const TURN_BYTES_MAX: usize = PROGRAM_BYTES_MAX + STREAM_BYTES_MAX + NAMED_BYTES_MAX + PIECES_BYTES_MAX;
/// Bytes of retained calls.
pub const WINDOW_BYTES: usize = 8 << 20;
/// Maximum bytes of the detector, and of the marks of calls.
pub const DETECTOR_BYTES_MAX: usize = 24 << 20;
/// Maximum bytes of an iteration as a stream of operations.
pub const STREAM_BYTES_MAX: usize = 48 << 20;

/// Bytes of an operation in a stream, and of an address that it names.
const OP_BYTES: usize = 160;
const ADDRESS_BYTES: usize = 192;

/// Checks the size of a stream of this number of operations, which name this number of addresses.
pub(crate) const fn check_stream(ops: usize, addresses: usize) -> Result<(), Refusal> {
    let bytes = ops.saturating_mul(OP_BYTES).saturating_add(addresses.saturating_mul(ADDRESS_BYTES));
    if bytes > STREAM_BYTES_MAX {
        return Err(Refusal::MemoryBudget { needed_bytes: bytes as u64, limit_bytes: STREAM_BYTES_MAX as u64 });
    }
    Ok(())
}
