//! Calls by ioctls of the driver, which an actor makes on descriptors of the process.

use std::os::fd::AsFd;

use model::{Action, Advice, CallResult, GpuUuid, Place};
use sys::{
    pidfd::PidFd,
    uvm::{Status, Uuid, UvmError, call::Call as DriverCall, pages::PageRange},
};

use crate::{
    actors::{Actors, Batch},
    budget::TimeBudget,
    calls::{Calls, Cost},
    process::call_error_result,
    slots::Target,
};

/// Calls by an actor.
pub(crate) struct IoctlCalls<'a, 'b> {
    process: &'a PidFd,
    /// GPU of the order.
    gpu: GpuUuid,
    batch: Batch<'a, 'b>,
}

impl<'a, 'b> IoctlCalls<'a, 'b> {
    /// Starts an actor for these VA spaces of the process.
    pub(crate) fn start(
        actors: &'a mut Actors,
        process: &'a PidFd,
        target: Target,
        is_withdrawal: bool,
        gpu: GpuUuid,
        spaces: &[impl AsFd],
        budget: &'a mut TimeBudget<'b>,
    ) -> Result<Self, CallResult> {
        Ok(Self { process, gpu, batch: actors.start(process, target, is_withdrawal, spaces, budget)? })
    }

    fn call_error_result(&self, error: &UvmError, action: Action) -> CallResult {
        match (error, action) {
            (UvmError::Refused { status: Status::NO_MEMORY, .. }, Action::Migrate(Place::Host)) => {
                CallResult::HostMemory
            }
            _ => call_error_result(self.process, error),
        }
    }

    fn call(&mut self, space: usize, call: DriverCall, cost: &mut Cost) -> Result<(), CallError> {
        let reply = self.batch.call(self.process, space, call).map_err(CallError::Aborted)?;
        cost.took = cost.took.saturating_add(reply.took);
        reply.result.map_err(CallError::Uvm)
    }
}

impl IoctlCalls<'_, '_> {
    fn call_spaces(&mut self, action: Action, pages: PageRange, cost: &mut Cost) -> Result<CallResult, CallResult> {
        let spaces: Vec<usize> = (0..self.batch.spaces()).collect();
        let mut made = Cost::default();
        let called = call_each(&spaces, |space| self.call(*space, driver_call(action, pages), &mut made));
        cost.took = cost.took.saturating_add(made.took);
        // A call that was not made has no duration, and the probes have not counted it either.
        let is_made = called.is_ok() || !made.took.is_zero();
        if is_made && matches!(action, Action::Advise(_) | Action::Withdraw(_)) {
            cost.add_advice_calls(1);
        }
        match called {
            Ok(()) => Ok(CallResult::Done),
            Err(CallError::Uvm(error)) => Ok(self.call_error_result(&error, action)),
            Err(CallError::Aborted(result)) => Err(result),
        }
    }
}

impl Calls for IoctlCalls<'_, '_> {
    fn make(&mut self, action: Action, pages: PageRange, cost: &mut Cost) -> Result<CallResult, CallResult> {
        if let Action::Withdraw(Advice::PreferredLocation(Place::Host)) = action {
            // The GPU's mappings of host memory stay when the advice is withdrawn, and no fault
            // would migrate it. A new preferred location removes remote mappings
            // (`preferred_location_unmap_remote_pages` in `uvm_policy.c`), and copies nothing. If
            // the driver fails that, the advice is withdrawn all the same.
            let to_gpu = Action::Advise(Advice::PreferredLocation(Place::Gpu(self.gpu)));
            self.call_spaces(to_gpu, pages, cost)?;
        }
        self.call_spaces(action, pages, cost)
    }
}

/// Reason of a failed or omitted call.
#[derive(Debug)]
enum CallError {
    Uvm(UvmError),
    /// The call was not made, or had no reply; the order gets no more calls.
    Aborted(CallResult),
}

/// Makes a call on the VA space that has the pages. Most processes have one VA space. The next one
/// is called only if the last one replies that it lacks the pages: another may be that of the
/// process it was forked from, with other memory at the same addresses.
fn call_each<S>(spaces: &[S], mut call: impl FnMut(&S) -> Result<(), CallError>) -> Result<(), CallError> {
    let mut not_found = None;
    for space in spaces {
        match call(space) {
            Err(error @ CallError::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. })) => {
                not_found = Some(error);
            }
            result => return result,
        }
    }
    not_found.map_or(Ok(()), Err)
}

const fn driver_call(action: Action, pages: PageRange) -> DriverCall {
    match action {
        Action::Migrate(place) => DriverCall::Migrate(pages, uuid(place)),
        Action::Touch(gpu) => DriverCall::Migrate(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::PreferredLocation(place)) => DriverCall::SetPreferredLocation(pages, uuid(place)),
        Action::Withdraw(Advice::PreferredLocation(_)) => DriverCall::UnsetPreferredLocation(pages),
        Action::Advise(Advice::AccessedBy(gpu)) => DriverCall::SetAccessedBy(pages, uuid(Place::Gpu(gpu))),
        Action::Withdraw(Advice::AccessedBy(gpu)) => DriverCall::UnsetAccessedBy(pages, uuid(Place::Gpu(gpu))),
        Action::Advise(Advice::ReadDuplication) => DriverCall::EnableReadDuplication(pages),
        Action::Withdraw(Advice::ReadDuplication) => DriverCall::DisableReadDuplication(pages),
    }
}

const fn uuid(place: Place) -> Uuid {
    match place {
        Place::Host => Uuid::CPU,
        Place::Gpu(gpu) => Uuid::from_bytes(gpu.0),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn va_space_with_the_range_is_found() {
        let not_found =
            || CallError::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS });
        let calls = Cell::new(0);
        let has = |wanted: u32| {
            calls.set(0);
            call_each(&[1, 2, 3], |space| {
                calls.set(calls.get() + 1);
                if *space == wanted { Ok(()) } else { Err(not_found()) }
            })
        };
        assert!(has(2).is_ok());
        assert_eq!(calls.get(), 2);
        assert!(matches!(has(4), Err(CallError::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. }))));
    }

    #[test]
    fn driver_error_of_a_va_space_ends_the_search() {
        let calls = Cell::new(0);
        let result = call_each(&[1, 2, 3], |space| {
            calls.set(calls.get() + 1);
            let status = if *space == 2 { Status::NO_MEMORY } else { Status::INVALID_ADDRESS };
            Err(CallError::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status }))
        });
        assert!(matches!(result, Err(CallError::Uvm(UvmError::Refused { status: Status::NO_MEMORY, .. }))));
        assert_eq!(calls.get(), 2);
    }
}
