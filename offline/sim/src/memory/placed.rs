//! Granules or pages of a block, and where they are.

use super::{Memory, Place};
use crate::{
    mask::{BlockMask, PageMask},
    units::Mask,
};

/// Some of a block, as fine as memory is told apart.
pub(crate) trait Placed: BlockMask {
    /// Where a block is, as fine as that.
    fn place(memory: &Memory, block: u64) -> Place<Self>;
    /// Puts a block elsewhere.
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
