//! Advice about to be given.

use std::{sync::Arc, time::Instant};

use model::{GpuUuid, Outcome, ProcessId, Step};

use super::{InForce, Journal, JournalError, pending::Completion};

/// Advice about to be given, once [`Intent::result`] reports that it is on the disk. It ends with
/// [`Intent::record_outcome`] or [`Intent::cancel`]; without, as after a panic, it may be in force.
#[must_use]
pub(crate) struct Intent {
    journal: Journal,
    process: ProcessId,
    gpu: GpuUuid,
    number: u64,
    before: InForce,
    completion: Arc<Completion>,
    since: Instant,
}

impl Intent {
    /// Intent of an order with these steps. `wake` is called when there is a result.
    ///
    /// # Errors
    /// Reason why the advice must not be given.
    pub(crate) fn begin(
        journal: &Journal,
        (process, gpu): (ProcessId, GpuUuid),
        steps: &[Step],
        wake: impl Fn() + Send + Sync + 'static,
    ) -> Result<Self, JournalError> {
        let (number, before, completion) = journal.begin_intent((process, gpu), steps, wake)?;
        Ok(Self { journal: journal.clone(), process, gpu, number, before, completion, since: Instant::now() })
    }

    /// Whether it may be given; `None` while unknown.
    pub(crate) fn result(&self) -> Option<Result<(), Arc<JournalError>>> {
        self.completion.result.get().cloned()
    }

    /// Time limit of the wait.
    pub(crate) fn deadline(&self) -> Instant {
        self.since + self.journal.intent_timeout()
    }

    #[cfg(test)]
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Drops the intent: the order is not executed.
    pub(crate) fn cancel(self) {
        self.journal.cancel(self.number, &self.before);
    }

    /// Error if the disk did not accept it in time.
    pub(crate) fn timeout_error(&self) -> JournalError {
        self.journal.stuck(self.since.elapsed())
    }

    /// Records the outcome.
    pub(crate) fn record_outcome(self, outcome: &Outcome) {
        let Self { journal, process, gpu, number, before, .. } = self;
        journal.record_results((process, gpu), &outcome.calls, Some((number, before)));
    }
}
