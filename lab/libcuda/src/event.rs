//! Events: points of streams, and when they were reached.

use std::sync::{Mutex, PoisonError};

use crate::{Error, Result, handle::Handle, operation::Time, queue::Point};

/// Event of a context.
#[derive(Debug)]
pub(crate) struct Event {
    /// Handle.
    pub(crate) handle: Handle,
    /// Has times: made without `CU_EVENT_DISABLE_TIMING`.
    pub(crate) timing: bool,
    /// Last record.
    recorded: Mutex<Option<Recorded>>,
    /// Last record, if it was captured: graph, and nodes behind which it is.
    captured: Mutex<Option<Captured>>,
}

/// Graph that is captured, and the nodes behind which something is.
pub(crate) type Captured = (Handle, Vec<Handle>);

#[derive(Clone, Debug)]
struct Recorded {
    point: Point,
    time: Time,
}

impl Event {
    /// Event that was not recorded.
    pub(crate) fn new(handle: Handle, timing: bool) -> Self {
        Self { handle, timing, recorded: Mutex::new(None), captured: Mutex::new(None) }
    }

    fn recorded(&self) -> Option<Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the point of a stream that it is, and where the time of that is.
    pub(crate) fn set_recorded(&self, point: Point, time: Time) {
        *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(Recorded { point, time });
    }

    /// Sets where it is in a graph that is captured.
    pub(crate) fn capture(&self, captured: Option<Captured>) {
        *self.captured.lock().unwrap_or_else(PoisonError::into_inner) = captured;
    }

    /// Where it is in a graph that is captured.
    pub(crate) fn captured(&self) -> Option<Captured> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Point of the last record, if any.
    pub(crate) fn point(&self) -> Option<Point> {
        self.recorded().map(|recorded| recorded.point)
    }

    /// Milliseconds from another event to this one.
    ///
    /// # Errors
    /// One was not recorded, is without times, or is not reached.
    pub(crate) fn since(&self, begin: &Self) -> Result<f32> {
        let (Some(from), Some(to)) = (begin.recorded(), self.recorded()) else {
            return Err(Error::CUDA_ERROR_INVALID_HANDLE);
        };
        if !begin.timing || !self.timing {
            return Err(Error::CUDA_ERROR_INVALID_HANDLE);
        }
        let (Some(from), Some(to)) = (from.time.get(), to.time.get()) else {
            return Err(Error::CUDA_ERROR_NOT_READY);
        };
        let milliseconds = match to.checked_duration_since(*from) {
            Some(after) => after.as_secs_f32() * 1e3,
            None => from.duration_since(*to).as_secs_f32() * -1e3,
        };
        Ok(milliseconds)
    }
}
