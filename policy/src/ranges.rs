//! Ranges of a process's memory that a verdict involves.

use model::{Pattern, Range, RangeCounts, Ranges, Reuse, VerdictKind, verdict::Involved};

use crate::thresholds::{RANGE_SHARE_MIN, RANGES_MAX};

/// Readings of one snapshot: cumulative counts of a process's ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangesReading {
    busiest: Vec<RangeReading>,
    /// Whether there are further ranges.
    is_cut: bool,
}

#[derive(Clone, Debug)]
struct RangeReading {
    begin: u64,
    end: u64,
    pattern: Pattern,
    counts: RangeCounts,
}

impl RangesReading {
    pub(crate) fn of(ranges: &Ranges) -> Self {
        let reading = |range: &Range| RangeReading {
            begin: range.begin,
            end: range.end,
            pattern: range.pattern,
            counts: range.counts,
        };
        let busiest: Vec<RangeReading> = ranges.busiest.iter().map(reading).collect();
        Self { is_cut: ranges.known > busiest.len() as u64, busiest }
    }

    /// Cumulative counts of a range; `None` if unknown.
    fn counted(&self, range: &RangeReading) -> Option<RangeCounts> {
        let same = |other: &&RangeReading| (other.begin, other.end) == (range.begin, range.end);
        let known = self.busiest.iter().find(same).map(|range| range.counts);
        // A missing range had no counts, or was not among the busiest.
        known.or((!self.is_cut).then(RangeCounts::default))
    }
}

fn difference(earlier: &RangeCounts, later: &RangeCounts) -> RangeCounts {
    let since = |counted: fn(&RangeCounts) -> u64| counted(later).saturating_sub(counted(earlier));
    RangeCounts {
        fault_entries: since(|counts| counts.fault_entries),
        cpu_faults: since(|counts| counts.cpu_faults),
        bytes_htod: since(|counts| counts.bytes_htod),
        bytes_dtoh: since(|counts| counts.bytes_dtoh),
        bytes_dtod: since(|counts| counts.bytes_dtod),
        populated_bytes: since(|counts| counts.populated_bytes),
        evicted_bytes: since(|counts| counts.evicted_bytes),
        evictions: since(|counts| counts.evictions),
        reuse: Reuse {
            fetched_bytes: since(|counts| counts.reuse.fetched_bytes),
            refetched_bytes: since(|counts| counts.reuse.refetched_bytes),
            cpu_reclaimed_bytes: since(|counts| counts.reuse.cpu_reclaimed_bytes),
            bounces: since(|counts| counts.reuse.bounces),
        },
    }
}

/// Kind of a verdict, and whether it is between GPUs.
pub(crate) type Subject = (VerdictKind, bool);

/// Ranges with most of the verdict's traffic between two readings, in descending order.
pub(crate) fn involved(subject: Subject, earlier: &RangesReading, later: &RangesReading) -> Vec<Involved> {
    let counted: Vec<(&RangeReading, RangeCounts)> = later
        .busiest
        .iter()
        .filter_map(|range| Some((range, difference(&earlier.counted(range)?, &range.counts))))
        .collect();
    let total: u64 = counted.iter().map(|(_, counts)| weight(subject, counts)).fold(0, u64::saturating_add);
    let mut involved: Vec<Involved> = counted
        .into_iter()
        .map(|(range, counts)| Involved {
            begin: range.begin,
            end: range.end,
            pattern: range.pattern,
            traffic_ratio: ratio(weight(subject, &counts), total),
            refetch_ratio: ratio(
                counts.reuse.refetched_bytes.saturating_add(counts.reuse.cpu_reclaimed_bytes),
                counts.reuse.fetched_bytes,
            )
            .min(1.0),
        })
        .filter(|range| range.traffic_ratio >= RANGE_SHARE_MIN)
        .collect();
    involved.sort_by(|one, other| other.traffic_ratio.total_cmp(&one.traffic_ratio).then(one.begin.cmp(&other.begin)));
    involved.truncate(RANGES_MAX);
    involved
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

/// Traffic that matters for a kind.
fn weight((kind, is_between_gpus): Subject, counts: &RangeCounts) -> u64 {
    match kind {
        VerdictKind::CapacityThrash => counts.reuse.refetched_bytes,
        // Ranges have no counts of what GPUs take from each other: all that arrives.
        VerdictKind::PingPong if is_between_gpus => counts.reuse.fetched_bytes,
        VerdictKind::PingPong => counts.reuse.cpu_reclaimed_bytes,
        // Throttled pages fault and hardly move.
        VerdictKind::DriverThrottling => counts.fault_entries.saturating_add(counts.cpu_faults),
        VerdictKind::Streaming => {
            counts.bytes_htod.saturating_add(counts.bytes_dtod).saturating_add(counts.populated_bytes)
        }
        VerdictKind::FirstTouchStorm => counts.populated_bytes,
    }
}

#[cfg(test)]
mod tests {
    use model::Residency;

    use super::*;

    fn range(begin: u64, refetched_bytes: u64, populated_bytes: u64) -> Range {
        let reuse = Reuse { fetched_bytes: 2 * refetched_bytes, refetched_bytes, ..Reuse::default() };
        let counts = RangeCounts { populated_bytes, reuse, ..RangeCounts::default() };
        Range {
            begin,
            end: begin + 4096,
            mapped: true,
            counts,
            residency: Residency::default(),
            pattern: Pattern::UNKNOWN,
        }
    }

    fn of(busiest: Vec<Range>, others: u64) -> RangesReading {
        RangesReading::of(&Ranges { known: busiest.len() as u64 + others, busiest, ..Ranges::default() })
    }

    /// First address of each range, and its share in percent.
    fn shares(involved: &[Involved]) -> Vec<(u64, String)> {
        involved.iter().map(|range| (range.begin, format!("{:.0}", range.traffic_ratio * 100.0))).collect()
    }

    #[test]
    fn involved_ranges_have_their_share_of_the_window() {
        let earlier = of(vec![range(0, 1000, 0), range(4096, 0, 1000)], 0);
        let later = of(vec![range(0, 1100, 5000), range(4096, 300, 1000), range(8192, 3, 1)], 0);
        let thrash = involved((VerdictKind::CapacityThrash, false), &earlier, &later);
        assert_eq!(
            shares(&thrash),
            [(4096, "74".to_owned()), (0, "25".to_owned())],
            "and not the one with less than 1 %"
        );
        assert_eq!(format!("{:.1}", thrash[0].refetch_ratio), "0.5");
        let touched = involved((VerdictKind::FirstTouchStorm, false), &earlier, &later);
        assert_eq!(shares(&touched), [(0, "100".to_owned())]);
        assert!(involved((VerdictKind::PingPong, false), &earlier, &later).is_empty(), "nothing came back from a CPU");
    }

    #[test]
    fn range_absent_from_the_earlier_reading_is_not_counted_as_new() {
        let later = of(vec![range(0, 1100, 0), range(4096, 900_000, 0)], 1);
        let thrash = involved((VerdictKind::CapacityThrash, false), &of(vec![range(0, 1000, 0)], 2), &later);
        assert_eq!(shares(&thrash), [(0, "100".to_owned())]);
    }

    #[test]
    fn involved_ranges_are_limited_to_the_busiest() {
        let later = of((0..100).map(|at| range(at * 4096, 1000 + at, 0)).collect(), 0);
        let thrash = involved((VerdictKind::CapacityThrash, false), &RangesReading::default(), &later);
        assert_eq!(thrash.len(), RANGES_MAX);
        assert_eq!(thrash[0].begin, 99 * 4096);
    }
}
