//! Facts from which the truth of a process is derived.

use gpu::swgpu::AccessCounters;

use crate::{residency::Residency, scenario::Call, sys::counters::ProcessCounters};

/// Facts about one process.
pub(crate) struct ProcessFacts {
    /// Process id; `None` if it was never started.
    pub(crate) pid: Option<u32>,
    /// Whether it had exited when the figures were taken.
    pub(crate) ended: bool,
    /// Residency of its memory at that time, by the driver; `None` if it was not queried.
    pub(crate) residency: Option<Vec<Residency>>,
    /// Driver's counters; `None` if the driver did not count.
    pub(crate) counters: Option<ProcessCounters>,
    /// Accesses by GPU; `None` for a process that died before its figures were read.
    pub(crate) accesses: Option<Vec<AccessCounters>>,
    /// Calls by the process's own count; `None` for one that was killed from outside, perhaps
    /// between counting a call and making it.
    pub(crate) calls: Option<[(u64, u64); Call::KINDS]>,
}

impl ProcessFacts {
    /// Whether it had, or may have had, duplicated pages.
    pub(super) fn duplicated(&self) -> bool {
        self.calls.is_none_or(|calls| calls.get(Call::EnableReadDuplication.kind()).is_none_or(|(calls, _)| *calls > 0))
    }
}
