//! Contexts in which the helper's thread calls the driver: those that the program allocated memory in.
//! None is made or retained, and none stays current.

use crate::{
    blocks::{Block, Blocks},
    cuda::Handle,
    driver,
};

/// Context that a block was allocated in; `None` if it is there no more.
pub(crate) fn context_of(block: Block) -> Option<Handle> {
    driver::context_of(block.begin, block.context)
}

/// Makes a context of a device current that the program allocated memory in: the memory's own, or
/// another.
pub(crate) fn enter_context_of(blocks: &Blocks, device: i32, own: Handle) -> Option<Handle> {
    let next = |block: &Block| blocks.next_context_block(block.context);
    let others = core::iter::successors(blocks.next_context_block(0), next).filter_map(context_of);
    let mut contexts = core::iter::once(own).chain(others);
    let found = contexts.find(|context| driver::enter_context(*context) == Some(device));
    if found.is_none() {
        driver::leave_context();
    }
    found
}
