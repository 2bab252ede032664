//! Calls about the memory of one process, whoever makes them.

use std::time::Duration;

use model::{Action, CallResult};
use sys::uvm::pages::PageRange;

/// Calls of a batch.
pub(crate) trait Calls {
    /// Makes the call of an action on pages, and adds the time that it took, if it was made.
    ///
    /// # Errors
    /// Result of this call and of the rest of its order, which gets no more calls.
    fn make(&mut self, action: Action, pages: PageRange, took: &mut Duration) -> Result<CallResult, CallResult>;
}
