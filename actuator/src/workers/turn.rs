//! Whether a withdrawal waits for the worker whose thread this is. What waits for a lock that its process may hold for ever asks that, and gives way.

use std::{cell::RefCell, sync::Arc};

use super::queue::Queue;

thread_local! {
    /// The orders of this thread, if it is a worker's.
    static QUEUE: RefCell<Option<Arc<Queue>>> = const { RefCell::new(None) };
}

/// This thread carries out these orders from now on.
pub(super) fn begin(orders: &Arc<Queue>) {
    QUEUE.set(Some(Arc::clone(orders)));
}

/// Whether a withdrawal about another process than this one waits for this thread. Never, in a thread that is no worker's.
pub(crate) fn is_awaited_beside(pid: u32) -> bool {
    QUEUE.with_borrow(|orders| orders.as_ref().is_some_and(|orders| orders.has_withdrawal_beside(pid)))
}
