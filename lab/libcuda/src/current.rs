//! Contexts that are current to the calling thread: a stack of handles.

use std::cell::RefCell;

use crate::{Error, Result, handle::Handle};

thread_local! {
    static CURRENT: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

fn with_stack<T>(work: impl FnOnce(&mut Vec<Handle>) -> T) -> Result<T> {
    // A thread that ends has no contexts any more.
    CURRENT.try_with(|stack| work(&mut stack.borrow_mut())).map_err(|_| Error::CUDA_ERROR_DEINITIALIZED)
}

/// Handle on top of the calling thread's stack; 0 if there is none.
pub(crate) fn top() -> Result<Handle> {
    with_stack(|stack| stack.last().copied().unwrap_or(0))
}

/// Replaces the top of the stack; 0 empties it.
pub(crate) fn set_top(handle: Handle) -> Result<()> {
    with_stack(|stack| {
        stack.pop();
        if handle != 0 {
            stack.push(handle);
        }
    })
}

/// Pushes a context.
pub(crate) fn push(handle: Handle) -> Result<()> {
    with_stack(|stack| stack.push(handle))
}

/// Pops a context.
///
/// # Errors
/// There is none.
pub(crate) fn pop() -> Result<Handle> {
    with_stack(Vec::pop)?.ok_or(Error::CUDA_ERROR_INVALID_CONTEXT)
}
