//! Calls about the memory of one process, by any actuator.

use std::time::Duration;

use model::{Action, CallResult};
use sys::uvm::pages::PageRange;

/// Cost of the calls for a part of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Duration of the calls made.
    pub(crate) took: Duration,
    /// Number of advice calls that reached the driver, with any result.
    pub(crate) advice_calls: u64,
}

impl Cost {
    pub(crate) const fn add_advice_calls(&mut self, count: u64) {
        self.advice_calls = self.advice_calls.saturating_add(count);
    }
}

/// Calls of a batch.
pub(crate) trait Calls {
    /// Makes the call of an action on pages, and adds its cost, if it was made.
    ///
    /// # Errors
    /// Result of this call and of the rest of its order, which gets no more calls.
    fn make(&mut self, action: Action, pages: PageRange, cost: &mut Cost) -> Result<CallResult, CallResult>;
}
