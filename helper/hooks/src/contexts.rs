//! Contexts in which the helper's thread calls the driver: those of the program's allocations. No
//! context is created, retained, or left current.

use crate::{
    blocks::{Block, Blocks},
    cuda::Handle,
    driver,
};

/// Context of a block's allocation; `None` if the block no longer exists.
pub(crate) fn context_of(block: Block) -> Option<Handle> {
    driver::context_of(block.begin, block.context)
}

/// Enters a context of the device in which the program has allocated memory, preferably `own`, the
/// context of the memory to act on. `None`, with no context current, if there is none.
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
