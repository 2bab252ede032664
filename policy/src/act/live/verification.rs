//! Schedule and results of the verification of a proposal in force.

use std::time::{Duration, SystemTime};

use model::{Expected, decision::Measured};

use super::{
    comparison::{Finding, Pace, compare, relative_cost},
    cost::RelativeCost,
    meter::{Meter, Span},
};
use crate::{
    act::{
        intervals::Intervals,
        limits::{EQUAL_TIME_TOLERANCE, IDLE_WINDOWS, SETTLING, SETTLING_MAX, VERIFY_AGAIN_WINDOWS},
    },
    thresholds::EARLY,
};

/// Verification of a proposal in force, compared with the window before it.
#[derive(Clone, Debug)]
pub(crate) struct Verification {
    before: Span,
    noise: f64,
    window: Duration,
    created_at: SystemTime,
    /// Cost in the window before the proposal, relative to the driver alone: another proposal may
    /// have been in force.
    cost_before: RelativeCost,
    phase: Phase,
    is_confirmed: bool,
}

#[derive(Clone, Debug)]
enum Phase {
    /// The first steps are being executed.
    Beginning,
    /// Counts are ignored until this time.
    Settling { until: SystemTime },
    /// A window is measured.
    Measuring { from: SystemTime, doubt: Option<Doubt> },
    /// Confirmed, and verified again at this time.
    Resting { until: SystemTime },
}

/// Doubt left by the previous window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// The program was idle in this number of consecutive windows.
    Idle(u32),
    /// The window showed harm, or no benefit.
    Worse,
}

/// Result of a verification.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Conclusion {
    /// No result yet.
    Pending,
    /// The proposal has a benefit and stays.
    Confirmed {
        /// Whether the proposal was confirmed before.
        is_repeated: bool,
        after: VerifiedWindow,
        /// Cost relative to the driver alone.
        cost: RelativeCost,
    },
    /// The proposal is rolled back. `unless_changed`: not to be retried in the same circumstances.
    Failed { why: String, after: VerifiedWindow, unless_changed: bool },
}

/// Verified window, and the pace of the program relative to that before the proposal.
pub(crate) type VerifiedWindow = (Measured, f64);

impl Verification {
    pub(crate) fn new(
        before: Span,
        noise: f64,
        window: Duration,
        created_at: SystemTime,
        cost_before: RelativeCost,
    ) -> Self {
        Self { before, noise, window, created_at, cost_before, phase: Phase::Beginning, is_confirmed: false }
    }

    /// Window before the proposal, and the relative cost in it.
    pub(crate) const fn before(&self) -> (Measured, RelativeCost) {
        (self.before.measured, self.cost_before)
    }

    /// Counts in the window before the proposal.
    pub(crate) const fn window_before(&self) -> &Span {
        &self.before
    }

    pub(crate) const fn is_confirmed(&self) -> bool {
        self.is_confirmed
    }

    /// Records that the first steps were executed.
    pub(crate) fn record_start(&mut self, now: SystemTime) {
        if matches!(self.phase, Phase::Beginning) {
            self.phase = Phase::Settling { until: now + self.window.mul_f64(SETTLING) };
        }
    }

    /// Verifies the counts. The proposal is judged within two windows after its start, even if its
    /// first steps take longer, or within five windows if its policy has not settled.
    pub(crate) fn verify(
        &mut self,
        meter: &Meter,
        now: SystemTime,
        touched: &Intervals,
        expected: &Expected,
        has_settled: bool,
    ) -> Conclusion {
        let latest = self.created_at + self.window.mul_f64(if has_settled { 2.0 * SETTLING } else { SETTLING_MAX });
        match self.phase {
            Phase::Beginning if now >= latest => self.measure(now, None),
            Phase::Settling { until } if now >= latest || has_settled && now >= until => self.measure(now, None),
            Phase::Resting { until } if now >= until => self.measure(now, None),
            Phase::Beginning | Phase::Settling { .. } | Phase::Resting { .. } => {}
            Phase::Measuring { from, doubt } => return self.judge(meter, from, doubt, now, touched, expected),
        }
        Conclusion::Pending
    }

    fn judge(
        &mut self,
        meter: &Meter,
        from: SystemTime,
        doubt: Option<Doubt>,
        now: SystemTime,
        touched: &Intervals,
        expected: &Expected,
    ) -> Conclusion {
        let Some(after) = meter.since(from) else {
            // Counts were reset.
            self.measure(now, doubt);
            return Conclusion::Pending;
        };
        if after.measured.window < self.window.mul_f64(1.0 - EARLY) {
            return Conclusion::Pending;
        }
        let pace = Pace::of(&self.before, &after, touched);
        // A proposal may be slower than the proposal before it, but never slower than the driver
        // alone.
        let slower = (1.0 / self.cost_before.time - 1.0).clamp(0.0, EQUAL_TIME_TOLERANCE);
        let finding = compare(&self.before, &after, pace, touched, expected, self.noise, slower);
        self.conclude(finding, doubt, (after.measured, pace.factor), relative_cost(&self.before, &after, pace), now)
    }

    fn conclude(
        &mut self,
        finding: Finding,
        doubt: Option<Doubt>,
        after: VerifiedWindow,
        cost: RelativeCost,
        now: SystemTime,
    ) -> Conclusion {
        match (finding, doubt) {
            (Finding::Better, _) => {
                let is_repeated = std::mem::replace(&mut self.is_confirmed, true);
                // A single window may show only one phase of the program's work.
                if is_repeated {
                    self.rest(now);
                } else {
                    self.measure(now, None);
                }
                Conclusion::Confirmed { is_repeated, after, cost: cost.of(self.cost_before) }
            }
            // A pause does not clear an earlier doubt.
            (Finding::Idle, Some(Doubt::Worse)) => {
                self.measure(now, doubt);
                Conclusion::Pending
            }
            // Pause of a program with a confirmed proposal.
            (Finding::Idle, _) if self.is_confirmed => {
                self.rest(now);
                Conclusion::Pending
            }
            (Finding::Idle, doubt) => {
                let windows = if let Some(Doubt::Idle(before)) = doubt { before + 1 } else { 1 };
                if windows >= IDLE_WINDOWS {
                    let why = format!("the program did too little in {windows} windows to verify the effect");
                    return Conclusion::Failed { why, after, unless_changed: false };
                }
                self.measure(now, Some(Doubt::Idle(windows)));
                Conclusion::Pending
            }
            (Finding::NotBetter(_), None) if self.is_confirmed => {
                self.measure(now, Some(Doubt::Worse));
                Conclusion::Pending
            }
            (Finding::NotBetter(why), _) => Conclusion::Failed { why, after, unless_changed: true },
        }
    }

    fn measure(&mut self, from: SystemTime, doubt: Option<Doubt>) {
        self.phase = Phase::Measuring { from, doubt };
    }

    fn rest(&mut self, now: SystemTime) {
        self.phase = Phase::Resting { until: now + self.window.saturating_mul(VERIFY_AGAIN_WINDOWS) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn confirmed() -> Verification {
        let before = Span::counted(Measured::default());
        Verification {
            is_confirmed: true,
            ..Verification::new(before, 0.1, Duration::from_secs(2), NOW, RelativeCost::UNCHANGED)
        }
    }

    fn conclude(verification: &mut Verification, finding: Finding) -> Conclusion {
        let Phase::Measuring { doubt, .. } = verification.phase else {
            panic!("nothing is measured: {verification:?}")
        };
        verification.conclude(
            finding,
            doubt,
            (Measured::default(), 1.0),
            RelativeCost { time: 0.5, link_bytes: 0.5 },
            NOW,
        )
    }

    fn worse() -> Finding {
        Finding::NotBetter("it costs more".to_owned())
    }

    #[test]
    fn pause_does_not_clear_an_earlier_bad_finding() {
        let mut verification = confirmed();
        verification.measure(NOW, None);
        assert_eq!(conclude(&mut verification, worse()), Conclusion::Pending);
        for _ in 0..3 {
            assert_eq!(conclude(&mut verification, Finding::Idle), Conclusion::Pending);
        }
        assert!(matches!(conclude(&mut verification.clone(), worse()), Conclusion::Failed { .. }), "it is worse still");
        assert!(matches!(conclude(&mut verification, Finding::Better), Conclusion::Confirmed { .. }));
        assert!(matches!(verification.phase, Phase::Resting { .. }));
    }

    #[test]
    fn good_finding_is_verified_a_second_time() {
        let mut verification = Verification { is_confirmed: false, ..confirmed() };
        verification.measure(NOW, None);
        assert!(matches!(
            conclude(&mut verification, Finding::Better),
            Conclusion::Confirmed { is_repeated: false, .. }
        ));
        assert!(
            matches!(conclude(&mut verification.clone(), worse()), Conclusion::Pending),
            "one of two may be chance"
        );
        assert!(matches!(
            conclude(&mut verification, Finding::Better),
            Conclusion::Confirmed { is_repeated: true, .. }
        ));
        assert!(matches!(verification.phase, Phase::Resting { .. }));
    }

    #[test]
    fn pause_of_a_program_keeps_its_confirmed_proposal() {
        let mut verification = confirmed();
        verification.measure(NOW, None);
        assert_eq!(conclude(&mut verification, Finding::Idle), Conclusion::Pending);
        assert!(matches!(verification.phase, Phase::Resting { .. }));
    }
}
