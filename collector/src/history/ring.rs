//! Samples of one process or GPU, fine and coarse.

use std::time::{Duration, Instant};

use model::Sample;

use super::series::Series;

const SECOND: Duration = Duration::from_secs(1);
/// Period of the fine samples.
const FINE_BACK: Duration = Duration::from_hours(1);
/// Length of a coarse sample, if a fine one is not longer.
const COARSE: Duration = Duration::from_secs(10);
/// Period of the coarse samples.
const COARSE_BACK: Duration = Duration::from_hours(24);

/// Division of time into slots. Slot `n` lasts from `n - 1` to `n` lengths after the begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    fine: Duration,
    /// Fine slots in a coarse one.
    ratio: u64,
}

impl Steps {
    /// Slots for readings at this interval: whole seconds, so that each slot has one.
    pub(super) fn of(interval: Duration) -> Self {
        let seconds = interval.as_millis().div_ceil(SECOND.as_millis()).max(1);
        let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
        Self { fine: SECOND * seconds, ratio: COARSE.as_secs().div_ceil(seconds.into()) }
    }

    /// Time a fine slot before a moment.
    pub(super) fn before(&self, moment: Instant) -> Instant {
        moment.checked_sub(self.fine).unwrap_or(moment)
    }

    /// Slot that a reading ends.
    pub(super) fn ended_by(&self, since_begin: Duration) -> u64 {
        slots(since_begin + self.fine / 2, self.fine)
    }

    const fn coarse(&self, fine_slot: u64) -> u64 {
        fine_slot.div_ceil(self.ratio)
    }

    fn coarse_length(&self) -> Duration {
        times(self.fine, self.ratio)
    }
}

fn slots(time: Duration, length: Duration) -> u64 {
    u64::try_from(time.as_nanos() / length.as_nanos().max(1)).unwrap_or(u64::MAX)
}

fn times(length: Duration, slots: u64) -> Duration {
    let nanos = length.as_nanos().saturating_mul(slots.into());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Ring of samples.
#[derive(Debug, Default)]
pub(super) struct Ring {
    fine: Series,
    coarse: Series,
    /// Current coarse slot, with its sample so far.
    open: Option<(u64, Sample)>,
    /// Last slot with a count.
    busy: u64,
}

/// Samples of the requested period.
#[derive(Debug, PartialEq)]
pub(super) struct Found {
    /// Begin of the first sample, after the begin of the history.
    pub(super) begin: Duration,
    pub(super) interval: Duration,
    pub(super) samples: Vec<Option<Sample>>,
}

impl Ring {
    /// Adds the sample of a slot, which follows all earlier ones.
    pub(super) fn push(&mut self, steps: &Steps, slot: u64, sample: Sample) {
        if (Sample { resident_bytes: 0, ..sample }) != Sample::default() {
            self.busy = slot;
        }
        self.fine.push(slot, &sample, slots(FINE_BACK, steps.fine).max(1));
        let coarse_max = slots(COARSE_BACK, steps.coarse_length()).max(1);
        let coarse = steps.coarse(slot);
        let sum = match self.open.take() {
            Some((open, sum)) if open == coarse => add(sum, sample),
            Some((open, sum)) => {
                self.coarse.push(open, &sum, coarse_max);
                sample
            }
            None => sample,
        };
        if slot == coarse * steps.ratio {
            self.coarse.push(coarse, &sum, coarse_max);
        } else {
            self.open = Some((coarse, sum));
        }
    }

    /// Last slot with a count.
    pub(super) const fn busy(&self) -> u64 {
        self.busy
    }

    pub(super) const fn bytes(&self) -> usize {
        self.fine.bytes() + self.coarse.bytes()
    }

    /// Removes all samples.
    pub(super) fn clear(&mut self) {
        *self = Self { busy: self.busy, ..Self::default() };
    }

    /// Removes the older half.
    pub(super) fn halve(&mut self) {
        self.fine.halve();
        self.coarse.halve();
    }

    /// Samples of a period before the end of slot `last`, the finest that go back far enough; with
    /// more than `samples_max`, adjacent ones are added up.
    pub(super) fn lately(&self, steps: &Steps, last: u64, back: Duration, samples_max: usize) -> Found {
        let (series, length, last) = if back <= FINE_BACK {
            (&self.fine, steps.fine, last)
        } else {
            (&self.coarse, steps.coarse_length(), last / steps.ratio)
        };
        let wanted = slots(back, length).max(1).min(last);
        let begun = last + 1 - wanted;
        let first = series.first().map_or(last + 1, |first| first.max(begun));
        let slots = (last + 1).saturating_sub(first);
        let together = slots.div_ceil(u64::try_from(samples_max).unwrap_or(u64::MAX).max(1)).max(1);
        // The newest are complete; the oldest slots that do not fill a sample are omitted.
        let first = first + slots % together;
        let count = usize::try_from(slots / together).unwrap_or_default();
        let mut samples = vec![None; count];
        for (slot, sample) in series.samples().filter(|(slot, _)| (first..=last).contains(slot)) {
            let at = usize::try_from((slot - first) / together).unwrap_or(usize::MAX);
            if let Some(sum) = samples.get_mut(at) {
                *sum = Some(sum.map_or(sample, |sum| add(sum, sample)));
            }
        }
        Found { begin: times(length, first.saturating_sub(1)), interval: times(length, together), samples }
    }
}

/// Sum of two successive samples. The later is `after`.
const fn add(before: Sample, after: Sample) -> Sample {
    Sample {
        fault_entries: before.fault_entries.saturating_add(after.fault_entries),
        cpu_faults: before.cpu_faults.saturating_add(after.cpu_faults),
        bytes_htod: before.bytes_htod.saturating_add(after.bytes_htod),
        bytes_dtoh: before.bytes_dtoh.saturating_add(after.bytes_dtoh),
        evicted_bytes: before.evicted_bytes.saturating_add(after.evicted_bytes),
        refetched_bytes: before.refetched_bytes.saturating_add(after.refetched_bytes),
        resident_bytes: after.resident_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: Steps = Steps { fine: SECOND, ratio: 10 };

    fn faults(fault_entries: u64) -> Sample {
        Sample { fault_entries, resident_bytes: fault_entries, ..Sample::default() }
    }

    /// Ring with as many faults in each slot as its number.
    fn ring(slots: impl IntoIterator<Item = u64>) -> Ring {
        let mut ring = Ring::default();
        for slot in slots {
            ring.push(&STEPS, slot, faults(slot));
        }
        ring
    }

    fn faulted(found: &Found) -> Vec<Option<u64>> {
        found.samples.iter().map(|sample| sample.map(|sample| sample.fault_entries)).collect()
    }

    #[test]
    fn slot_length_is_a_second_or_the_longer_interval() {
        let lengths = |millis| {
            let steps = Steps::of(Duration::from_millis(millis));
            (steps.fine.as_secs(), steps.coarse_length().as_secs())
        };
        assert_eq!([100, 1000, 1500, 7000, 60_000].map(lengths), [(1, 10), (1, 10), (2, 10), (7, 14), (60, 60)]);
    }

    #[test]
    fn reading_ends_the_nearest_slot() {
        let ended = [0, 400, 999, 1003, 1499, 1500, 2100].map(|millis| STEPS.ended_by(Duration::from_millis(millis)));
        assert_eq!(ended, [0, 0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn last_seconds_are_returned_individually() {
        let found = ring(1..=100).lately(&STEPS, 100, Duration::from_secs(3), 300);
        assert_eq!(faulted(&found), [Some(98), Some(99), Some(100)]);
        assert_eq!((found.begin, found.interval), (SECOND * 97, SECOND));
    }

    #[test]
    fn excess_samples_are_merged_with_the_newest_complete() {
        let found = ring(1..=10).lately(&STEPS, 10, Duration::from_secs(10), 3);
        // The two oldest do not fill a sample with the first.
        assert_eq!(faulted(&found), [Some(3 + 4 + 5 + 6), Some(7 + 8 + 9 + 10)]);
        assert_eq!((found.begin, found.interval), (SECOND * 2, SECOND * 4));
    }

    #[test]
    fn late_start_has_no_earlier_samples() {
        let found = ring(8..=10).lately(&STEPS, 10, Duration::from_mins(5), 300);
        assert_eq!((faulted(&found), found.begin), (vec![Some(8), Some(9), Some(10)], SECOND * 7));
    }

    #[test]
    fn slots_without_a_reading_are_missing() {
        let found = ring([1, 2, 5, 6]).lately(&STEPS, 8, Duration::from_mins(5), 300);
        assert_eq!(faulted(&found), [Some(1), Some(2), None, None, Some(5), Some(6), None, None]);
        let together = ring([1, 2, 5, 6]).lately(&STEPS, 8, Duration::from_mins(5), 4);
        assert_eq!(faulted(&together), [Some(3), None, Some(11), None]);
    }

    #[test]
    fn day_is_returned_in_coarse_samples_with_equal_sums() {
        let ring = ring(1..=86_400);
        let hour = ring.lately(&STEPS, 86_400, FINE_BACK, usize::MAX);
        assert_eq!((hour.samples.len(), hour.interval), (3600, SECOND));
        let day = ring.lately(&STEPS, 86_400, COARSE_BACK, usize::MAX);
        assert_eq!((day.samples.len(), day.interval, day.begin), (8640, COARSE, Duration::ZERO));
        let sum = |found: &Found, last: usize| faulted(found).iter().rev().take(last).map(|n| n.unwrap()).sum::<u64>();
        assert_eq!(sum(&hour, 3600), sum(&day, 360));
        assert_eq!(sum(&day, 8640), (1..=86_400).sum::<u64>());
        // Residency is that of the end.
        assert_eq!(day.samples[0].unwrap().resident_bytes, 10);
    }

    #[test]
    fn coarse_sample_is_returned_once_complete() {
        let day = |slots: std::ops::RangeInclusive<u64>| {
            let last = *slots.end();
            faulted(&ring(slots).lately(&STEPS, last, COARSE_BACK, 100))
        };
        assert_eq!(day(1..=9), []);
        assert_eq!(day(1..=10), [Some(55)]);
        assert_eq!(day(1..=19), [Some(55)]);
        // The reading at its end was missed.
        assert_eq!(faulted(&ring((1..=9).chain(11..=12)).lately(&STEPS, 12, COARSE_BACK, 100)), [Some(45)]);
    }

    #[test]
    fn busy_day_takes_about_400_kib() {
        let mut ring = Ring::default();
        for slot in 1..=90_000_u64 {
            let noise = slot.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let bytes = 20_000_000_000 + noise;
            let sample = Sample {
                fault_entries: 100_000 + noise % 10_000,
                cpu_faults: noise % 1000,
                bytes_htod: bytes,
                bytes_dtoh: bytes,
                evicted_bytes: bytes,
                refetched_bytes: bytes,
                resident_bytes: bytes,
            };
            ring.push(&STEPS, slot, sample);
        }
        assert!((350 << 10..450 << 10).contains(&ring.bytes()), "{} bytes", ring.bytes());
    }

    #[test]
    fn empty_ring_has_no_samples() {
        for last in [0, 5] {
            assert_eq!(Ring::default().lately(&STEPS, last, FINE_BACK, 0).samples, []);
        }
    }
}
