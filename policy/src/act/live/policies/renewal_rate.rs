//! Maximum size of the set of blocks retained at the GPU, from the arrivals and the rate of
//! renewals.
//!
//! If `arriving` blocks arrive per second and `left` frames are outside the set, a renewed block is
//! evicted after `left / arriving` seconds. Each member is renewed twice in that time, because
//! intervals may be late: `2 * members * arriving / left` renewals per second. With `frames` in
//! total and at most `renewals` per second, the set can therefore have `frames * renewals /
//! (renewals + 2 * arriving)` blocks.

use std::time::{Duration, SystemTime};

use model::{Action, CallResult, Outcome, block::BLOCK_BYTES};

use crate::act::live::live_policy::View;

/// Minimum left to other memory: the arriving block, and the one before it, which is still in use.
pub(crate) const OTHER_MIN_BYTES: u64 = 2 * BLOCK_BYTES;
/// Maximum left to other memory, as a share of the GPU's contents. If more arrives in an interval,
/// the blocks renewed first are evicted and the others stay: surplus renewals cost nothing.
const OTHER_MAX: (u64, u64) = (1, 2);
/// Weight of an increase of the arrivals: 1 / this. Arrivals come in bursts, which have to fit...
const INCREASE_PART: u64 = 4;
/// ...and weight of a decrease: 1 / this. One late interval must not reduce the set for long.
const DECREASE_PART: u64 = 16;
/// Assumed length of an interval, until it is measured.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Assumed duration of a renewal in the driver, until it is measured.
const RENEWAL: Duration = Duration::from_micros(10);
/// Maximum share of the time spent on renewals: 1 / this.
const BUSY_PART: u128 = 2;
const NANOS: u128 = 1_000_000_000;
/// Number of renewals of a block in the time after which it would otherwise be evicted.
pub(crate) const RENEWALS_PER_PERIOD: u64 = 2;

/// Cap of a measured duration, as a multiple of the previous estimate.
const OUTLIER_FACTOR: u32 = 10;

/// Measured arrivals, and measured cost of renewals: they limit the number of retained blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RenewalRate {
    /// Estimated arrivals per interval, in bytes.
    per_interval_bytes: u64,
    per_second_bytes: u64,
    measured_at: SystemTime,
    /// Estimated duration of a renewal in the driver.
    renewal: Duration,
    /// Estimated preparation time per call of an order.
    preparation: Duration,
}

impl RenewalRate {
    /// Initial estimate from these arrivals per [`INTERVAL`].
    pub(crate) fn new(now: SystemTime, per_interval_bytes: u64) -> Self {
        let per_second_bytes = per_second(per_interval_bytes, INTERVAL).unwrap_or(0);
        Self { per_interval_bytes, per_second_bytes, measured_at: now, renewal: RENEWAL, preparation: Duration::ZERO }
    }

    pub(crate) const fn per_interval_bytes(&self) -> u64 {
        self.per_interval_bytes
    }

    /// Records the arrivals since the last interval.
    pub(crate) fn record_arrivals(&mut self, now: SystemTime, arrived_bytes: u64) {
        // An interval without arrivals, in which the program ran from retained memory, is no
        // evidence about bursts.
        if arrived_bytes > 0 {
            self.per_interval_bytes = smoothed_bytes(self.per_interval_bytes, arrived_bytes);
        }
        let passed = now.duration_since(self.measured_at).unwrap_or_default();
        if let Some(rate) = per_second(arrived_bytes, passed) {
            self.per_second_bytes = smoothed_bytes(self.per_second_bytes, rate);
        }
        self.measured_at = now;
    }

    /// Measures the duration of a renewal from an outcome: the lower quartile, because some calls
    /// wait for the program's own faults.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome) {
        let done = outcome.calls.iter().filter(|call| call.result == CallResult::Done);
        let renewals = done.filter(|call| matches!(call.step.action, Action::Touch(_)));
        let mut took: Vec<u64> =
            renewals.map(|call| call.duration_ns / call.step.bytes().div_ceil(BLOCK_BYTES).max(1)).collect();
        let quarter = took.len() / 4;
        if quarter < took.len() {
            let (_, lower, _) = took.select_nth_unstable(quarter);
            let now = Duration::from_nanos(*lower).min(self.renewal.saturating_mul(OUTLIER_FACTOR));
            self.renewal = smoothed(self.renewal, now);
            let calls = u64::try_from(outcome.calls.len()).unwrap_or(u64::MAX).max(1);
            self.preparation = smoothed(self.preparation, Duration::from_nanos(outcome.ready_ns / calls));
        }
    }

    /// Maximum number of retained blocks. `resident_bytes`: resident memory; `others_bytes`: that of
    /// other processes; `other_min_bytes`: minimum left to other memory.
    pub(crate) fn fitting(
        &self,
        view: &View<'_>,
        resident_bytes: u64,
        others_bytes: u64,
        other_min_bytes: u64,
    ) -> usize {
        let most = (resident_bytes / OTHER_MAX.1 * OTHER_MAX.0).max(OTHER_MIN_BYTES);
        let other = self.per_interval_bytes.saturating_add(BLOCK_BYTES).clamp(OTHER_MIN_BYTES, most);
        let room = resident_bytes.saturating_sub(others_bytes).saturating_sub(other.max(other_min_bytes)) / BLOCK_BYTES;
        usize::try_from(room.min(self.renewable(view, resident_bytes / BLOCK_BYTES))).unwrap_or(usize::MAX)
    }

    /// Maximum number of retained blocks that can be renewed in time: the formula of the module.
    fn renewable(&self, view: &View<'_>, frames: u64) -> u64 {
        // The worker pauses after calls for the same time as they took, without their preparation.
        let each = self.renewal.as_nanos().saturating_mul(BUSY_PART).saturating_add(self.preparation.as_nanos()).max(1);
        let in_time = (NANOS / each).max(1);
        let renewed_bytes = in_time.min(view.renewals_per_second.into()).saturating_mul(BLOCK_BYTES.into());
        let all =
            renewed_bytes.saturating_add(u128::from(self.per_second_bytes).saturating_mul(RENEWALS_PER_PERIOD.into()));
        let fitting = u128::from(frames).saturating_mul(renewed_bytes).checked_div(all);
        fitting.map_or(0, |fitting| u64::try_from(fitting).unwrap_or(frames))
    }
}

fn smoothed(so_far: Duration, now: Duration) -> Duration {
    so_far.saturating_mul(15).saturating_add(now) / 16
}

fn smoothed_bytes(so_far: u64, now: u64) -> u64 {
    let (more, less) = (now.saturating_sub(so_far), so_far.saturating_sub(now));
    so_far.saturating_add(more / INCREASE_PART).saturating_sub(less / DECREASE_PART)
}

fn per_second(bytes: u64, passed: Duration) -> Option<u64> {
    let rate = (u128::from(bytes) * NANOS).checked_div(passed.as_nanos())?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {

    use model::{Call, DecisionId, GpuUuid, Process, ProcessId, Step};

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES;
    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn renewal_rate_of(per_interval_bytes: u64) -> RenewalRate {
        RenewalRate::new(NOW, per_interval_bytes)
    }

    fn fitting(renewal_rate: &RenewalRate, frames: u64, renewals_per_second: u64) -> usize {
        let process = Process::new(ProcessId { pid: 1, start_ticks: 1 }, String::new());
        let view = View { renewals_per_second, ..View::of_test(&process, GpuUuid([1; 16])) };
        renewal_rate.fitting(&view, frames * BLOCK, 0, 0)
    }

    #[test]
    fn retained_blocks_leave_room_for_arrivals_and_one_block() {
        assert_eq!(fitting(&renewal_rate_of(3 * BLOCK), 62, u64::MAX), 62 - 4);
        assert_eq!(fitting(&renewal_rate_of(0), 62, u64::MAX), 62 - 2);
        assert_eq!(fitting(&renewal_rate_of(60 * BLOCK), 62, u64::MAX), 31, "arrivals get at most half");
    }

    #[test]
    fn retained_blocks_can_be_renewed_twice_before_eviction() {
        // 1,190 blocks in 100 ms are 25 GB/s.
        let renewal_rate = renewal_rate_of(1190 * BLOCK);
        let retained = fitting(&renewal_rate, 38_000, 32_768) as u64;
        assert_eq!(retained, 38_000 * 32_768 / (32_768 + 2 * 11_900));
        let seconds = (38_000 - retained) as f64 / 11_900.0;
        assert!(2.0 * retained as f64 / seconds <= 32_768.0, "each is renewed twice in {seconds} s");
        assert_eq!(fitting(&renewal_rate, 38_000, 0), 0);
        assert!(fitting(&renewal_rate_of(BLOCK), 38_000, 8) > 0, "a small budget keeps something");
    }

    #[test]
    fn late_snapshot_does_not_change_the_retained_blocks() {
        let mut renewal_rate = renewal_rate_of(100 * BLOCK);
        let before = fitting(&renewal_rate, 38_000, 32_768);
        renewal_rate.record_arrivals(NOW + Duration::from_secs(1), 1000 * BLOCK);
        assert_eq!(renewal_rate.per_second_bytes, 1000 * BLOCK);
        assert_eq!(fitting(&renewal_rate, 38_000, 32_768), before);
    }

    fn renewed(duration_ns: &[u64]) -> Outcome {
        let (process, gpu) = (ProcessId { pid: 1, start_ticks: 1 }, GpuUuid([1; 16]));
        let step = Step { begin: 0, end: BLOCK, action: Action::Touch(gpu) };
        let call = |duration_ns: &u64| Call { step, result: CallResult::Done, duration_ns: *duration_ns };
        Outcome {
            decision: DecisionId(1),
            process,
            gpu,
            is_rollback: false,
            actuator: None,
            calls: duration_ns.iter().map(call).collect(),
            advice_calls: model::AdviceCalls::default(),
            ready_ns: 0,
        }
    }

    #[test]
    fn slow_renewals_reduce_the_retained_blocks() {
        let mut renewal_rate = renewal_rate_of(1190 * BLOCK);
        let before = fitting(&renewal_rate, 38_000, u64::MAX);
        (0..100).for_each(|_| renewal_rate.record_outcome(&renewed(&[100_000; 100])));
        // Half of the time at 100 us each: 5,000 a second.
        let after = fitting(&renewal_rate, 38_000, u64::MAX);
        assert!(after < before && after.abs_diff(38_000 * 5000 / (5000 + 2 * 11_900)) < 100, "{before}, then {after}");
    }

    #[test]
    fn long_preparation_reduces_the_retained_blocks() {
        let mut renewal_rate = renewal_rate_of(1190 * BLOCK);
        // 16 calls at 2 ms: a process with many descriptors and mappings.
        (0..200).for_each(|_| renewal_rate.record_outcome(&Outcome { ready_ns: 2_000_000, ..renewed(&[10_000; 16]) }));
        let in_time = 1_000_000_000 / (2 * 10_000 + 125_000);
        let after = fitting(&renewal_rate, 38_000, u64::MAX);
        assert!(after.abs_diff(38_000 * in_time / (in_time + 2 * 11_900)) < 100, "{after}");
    }

    #[test]
    fn renewals_delayed_by_the_programs_faults_are_ignored() {
        let mut renewal_rate = renewal_rate_of(1190 * BLOCK);
        let before = renewal_rate.renewal;
        renewal_rate.record_outcome(&renewed(&[10_000, 10_000, 30_000_000, 30_000_000]));
        assert_eq!(renewal_rate.renewal, before);
        renewal_rate.record_outcome(&renewed(&[10_000_000_000]));
        assert!(renewal_rate.renewal < before * 2, "and a single stalled one changes little");
    }
}
