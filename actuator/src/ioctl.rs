//! Calls by ioctls of the driver, which an actor makes on descriptors of the process.

use std::{os::fd::AsFd, time::Duration};

use model::{Action, Advice, CallResult, Place};
use sys::{
    pidfd::PidFd,
    uvm::{Status, Uuid, UvmError, call::Call as DriverCall, pages::PageRange},
};

use crate::{
    actors::{Actors, Batch},
    budget::TimeBudget,
    calls::Calls,
    hung::Target,
    process::answer_of,
};

/// Calls by an actor.
pub(crate) struct IoctlCalls<'a, 'b> {
    process: &'a PidFd,
    batch: Batch<'a, 'b>,
}

impl<'a, 'b> IoctlCalls<'a, 'b> {
    /// Starts an actor for these VA spaces of the process.
    pub(crate) fn start(
        actors: &'a mut Actors,
        process: &'a PidFd,
        target: Target,
        spaces: &[impl AsFd],
        budget: &'a mut TimeBudget<'b>,
    ) -> Result<Self, CallResult> {
        Ok(Self { process, batch: actors.start(process, target, spaces, budget)? })
    }

    fn answer_of(&self, error: &UvmError, action: Action) -> CallResult {
        match (error, action) {
            (UvmError::Refused { status: Status::NO_MEMORY, .. }, Action::Migrate(Place::Host)) => {
                CallResult::HostMemory
            }
            _ => answer_of(self.process, error),
        }
    }

    fn ask(&mut self, space: usize, call: DriverCall, took: &mut Duration) -> Result<(), Failed> {
        let reply = self.batch.call(self.process, space, call).map_err(Failed::Over)?;
        *took = took.saturating_add(reply.took);
        reply.result.map_err(Failed::Uvm)
    }
}

impl Calls for IoctlCalls<'_, '_> {
    fn make(&mut self, action: Action, pages: PageRange, took: &mut Duration) -> Result<CallResult, CallResult> {
        let spaces: Vec<usize> = (0..self.batch.spaces()).collect();
        match call_each(&spaces, |space| self.ask(*space, driver_call(action, pages), took)) {
            Ok(()) => Ok(CallResult::Done),
            Err(Failed::Uvm(error)) => Ok(self.answer_of(&error, action)),
            Err(Failed::Over(answer)) => Err(answer),
        }
    }
}

/// Reason of a failed or omitted call.
#[derive(Debug)]
enum Failed {
    Uvm(UvmError),
    /// The call was not made, or had no reply; the order gets no more calls.
    Over(CallResult),
}

/// The VA space that has the pages executes the call. Most processes have one. Only if one replies
/// that it lacks the pages is the next one called: another may be that of the process it was forked
/// from, with other memory at the same addresses.
fn call_each<S>(spaces: &[S], mut ask: impl FnMut(&S) -> Result<(), Failed>) -> Result<(), Failed> {
    let mut nowhere = None;
    for space in spaces {
        match ask(space) {
            Err(error @ Failed::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. })) => {
                nowhere = Some(error);
            }
            answer => return answer,
        }
    }
    nowhere.map_or(Ok(()), Err)
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
        let nowhere = || Failed::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS });
        let calls = Cell::new(0);
        let has = |wanted: u32| {
            calls.set(0);
            call_each(&[1, 2, 3], |space| {
                calls.set(calls.get() + 1);
                if *space == wanted { Ok(()) } else { Err(nowhere()) }
            })
        };
        assert!(has(2).is_ok());
        assert_eq!(calls.get(), 2);
        assert!(matches!(has(4), Err(Failed::Uvm(UvmError::Refused { status: Status::INVALID_ADDRESS, .. }))));
    }

    #[test]
    fn driver_error_of_a_va_space_ends_the_search() {
        let calls = Cell::new(0);
        let answer = call_each(&[1, 2, 3], |space| {
            calls.set(calls.get() + 1);
            let status = if *space == 2 { Status::NO_MEMORY } else { Status::INVALID_ADDRESS };
            Err(Failed::Uvm(UvmError::Refused { request: "UVM_MIGRATE", status }))
        });
        assert!(matches!(answer, Err(Failed::Uvm(UvmError::Refused { status: Status::NO_MEMORY, .. }))));
        assert_eq!(calls.get(), 2);
    }
}
