//! What the truth of a process is derived from.

use crate::{
    residency::Residency,
    scenario::Call,
    sys::{counters::ProcessCounters, swgpu::AccessCounters},
};

/// What is known of one process.
pub(crate) struct ProcessFacts {
    /// None: it was never started.
    pub(crate) pid: Option<u32>,
    /// It was gone when the figures were taken.
    pub(crate) ended: bool,
    /// Where its memory was then, by the driver; `None` where it was not asked.
    pub(crate) residency: Option<Vec<Residency>>,
    /// By the driver; `None` where it was not asked to count.
    pub(crate) counters: Option<ProcessCounters>,
    /// By the GPUs; `None` for a process that died before it could be asked.
    pub(crate) accesses: Option<Vec<AccessCounters>>,
    /// By the process itself; `None` for one that was killed from outside, perhaps between counting a call and making it.
    pub(crate) calls: Option<[(u64, u64); Call::KINDS]>,
}

impl ProcessFacts {
    /// Whether it had pages in several places, or may have had.
    pub(super) fn duplicated(&self) -> bool {
        self.calls.is_none_or(|calls| calls.get(Call::EnableReadDuplication.kind()).is_none_or(|(calls, _)| *calls > 0))
    }
}
