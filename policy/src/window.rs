//! Cuts what is counted into windows. One is over when it has lasted long enough and has seen enough, whichever is later, so that a slow machine is
//! judged by as much evidence as a fast one; and if too little comes for long, it was quiet.

use std::time::{Duration, SystemTime};

use model::verdict::Inputs;

use crate::{
    reading::{Reading, difference},
    thresholds::{EARLY, ENOUGH_BYTES, ENOUGH_FAULTS, ENOUGH_THROTTLES, QUIET_WINDOWS},
};

/// What was counted between two readings.
#[derive(Clone, Debug)]
pub(crate) struct Stretch {
    pub(crate) inputs: Inputs,
    pub(crate) from: Reading,
    pub(crate) to: Reading,
}

/// What a reading means for the window.
#[derive(Debug)]
pub(crate) enum Cut {
    /// It goes on.
    Open,
    /// It is over; the next one begins.
    Over(Box<Stretch>),
    /// Too little came for long.
    Quiet,
}

/// The window that is open.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// Its beginning: the last reading before anything came.
    from: Reading,
    /// When the last one was over, or it was found quiet.
    silent_since: SystemTime,
}

/// How long readings lie apart; 0 if the clock was set back.
fn between(earlier: SystemTime, later: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}

impl Window {
    pub(crate) const fn new(from: Reading) -> Self {
        Self { silent_since: from.at, from }
    }

    /// Begins anew, as what was counted until now does not continue.
    pub(crate) fn restart(&mut self, from: Reading) {
        self.silent_since = self.silent_since.min(from.at);
        self.from = from;
    }

    pub(crate) fn read(&mut self, now: Reading, least: Duration) -> Cut {
        let Some(inputs) = difference(&self.from.counted, &now.counted).filter(|_| now.at >= self.from.at) else {
            self.restart(now);
            return Cut::Open;
        };
        let lasted = between(self.from.at, now.at);
        let quiet_after = least.saturating_mul(QUIET_WINDOWS);
        let silent = between(self.silent_since, now.at) >= quiet_after;
        if lasted >= least.mul_f64(1.0 - EARLY) && is_enough(&inputs) {
            self.silent_since = now.at;
            let from = std::mem::replace(&mut self.from, now.clone());
            return Cut::Over(Box::new(Stretch { inputs, from, to: now }));
        }
        // A window begins when something comes, and one in which little comes is given up.
        if inputs == Inputs::default() || lasted >= quiet_after {
            self.from = now.clone();
        }
        if silent {
            self.silent_since = now.at;
            return Cut::Quiet;
        }
        Cut::Open
    }
}

/// Whether there is enough to judge by.
fn is_enough(inputs: &Inputs) -> bool {
    inputs.bytes_htod.saturating_add(inputs.populated_bytes) >= ENOUGH_BYTES
        || inputs.fault_entries.saturating_add(inputs.cpu_faults) >= ENOUGH_FAULTS
        || inputs.throttles >= ENOUGH_THROTTLES
}
