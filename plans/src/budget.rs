//! Memory of a follower. Programs choose what it holds, so that each part has a limit, which is checked
//! before memory is taken for it.
//!
//! | part | limit | beyond it |
//! | --- | --- | --- |
//! | what the program has, now, before the window, and while an iteration is taken apart | 8 MiB each | [`Refusal::Incomplete`] |
//! | calls of the window | [`WINDOW_BYTES`] | the first ones leave |
//! | detector, and marks of calls | 40 MiB | tokens leave |
//! | counts of faults, at first and last | [`FAULTED_BLOCKS_MAX`](crate::coverage::FAULTED_BLOCKS_MAX) | [`Refusal::TooManyFaults`] |
//! | an iteration as a stream of operations, with footprints | [`STREAM_BYTES_MAX`] | [`Refusal::MemoryBudget`] |
//! | extents and pieces | 24 MiB | the same |
//!
//! Planners have limits of their own.

use crate::refusal::Refusal;

/// Most bytes of a follower.
pub const FOLLOWER_BYTES_MAX: usize = 160 << 20;
/// Bytes of calls that are retained.
pub const WINDOW_BYTES: usize = 8 << 20;
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
