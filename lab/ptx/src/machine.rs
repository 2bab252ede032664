//! Execution of compiled kernels.

pub(crate) mod access;
pub(crate) mod barrier;
mod block;
mod grid;
mod group;
pub(crate) mod program;
pub(crate) mod state;
mod sync;
mod warp;

pub(crate) use grid::run;

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

/// Generic addresses of shared memory begin here.
pub(crate) const SHARED_WINDOW: u64 = 1 << 56;
/// Generic addresses of local memory begin here.
pub(crate) const LOCAL_WINDOW: u64 = 2 << 56;
/// Generic addresses of the kernel's arguments begin here.
pub(crate) const PARAMETER_WINDOW: u64 = 3 << 56;
/// Addresses of functions begin here.
pub(crate) const FUNCTION_WINDOW: u64 = 4 << 56;
/// Bytes of one of these windows.
pub(crate) const SPACE_WINDOW_BYTES: u64 = 1 << 56;

/// Active lanes of a mask, in order.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < LANES).then_some(lane)
    })
}

/// Calls a function for each active lane of a mask, in order.
#[inline]
pub(crate) fn for_lanes(mask: u32, mut work: impl FnMut(usize)) {
    if mask == u32::MAX {
        (0..LANES).for_each(work);
    } else if mask & mask.wrapping_add(1) == 0 {
        // Warps of small blocks lack upper lanes.
        (0..mask.trailing_ones() as usize).for_each(work);
    } else {
        lanes(mask).for_each(&mut work);
    }
}
