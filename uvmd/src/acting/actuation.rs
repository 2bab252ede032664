//! Actuator, and the withdrawal of advice that a killed former run left in force.

mod withdrawal;

use std::{
    collections::BTreeSet,
    path::Path,
    time::{Duration, SystemTime},
};

use actuator::{Inspections, Journal, Leftover, Workers};
use model::{Actuator, DecisionId, GpuUuid, ProcessId};
use policy::act::{Engine, Limits};
use sys::Roots;
use tokio::runtime::Handle;

use super::{numbers::Numbers, state};
use crate::switch::Switch;

pub(crate) use withdrawal::{CommandName, StillInForce, WithdrawalTimeouts};

/// Maximum wait for the journal's record of withdrawals. The next run repeats those without a
/// record.
const JOURNAL_FLUSH: Duration = Duration::from_millis(500);

/// Decisions of the policies, and the workers that execute them.
pub(crate) struct Actuation {
    pub(super) acting: Engine,
    pub(super) workers: Workers,
    /// Numbers of decisions; `None` if none are made.
    pub(super) numbers: Option<Numbers>,
    /// Journal of the advice in force; `None` if none may be given.
    pub(super) journal: Option<Journal>,
    /// Whether advice of a former run is being withdrawn.
    pub(super) has_leftovers: bool,
}

impl Actuation {
    /// Starts to withdraw the advice of a former run. Without `enabled`, nothing else is ever done.
    pub(crate) fn start(
        limits: Limits,
        settings: actuator::Settings,
        switch: &Switch,
        enabled: bool,
        state_dir: &Path,
    ) -> anyhow::Result<Self> {
        let journal = state::open_journal(enabled, state_dir)?;
        let roots = Roots::default();
        let mut acting = Engine::new(limits);
        let leftovers = journal.as_ref().map(Journal::leftovers).unwrap_or_default();
        log_leftovers(&leftovers);
        for warning in journal.iter().flat_map(|journal| journal.health().warnings) {
            tracing::warn!("{warning}");
        }
        let (numbers, last) = enabled.then(|| Numbers::reserve(state_dir)).unzip();
        let in_force = leftovers.into_iter().zip(0..).map(state::in_force).collect();
        let left = acting.adopt(in_force, last.unwrap_or(DecisionId(0)));
        let switch = switch.clone();
        let make = actuators(settings, roots, journal.is_some());
        let mut workers = Workers::start(make, move || !switch.is_on(), journal.clone());
        let has_leftovers = !left.is_empty();
        for order in left {
            workers.submit(order);
        }
        Ok(Self { acting, workers, numbers, journal, has_leftovers })
    }

    /// Waits until the advice of a former run is withdrawn. If the time is too short, that
    /// continues in the background.
    pub(crate) fn withdraw_leftovers(&mut self) {
        if self.withdraw_all(WithdrawalTimeouts::AT_START, SystemTime::now).is_err() {
            tracing::warn!("advice of the former run is not all withdrawn yet: this continues in the background");
        }
        self.log_withdrawn();
    }

    /// Withdraws all advice, for a uvmd that ends before it serves.
    ///
    /// # Errors
    /// Processes whose advice is still in force.
    pub(crate) fn end(mut self) -> Result<(), StillInForce> {
        let withdrawn = self.withdraw_all(WithdrawalTimeouts::AT_STOP, SystemTime::now);
        self.flush_journal();
        self.give_back_numbers();
        self.log_withdrawn();
        withdrawn
    }

    /// Reserves further numbers of decisions, if few remain.
    pub(super) fn extend_numbers(&self, runtime: &Handle) {
        if let Some(numbers) = &self.numbers {
            numbers.extend(self.acting.last_decision(), runtime);
        }
    }

    /// Returns the numbers that no decision has, as uvmd ends.
    pub(super) fn give_back_numbers(&mut self) {
        if let Some(numbers) = self.numbers.take() {
            numbers.give_back(self.acting.last_decision());
        }
    }

    /// Flushes the journal to the disk, as uvmd ends.
    pub(super) fn flush_journal(&self) {
        if self.journal.as_ref().is_some_and(|journal| !journal.flush(JOURNAL_FLUSH)) {
            tracing::warn!("the withdrawal could not be saved in time; the next run repeats it");
        }
    }

    /// Logs once that no advice of a former run is in force any more.
    pub(super) fn log_withdrawn(&mut self) {
        if self.has_leftovers && !self.acting.is_withdrawing() {
            self.has_leftovers = false;
            tracing::info!("advice of the former run is withdrawn");
        }
    }
}

/// Actuator of each worker; shadow only, if acting is not permitted.
pub(crate) fn actuators(
    settings: actuator::Settings,
    roots: Roots,
    may_act: bool,
) -> impl Fn(GpuUuid) -> Box<dyn Actuator> + Send + Sync + 'static {
    let inspections = Inspections::default();
    move |_| {
        if !may_act {
            return Box::new(actuator::Shadow);
        }
        Box::new(actuator::Caller::new(settings, roots.clone(), inspections.clone()))
    }
}

/// Logs the advice that a former run did not withdraw.
fn log_leftovers(leftovers: &[Leftover]) {
    let processes: BTreeSet<ProcessId> = leftovers.iter().map(|left| left.process).collect();
    if !leftovers.is_empty() {
        tracing::warn!("advice of a former run is in effect for {} processes: withdrawing it", processes.len());
    }
}
