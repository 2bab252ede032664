//! Advice that is about to be given.

use std::{sync::Arc, time::Instant};

use model::{GpuUuid, Outcome, ProcessId, Step};

use super::{InForce, Journal, JournalError, waiting::Slot};

/// Advice that is about to be given, and may be once [`Intent::result`] says that the disk has it. It ends with [`Intent::carried_out`] or
/// [`Intent::cancel`]; without, as after a panic, it may be in force.
#[must_use]
pub(crate) struct Intent {
    journal: Journal,
    process: ProcessId,
    gpu: GpuUuid,
    number: u64,
    before: InForce,
    slot: Arc<Slot>,
    since: Instant,
}

impl Intent {
    /// Of an order of these steps. `wake` is called when there is a result.
    ///
    /// # Errors
    /// If it must not be given: why.
    pub(crate) fn begin(
        journal: &Journal,
        (process, gpu): (ProcessId, GpuUuid),
        steps: &[Step],
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, JournalError> {
        let (number, before, slot) = journal.intend((process, gpu), steps, wake)?;
        Ok(Self { journal: journal.clone(), process, gpu, number, before, slot, since: Instant::now() })
    }

    /// Whether it may be given; `None` while that is not known.
    pub(crate) fn result(&self) -> Option<Result<(), Arc<JournalError>>> {
        self.slot.result.get().cloned()
    }

    /// Until when to wait for that.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + self.journal.patience()
    }

    #[cfg(test)]
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Drops the intent: the order is not executed.
    pub(crate) fn cancel(self) {
        self.journal.cancel(self.number, &self.before);
    }

    /// The disk has not taken it in time.
    pub(crate) fn late(&self) -> JournalError {
        self.journal.stuck(self.since.elapsed())
    }

    /// Records the outcome.
    pub(crate) fn carried_out(self, outcome: &Outcome) {
        let Self { journal, process, gpu, number, before, .. } = self;
        journal.settle((process, gpu), &outcome.calls, Some((number, before)));
    }
}
