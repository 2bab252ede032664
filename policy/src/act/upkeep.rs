//! How large a set of blocks can be kept at the GPU, and how many of them are to be renewed at each look.
//!
//! While `arriving` blocks come from one look to the next and `left` frames are not the set's, a block that was renewed is evicted `left / arriving`
//! looks later. Each is renewed twice in that time, as looks come late: `2 * members * arriving / left` at each look. So of `frames` in all, with
//! `renewals` that can be done at a look, no more than `frames * renewals / (renewals + 2 * arriving)` can be kept up.

use std::time::{Duration, SystemTime};

use model::{Action, Answer, Outcome, block::BLOCK_BYTES};

use super::reactor::View;

/// What is left to everything else, at the least: the block that arrives, and the one before it that is still in use.
pub(crate) const RESERVE_MIN_BYTES: u64 = 2 * BLOCK_BYTES;
/// And at the most, as a part of what the GPU holds. Where more arrives between two looks, the blocks that were renewed first are lost and the others
/// stay: to renew too many costs nothing.
const RESERVE_MAX: (u64, u64) = (1, 2);
/// What arrives from one look to the next comes in bursts, which have to fit: of what is more than thought, this part is believed at once...
const MORE: u64 = 2;
/// ...and of what is less, this part. A look that was late once is no reason to keep less for long.
const LESS: u64 = 16;
/// From one look to the next, until that has been seen.
const LOOK: Duration = Duration::from_millis(100);
/// What the driver takes to renew a block, until that has been seen.
const RENEWAL: Duration = Duration::from_micros(10);
/// Of the time, one part in so many goes to renewing at most.
const BUSY: u128 = 2;
const NANOS: u128 = 1_000_000_000;
/// How often a block is renewed before it would be evicted.
pub(crate) const TIMES: u64 = 2;

/// What keeping blocks takes, as far as it was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upkeep {
    /// What arrives from one look to the next.
    per_look_bytes: u64,
    looked: Option<SystemTime>,
    look: Duration,
    renewal: Duration,
}

impl Upkeep {
    /// If so much arrives in 100 ms.
    pub(crate) const fn new(per_look_bytes: u64) -> Self {
        Self { per_look_bytes, looked: None, look: LOOK, renewal: RENEWAL }
    }

    pub(crate) const fn per_look_bytes(&self) -> u64 {
        self.per_look_bytes
    }

    /// So much came since the last look.
    pub(crate) fn looks(&mut self, now: SystemTime, came_bytes: u64) {
        let (more, less) =
            (came_bytes.saturating_sub(self.per_look_bytes), self.per_look_bytes.saturating_sub(came_bytes));
        self.per_look_bytes = self.per_look_bytes.saturating_add(more / MORE).saturating_sub(less / LESS);
        let passed = self.looked.and_then(|looked| now.duration_since(looked).ok());
        self.look = passed.map_or(self.look, |passed| mean(self.look, passed));
        self.looked = Some(now);
    }

    /// What came of an order tells how long renewing takes: its lower quartile, as a call that waited for the program's own faults tells of those.
    pub(crate) fn carried_out(&mut self, outcome: &Outcome) {
        let done = outcome.calls.iter().filter(|call| call.answer == Answer::Done);
        let renewals = done.filter(|call| matches!(call.step.action, Action::Renew(_)));
        let mut took: Vec<u64> =
            renewals.map(|call| call.took_ns / call.step.bytes().div_ceil(BLOCK_BYTES).max(1)).collect();
        let quarter = took.len() / 4;
        if quarter < took.len() {
            let (_, lower, _) = took.select_nth_unstable(quarter);
            self.renewal = mean(self.renewal, Duration::from_nanos(*lower));
        }
    }

    /// How many blocks can be kept of what is held, with so much left to everything else at the least.
    pub(crate) fn fitting(&self, view: &View<'_>, held_bytes: u64, left_bytes: u64) -> usize {
        let most = (held_bytes / RESERVE_MAX.1 * RESERVE_MAX.0).max(RESERVE_MIN_BYTES);
        let reserve = self.per_look_bytes.saturating_add(BLOCK_BYTES).clamp(RESERVE_MIN_BYTES, most);
        let beside = held_bytes.saturating_sub(reserve.max(left_bytes)) / BLOCK_BYTES;
        usize::try_from(beside.min(self.renewable(view, held_bytes / BLOCK_BYTES))).unwrap_or(usize::MAX)
    }

    fn renewable(&self, view: &View<'_>, frames: u64) -> u64 {
        // In a second, as many as there is time for.
        let in_time = NANOS / BUSY / self.renewal.as_nanos().max(1);
        let renewals = in_time.min(view.renewals_per_second.into()).saturating_mul(self.look.as_nanos()) / NANOS;
        let all = renewals.saturating_add(u128::from(TIMES.saturating_mul(self.per_look_bytes) / BLOCK_BYTES));
        let fitting = u128::from(frames).saturating_mul(renewals).checked_div(all);
        fitting.map_or(frames, |fitting| u64::try_from(fitting).unwrap_or(frames))
    }
}

/// Slowly: one that is far off tells little.
fn mean(so_far: Duration, now: Duration) -> Duration {
    (so_far * 15 + now) / 16
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Call, DecisionId, GpuUuid, Process, ProcessId, Step};

    use super::*;

    const BLOCK: u64 = BLOCK_BYTES;

    fn fitting(upkeep: &Upkeep, frames: u64, renewals_per_second: u64) -> usize {
        let process = Process::new(ProcessId { pid: 1, start_ticks: 1 }, String::new());
        let view = View {
            now: SystemTime::UNIX_EPOCH,
            process: &process,
            gpu: GpuUuid([1; 16]),
            gpu_memory_bytes: None,
            verdicts: &[],
            victims: &[],
            accessed: None,
            ranges: &[],
            blocks: &[],
            others: &[],
            renewals_per_second,
            parameters: &BTreeMap::new(),
        };
        upkeep.fitting(&view, frames * BLOCK, 0)
    }

    #[test]
    fn what_arrives_and_a_block_more_are_left_to_everything_else() {
        assert_eq!(fitting(&Upkeep::new(3 * BLOCK), 62, u64::MAX), 62 - 4);
        assert_eq!(fitting(&Upkeep::new(0), 62, u64::MAX), 62 - 2);
        assert_eq!(fitting(&Upkeep::new(60 * BLOCK), 62, u64::MAX), 31, "and half at the most");
    }

    #[test]
    fn no_more_is_kept_than_can_be_renewed_twice_before_it_would_be_evicted() {
        // 1,190 blocks in 100 ms are 25 GB/s.
        let upkeep = Upkeep::new(1190 * BLOCK);
        let kept = fitting(&upkeep, 38_000, 32_768) as u64;
        assert_eq!(kept, 38_000 * 3276 / (3276 + 2 * 1190));
        let looks = (38_000 - kept) as f64 / 1190.0;
        assert!(2.0 * kept as f64 / looks <= 3276.0, "each is renewed twice in {looks} looks");
        assert_eq!(fitting(&upkeep, 38_000, 0), 0);
    }

    #[test]
    fn a_driver_that_takes_long_to_renew_a_block_renews_fewer() {
        let mut upkeep = Upkeep::new(1190 * BLOCK);
        let before = fitting(&upkeep, 38_000, u64::MAX);
        let step = Step { begin: 0, end: 100 * BLOCK, action: Action::Renew(GpuUuid([1; 16])) };
        let (process, gpu) = (ProcessId { pid: 1, start_ticks: 1 }, GpuUuid([1; 16]));
        let calls = vec![Call { step, answer: Answer::Done, took_ns: 100 * 100_000 }];
        let outcome = Outcome { decision: DecisionId(1), process, gpu, is_undoing: false, calls };
        (0..100).for_each(|_| upkeep.carried_out(&outcome));
        // Half of the time at 100 us each: 500 a look.
        let after = fitting(&upkeep, 38_000, u64::MAX);
        assert!(after < before && after.abs_diff(38_000 * 500 / (500 + 2 * 1190)) < 100, "{before}, then {after}");
    }
}
