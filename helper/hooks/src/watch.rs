//! What ends the work of the helper's thread.

use crate::{gate::Gate, process, system};

/// Time between looks at whether the program's first thread has ended.
pub(crate) const LOOK_NS: u64 = 1_000_000_000;

/// Looks at the gate, and once a second at the process.
#[derive(Debug)]
pub(crate) struct Watch {
    gate: Gate,
    looked_ns: u64,
    has_ended: bool,
}

impl Watch {
    /// Begins now.
    pub(crate) fn new(gate: Gate) -> Self {
        Self { gate, looked_ns: system::monotonic_ns(), has_ended: false }
    }

    /// Whether the thread is to end: the gate is shut, or the program's first thread has ended for
    /// certain.
    pub(crate) fn is_over(&mut self) -> bool {
        let now_ns = system::monotonic_ns();
        if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS {
            self.looked_ns = now_ns;
            self.has_ended |= process::first_thread_has_ended() == Some(true);
        }
        self.has_ended || self.gate.is_shut()
    }
}
