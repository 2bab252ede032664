//! Conditions that end the helper's thread.

use crate::{
    clock,
    gate::{BeginError, Gate, PartGuard, RETRIES_MAX, RETRY_NS},
    process, system,
};

/// Interval of checks for the end of the program's first thread.
pub(crate) const CHECK_INTERVAL_NS: u64 = 1_000_000_000;

/// Checks the gate, and once a second the process's first thread.
#[derive(Debug)]
pub(crate) struct Watch {
    gate: Gate,
    last_check_ns: u64,
    has_ended: bool,
}

impl Watch {
    /// Creates a watch; its first check of the process is due after [`CHECK_INTERVAL_NS`].
    pub(crate) fn new(gate: Gate) -> Self {
        Self { gate, last_check_ns: clock::monotonic_ns(), has_ended: false }
    }

    /// Begins a part, with retries for a second; `None` if calls of the program occupy the gate, or
    /// the thread must end.
    pub(crate) fn begin_part(&mut self) -> Option<PartGuard> {
        for _ in 0..RETRIES_MAX {
            match self.gate.begin() {
                Ok(part) => return Some(part),
                Err(BeginError::Busy) if !self.must_end() => system::sleep(RETRY_NS),
                Err(_) => break,
            }
        }
        None
    }

    /// Whether the thread must end: the gate is shut, or the program's first thread is known to
    /// have ended.
    pub(crate) fn must_end(&mut self) -> bool {
        let now_ns = clock::monotonic_ns();
        if now_ns.saturating_sub(self.last_check_ns) >= CHECK_INTERVAL_NS {
            self.last_check_ns = now_ns;
            self.has_ended |= process::first_thread_has_ended() == Some(true);
        }
        self.has_ended || self.gate.is_shut()
    }
}
