//! Residency by granules or by pages.

use super::{Memory, Place};
use crate::{
    mask::{BlockMask, PageMask},
    units::Mask,
};

/// Part of a block, in the granularity in which residency is read and written.
pub(crate) trait Placed: BlockMask {
    /// Residency of a block.
    fn place(memory: &Memory, block: u64) -> Place<Self>;
    /// Sets the residency of a block.
    fn put(memory: &mut Memory, block: u64, place: Place<Self>);
}

impl Placed for Mask {
    fn place(memory: &Memory, block: u64) -> Place {
        memory.place(block)
    }

    fn put(memory: &mut Memory, block: u64, place: Place) {
        memory.put(block, place);
    }
}

impl Placed for PageMask {
    fn place(memory: &Memory, block: u64) -> Place<Self> {
        memory.pages(block)
    }

    fn put(memory: &mut Memory, block: u64, place: Place<Self>) {
        memory.put_pages(block, place);
    }
}
