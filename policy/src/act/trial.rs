//! When a plan in force is looked at, and what is made of what is seen.

use std::time::{Duration, SystemTime};

use model::{Expected, decision::Measured};

use super::{
    intervals::Intervals,
    limits::{LOOK_AGAIN_WINDOWS, SETTLING, SETTLING_MAX},
    meter::{Meter, Span},
    verify::{Finding, compare, left},
};
use crate::thresholds::EARLY;

/// One plan against what was before it.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    before: Span,
    noise: f64,
    window: Duration,
    made: SystemTime,
    /// What part of the driver's time was left in the window before, as another plan was in force.
    left_before: f64,
    phase: Phase,
    is_kept: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Its first steps are being carried out.
    Beginning,
    /// What is seen now is not counted.
    Settling { until: SystemTime },
    /// A window is open.
    Watching { from: SystemTime, doubts: Option<Doubt> },
    /// It was found good, and is looked at again then.
    Resting { until: SystemTime },
}

/// What the window before this one left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The program did nothing.
    Idle,
    /// It no longer helped.
    Worse,
}

/// What a look came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Look {
    /// It is too early to tell.
    Open,
    /// It helps.
    Keeps {
        after: Measured,
        /// What part of the time that the driver alone would take is left.
        left: f64,
    },
    /// It is to be taken back, and whether something has to change before it is tried again.
    Fails { why: String, after: Measured, unless_changed: bool },
}

impl Trial {
    pub(crate) fn new(before: Span, noise: f64, window: Duration, made: SystemTime, left_before: f64) -> Self {
        Self { before, noise, window, made, left_before, phase: Phase::Beginning, is_kept: false }
    }

    /// The window before it, and what part of the driver's time was left in that.
    pub(crate) const fn before(&self) -> (Measured, f64) {
        (self.before.measured, self.left_before)
    }

    pub(crate) const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Its first steps were carried out.
    pub(crate) fn began(&mut self, now: SystemTime) {
        if matches!(self.phase, Phase::Beginning) {
            self.phase = Phase::Settling { until: now + self.window.mul_f64(SETTLING) };
        }
    }

    /// Looks at what was counted. It is judged within two windows after it was made, however long its first steps take; a window and a half later at most
    /// where its policy says that it has not settled.
    pub(crate) fn look(
        &mut self,
        meter: &Meter,
        now: SystemTime,
        touched: &Intervals,
        expected: &Expected,
        has_settled: bool,
    ) -> Look {
        let latest = self.made + self.window.mul_f64(if has_settled { 2.0 * SETTLING } else { SETTLING_MAX });
        match self.phase {
            Phase::Beginning if now >= latest => self.watch(now, None),
            Phase::Settling { until } if now >= latest || has_settled && now >= until => self.watch(now, None),
            Phase::Resting { until } if now >= until => self.watch(now, None),
            Phase::Beginning | Phase::Settling { .. } | Phase::Resting { .. } => {}
            Phase::Watching { from, doubts } => return self.judge(meter, from, doubts, now, touched, expected),
        }
        Look::Open
    }

    fn judge(
        &mut self,
        meter: &Meter,
        from: SystemTime,
        doubts: Option<Doubt>,
        now: SystemTime,
        touched: &Intervals,
        expected: &Expected,
    ) -> Look {
        let Some(after) = meter.since(from) else {
            // The clock was set back, or counts were.
            self.watch(now, doubts);
            return Look::Open;
        };
        if after.measured.window < self.window.mul_f64(1.0 - EARLY) {
            return Look::Open;
        }
        let measured = after.measured;
        match (compare(&self.before, &after, touched, expected, self.noise), doubts) {
            (Finding::Better, _) => {
                self.is_kept = true;
                self.rest(now);
                Look::Keeps { after: measured, left: left(&self.before, &after, touched) * self.left_before }
            }
            // A pause of a program that was helped.
            (Finding::Idle, _) if self.is_kept => {
                self.rest(now);
                Look::Open
            }
            (Finding::Idle, Some(Doubt::Idle)) => Look::Fails {
                why: "the program did too little for two windows to tell whether it helps".to_owned(),
                after: measured,
                unless_changed: false,
            },
            (Finding::Idle, _) => {
                self.watch(now, Some(Doubt::Idle));
                Look::Open
            }
            (Finding::NotBetter(_), None) if self.is_kept => {
                self.watch(now, Some(Doubt::Worse));
                Look::Open
            }
            (Finding::NotBetter(why), _) => Look::Fails { why, after: measured, unless_changed: true },
        }
    }

    fn watch(&mut self, from: SystemTime, doubts: Option<Doubt>) {
        self.phase = Phase::Watching { from, doubts };
    }

    fn rest(&mut self, now: SystemTime) {
        self.phase = Phase::Resting { until: now + self.window.saturating_mul(LOOK_AGAIN_WINDOWS) };
    }
}
