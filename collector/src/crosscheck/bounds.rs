//! Comparison of what two sources counted between two readings of both.
//!
//! Both sources count on while they are read, so that their numbers are never those of the same
//! moment. The driver's counters are read before and after the probes: whatever the probes had
//! counted lies between the two. The same for a difference of two readings:
//!
//! ```text
//!   first   before ≤ probes ≤ after          later.before - first.after
//!   later   before ≤ probes ≤ after    ⇒       ≤ later.probes - first.probes ≤
//!                                            later.after - first.before
//! ```
//!
//! No count decreases, so that a number outside these bounds is no race of the readings. A thread may
//! still wait between the probe of an event and the driver's count of it.

use model::CheckedFigure;
use sys::uvm::tracker::Counters;

const fn count(counters: Counters, figure: CheckedFigure) -> u64 {
    match figure {
        CheckedFigure::FaultEntries => counters.fault_entries,
        CheckedFigure::CpuFaults => counters.cpu_faults,
        CheckedFigure::BytesHtod => counters.bytes_htod,
        CheckedFigure::BytesDtoh => counters.bytes_dtoh,
    }
}

/// Reading of both sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readings {
    /// Driver's counters before the probes were read.
    pub(crate) before: Counters,
    pub(crate) probes: Counters,
    /// Driver's counters after that.
    pub(crate) after: Counters,
    /// Events that the probes have dropped.
    pub(crate) dropped_events: u64,
}

/// What the probes counted, and the bounds of the driver's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min: u64,
    pub(super) probes: u64,
    pub(super) max: u64,
}

impl Bounds {
    pub(super) fn new(figure: CheckedFigure, first: &Readings, later: &Readings) -> Self {
        let difference = |now, then| count(now, figure).saturating_sub(count(then, figure));
        Self {
            min: difference(later.before, first.after),
            probes: difference(later.probes, first.probes),
            max: difference(later.after, first.before),
        }
    }

    pub(super) fn holds(self) -> bool {
        (self.min..=self.max).contains(&self.probes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counters that all have this number.
    fn all(number: u64) -> Counters {
        Counters { fault_entries: number, cpu_faults: number, bytes_htod: number, bytes_dtoh: number }
    }

    /// Counts of a program at consecutive moments: those of the driver's counters before, of the
    /// probes, and of the counters after. `offset`: what the probes had counted before the counters
    /// were attached.
    fn readings([before, probes, after]: [u64; 3], offset: u64) -> Readings {
        Readings { before: all(before), probes: all(probes + offset), after: all(after), dropped_events: 0 }
    }

    fn increasing() -> impl Strategy<Value = [u64; 6]> {
        prop::array::uniform6(0..1_000_000_u64).prop_map(|mut counts| {
            counts.sort_unstable();
            counts
        })
    }

    proptest! {
        #[test]
        fn sources_that_count_the_same_agree_whenever_they_are_read(counts in increasing(), offset in 0..u64::MAX / 2) {
            let [a, b, c, d, e, f] = counts;
            let (first, later) = (readings([a, b, c], offset), readings([d, e, f], offset));
            for figure in CheckedFigure::ALL {
                prop_assert!(Bounds::new(figure, &first, &later).holds());
            }
        }

        #[test]
        fn probes_that_missed_or_added_more_than_the_readings_took_disagree(counts in increasing(), wrong in 1..1_000_000_u64) {
            let [a, b, c, d, e, f] = counts;
            let first = readings([a, b, c], 0);
            // Beyond what was counted while both readings were taken, in which the error could hide.
            let error = wrong + (c - a) + (f - d);
            let added = readings([d, e + error, f], 0);
            prop_assert!(!Bounds::new(CheckedFigure::CpuFaults, &first, &added).holds());
            if e - b >= error {
                let missed = readings([d, e - error, f], 0);
                prop_assert!(!Bounds::new(CheckedFigure::CpuFaults, &first, &missed).holds());
            }
        }

        #[test]
        fn idle_program_shows_a_single_event(at in 0..1_000_000_u64, then in 1..1_000_000_u64) {
            let (first, later) = (readings([at; 3], 0), readings([at + then; 3], 0));
            for wrong in [then - 1, then + 1] {
                let later = Readings { probes: all(at + wrong), ..later };
                prop_assert!(!Bounds::new(CheckedFigure::BytesHtod, &first, &later).holds());
            }
        }
    }

    #[test]
    fn each_figure_is_compared_with_itself() {
        let later = Readings { probes: Counters { cpu_faults: 1, ..Counters::default() }, ..Readings::default() };
        let holds = CheckedFigure::ALL.map(|figure| Bounds::new(figure, &Readings::default(), &later).holds());
        assert_eq!(holds, [true, false, true, true]);
    }
}
