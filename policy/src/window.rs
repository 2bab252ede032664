//! Division of counts into windows. A window is complete when it has lasted long enough and has
//! enough evidence, whichever is later, so that a slow machine is judged by as much evidence as a
//! fast one. A window that has too little evidence for a long time is quiet.
//!
//! The collector reads block records before counts. If it is delayed in between, the counts include
//! copies whose records only the next reading has. Judged at once, such a window would seem to have
//! hardly any records, and have no verdict; so it lasts until the next reading.

use std::time::Duration;

use model::verdict::Inputs;

use crate::{
    reading::{Moment, Reading, difference},
    thresholds::{EARLY, ENOUGH_BYTES, ENOUGH_FAULTS, ENOUGH_THROTTLES, QUIET_WINDOWS, RECORDED_IN_TIME},
};

/// Counts between two readings.
#[derive(Clone, Debug)]
pub(crate) struct WindowCounts {
    pub(crate) inputs: Inputs,
    pub(crate) from: Reading,
    pub(crate) to: Reading,
}

/// Effect of a reading on the window.
#[derive(Debug)]
pub(crate) enum WindowState {
    /// The window stays open.
    Open,
    /// Counts decreased: the window restarted at this reading.
    Restarted,
    /// The window is complete; the next one starts.
    Complete(Box<WindowCounts>),
    /// Too little evidence for a long time.
    Quiet,
}

/// Open window.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Start: the last reading before any event.
    from: Reading,
    /// End of the last window, complete or quiet.
    silent_since: Moment,
    /// Whether it lasts one reading longer, as records are late.
    awaits_records: bool,
}

impl Window {
    pub(crate) const fn new(from: Reading) -> Self {
        Self { silent_since: from.at, from, awaits_records: false }
    }

    /// Restarts at a reading that does not continue the earlier counts.
    pub(crate) fn restart(&mut self, from: Reading) {
        self.from = from;
        self.awaits_records = false;
    }

    /// Processes a reading. `may_wait`: whether records are written, and another reading follows.
    pub(crate) fn read(&mut self, now: Reading, least: Duration, may_wait: bool) -> WindowState {
        let Some(inputs) = difference(&self.from.counted, &now.counted) else {
            self.restart(now);
            return WindowState::Restarted;
        };
        let lasted = now.at.since(self.from.at);
        let quiet_after = least.saturating_mul(QUIET_WINDOWS);
        let silent = now.at.since(self.silent_since) >= quiet_after;
        if lasted >= least.mul_f64(1.0 - EARLY) && is_enough(&inputs) {
            if may_wait && !self.awaits_records && has_late_records(&inputs) {
                self.awaits_records = true;
                return WindowState::Open;
            }
            self.awaits_records = false;
            self.silent_since = now.at;
            let from = std::mem::replace(&mut self.from, now.clone());
            return WindowState::Complete(Box::new(WindowCounts { inputs, from, to: now }));
        }
        // A window starts with an event, and is abandoned if there are too few.
        if inputs == Inputs::default() || lasted >= quiet_after {
            self.from = now.clone();
        }
        if silent {
            self.silent_since = now.at;
            return WindowState::Quiet;
        }
        WindowState::Open
    }
}

/// Whether most of the copies have no records yet, although none is known to be missing.
fn has_late_records(inputs: &Inputs) -> bool {
    inputs.missing_records == 0 && (inputs.fetched_bytes as f64) < inputs.copied_bytes() as f64 * RECORDED_IN_TIME
}

/// Whether the evidence is enough.
pub(crate) fn is_enough(inputs: &Inputs) -> bool {
    inputs.copied_bytes().saturating_add(inputs.populated_bytes) >= ENOUGH_BYTES
        || inputs.fault_entries.saturating_add(inputs.cpu_faults) >= ENOUGH_FAULTS
        || inputs.throttles >= ENOUGH_THROTTLES
}
