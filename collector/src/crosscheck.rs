//! Cross-check of the probes: the driver's own counters on one process at a time.
//!
//! ```text
//!   a minute │ 10 s: readings of a process, some of which are compared      │ …, the next process
//!            │ counters, settle, probes, settle, counters ──▶ bounds ──▶ agreed or disagreed
//! ```
//!
//! The counters are attached for the check alone: each CPU fault of the process waits for the
//! driver's event thread meanwhile. A deviation that the next comparison finds too is a disagreement:
//! a thread may wait between the probe of an event and the driver's count of it, which then cancels the
//! deviation. A disagreement is a warning; three of one figure are the state `sources_disagree`, until
//! the driver is reloaded.
//!
//! * `bounds`: comparison of what both have counted between two readings; no I/O
//! * `disagreements`: disagreements since the driver was loaded

use std::{collections::BTreeMap, thread, time::Duration};

use model::{CheckedFigure, ComparisonResult, Crosschecks, Degradation, ProcessId};
use sys::uvm::tracker::Counters;
// Clock of the event loop, which tests can advance.
use tokio::time::Instant;

use crate::ledger::Generation;

mod bounds;
mod disagreements;

use bounds::{Bounds, Readings};
use disagreements::Disagreements;

/// Time for which a process is checked.
const CHECK_DURATION: Duration = Duration::from_secs(10);
/// Minimum time between two starts of checks.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// Pause after a process whose counters could not be attached.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Minimum time between two comparisons.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(900);
/// Comparisons in a row with a deviation that are a disagreement.
const DEVIATIONS: u32 = 2;
/// Pause between the readings of both sources. The probe of an event runs just before the driver
/// counts it, and the kernel may run something else between the two.
const SETTLE_DELAY: Duration = Duration::from_millis(2);

/// Process to be checked, and its only VA space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) process: ProcessId,
    pub(crate) uid: u32,
    pub(crate) generation: Generation,
}

/// Progress of the driver's counters on a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing is attached, and another process can be.
    Idle,
    /// They are being attached or detached.
    Busy,
    Counting,
    /// They could not be attached. `reason`: one sentence, if that concerns other processes too.
    Failed {
        reason: Option<String>,
    },
}

/// The driver's counters on one process at a time.
pub(crate) trait Tracking: Send + Sync {
    /// Begins to attach them. They have to be idle.
    fn begin(&mut self, target: &Target);

    /// Looks for progress. A failure is reported once.
    fn look(&mut self) -> Progress;

    /// Current counts; `None` if the process has exited or closed its VA space, or nothing is
    /// attached.
    fn read(&self) -> Option<Counters>;

    /// Begins to detach them.
    fn end(&mut self);
}

/// Cross-checks while a driver is loaded.
pub(crate) struct Crosscheck {
    tracking: Box<dyn Tracking>,
    check: Option<Check>,
    /// Time of the next check.
    next: Option<Instant>,
    done: Crosschecks,
    disagreements: Disagreements,
    /// Reason why processes are not checked, as one sentence.
    failed: Option<String>,
    /// Process of the last check that began.
    last: Option<Target>,
}

/// Check of a process.
struct Check {
    target: Target,
    begun: Instant,
    /// Time since which the counters count.
    counting: Option<Instant>,
    /// What each figure is compared with; empty before the first reading.
    baselines: BTreeMap<CheckedFigure, Baseline>,
    compared: Option<Instant>,
}

/// Readings that a figure is compared with, and the last comparisons in a row that deviated.
#[derive(Clone, Copy)]
struct Baseline {
    readings: Readings,
    deviations: u32,
}

impl Crosscheck {
    /// `done`: cross-checks before the driver was loaded.
    pub(crate) fn new(tracking: Box<dyn Tracking>, done: Crosschecks) -> Self {
        Self {
            tracking,
            check: None,
            next: None,
            done,
            disagreements: Disagreements::default(),
            failed: None,
            last: None,
        }
    }

    /// Process of the current check.
    pub(crate) fn target(&self) -> Option<Target> {
        self.check.as_ref().map(|check| check.target)
    }

    /// Goes on with the current check, or begins the next one if it is due: `next` chooses its process.
    pub(crate) fn look(&mut self, now: Instant, next: impl FnOnce() -> Option<Target>) {
        match (self.tracking.look(), &mut self.check) {
            (Progress::Counting, Some(check)) => {
                let counting = *check.counting.get_or_insert(now);
                if now.saturating_duration_since(counting) >= CHECK_DURATION {
                    self.end();
                }
            }
            (Progress::Counting, None) => self.tracking.end(),
            // A search for its VA space may hang.
            (Progress::Busy, Some(check)) if now.saturating_duration_since(check.begun) >= CHECK_DURATION => self.end(),
            (Progress::Busy, None) if self.next.is_some_and(|next| now >= next) => {
                let last = self.last.map(|Target { process, uid, .. }| format!("process {} of uid {uid}", process.pid));
                self.fail(format!(
                    "no process is cross-checked: the search for the VA space of {} hangs, or its tracker is not closed",
                    last.as_deref().unwrap_or("the last one")
                ));
            }
            (Progress::Busy, _) => {}
            (Progress::Failed { reason }, _) => self.give_up(reason, now),
            (Progress::Idle, _) => {
                // A process that exits ends its check.
                self.check = None;
                if self.next.is_some_and(|next| now < next) {
                    return;
                }
                let Some(target) = next() else {
                    self.next = Some(now + COMPARISON_INTERVAL);
                    return;
                };
                self.next = Some(now + CHECK_INTERVAL);
                self.tracking.begin(&target);
                self.last = Some(target);
                self.check =
                    Some(Check { target, begun: now, counting: None, baselines: BTreeMap::new(), compared: None });
            }
        }
    }

    /// Ends a check whose counters could not be attached.
    fn give_up(&mut self, reason: Option<String>, now: Instant) {
        match reason {
            // Others would fail, too, and a start of holders takes long.
            Some(reason) => {
                self.fail(reason);
                self.next = Some(now + CHECK_INTERVAL);
            }
            None => self.next = Some(now + RETRY_DELAY),
        }
        self.check = None;
    }

    fn fail(&mut self, reason: String) {
        if self.failed.as_ref() != Some(&reason) {
            tracing::warn!("{reason}");
        }
        self.failed = Some(reason);
    }

    /// Ends the current check.
    pub(crate) fn end(&mut self) {
        if self.check.take().is_some() {
            self.tracking.end();
        }
    }

    /// Reads the driver's counters before the probes are read, if a comparison is due. `None`: none
    /// is.
    pub(crate) fn begin_reading(&self, now: Instant) -> Option<Counters> {
        let check = self.check.as_ref().filter(|check| check.counting.is_some())?;
        if check.compared.is_some_and(|last| now.saturating_duration_since(last) < COMPARISON_INTERVAL) {
            return None;
        }
        let figures = self.tracking.read()?;
        thread::sleep(SETTLE_DELAY);
        Some(figures)
    }

    /// Compares both sources, after the probes were read. `dropped_events`: those that the probes have
    /// dropped so far.
    pub(crate) fn end_reading(&mut self, before: Counters, probes: Counters, dropped_events: u64, now: Instant) {
        thread::sleep(SETTLE_DELAY);
        let after = self.tracking.read();
        // Without counters until the end, the driver counted less than the probes.
        match self.tracking.look() {
            Progress::Counting => {}
            Progress::Failed { reason } => return self.give_up(reason, now),
            Progress::Idle | Progress::Busy => return,
        }
        let (Some(after), Some(check)) = (after, &mut self.check) else { return };
        check.compared = Some(now);
        let readings = Readings { before, probes, after, dropped_events };
        let baseline = Baseline { readings, deviations: 0 };
        if check.baselines.is_empty() {
            check.baselines = CheckedFigure::ALL.map(|figure| (figure, baseline)).into();
            self.done.checks = self.done.checks.saturating_add(1);
            self.done.last_process = Some(check.target.process);
            self.failed = None;
            return;
        }
        for (figure, first) in &mut check.baselines {
            let bounds = Bounds::new(*figure, &first.readings, &readings);
            let has_dropped = readings.dropped_events != first.readings.dropped_events;
            first.deviations = if bounds.holds() { 0 } else { first.deviations.saturating_add(1) };
            let result = match first.deviations {
                _ if has_dropped => ComparisonResult::Inconclusive,
                0 => ComparisonResult::Agreed,
                DEVIATIONS.. => ComparisonResult::Disagreed,
                _ => ComparisonResult::Inconclusive,
            };
            let number = self.done.comparisons.entry((*figure, result)).or_default();
            *number = number.saturating_add(1);
            if result == ComparisonResult::Disagreed {
                self.disagreements.add(*figure, check.target, bounds);
            }
            // Else the same deviation would be found again.
            if has_dropped || result == ComparisonResult::Disagreed {
                *first = baseline;
            }
        }
    }

    /// Cross-checks so far.
    pub(crate) const fn done(&self) -> &Crosschecks {
        &self.done
    }

    /// Figures that are not trusted.
    pub(crate) fn degradations(&self) -> impl Iterator<Item = Degradation> + '_ {
        self.disagreements.degradations()
    }

    /// Sentences about single disagreements, and about processes that cannot be checked.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        self.disagreements.warnings().chain(self.failed.clone())
    }
}

#[cfg(test)]
pub(crate) mod tests;
