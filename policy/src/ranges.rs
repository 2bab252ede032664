//! Which ranges of a process's memory a verdict is about.

use model::{Pattern, Range, RangeCounts, Reuse, VerdictKind, verdict::Involved};

use crate::thresholds::{RANGE_SHARE_MIN, RANGES_MAX};

/// What one snapshot says of a range.
#[derive(Clone, Debug)]
pub(crate) struct RangeReading {
    begin: u64,
    end: u64,
    pattern: Pattern,
    counts: RangeCounts,
}

impl RangeReading {
    pub(crate) fn of(range: &Range) -> Self {
        Self { begin: range.begin, end: range.end, pattern: range.pattern, counts: range.counts }
    }

    /// What was counted in it since `earlier`; nothing if it is not the same range any more.
    fn since(&self, earlier: Option<&Self>) -> RangeCounts {
        let Some(earlier) = earlier else { return self.counts };
        let (now, then) = (&self.counts, &earlier.counts);
        let reuse = Reuse {
            fetched_bytes: now.reuse.fetched_bytes.saturating_sub(then.reuse.fetched_bytes),
            refetched_bytes: now.reuse.refetched_bytes.saturating_sub(then.reuse.refetched_bytes),
            returned_bytes: now.reuse.returned_bytes.saturating_sub(then.reuse.returned_bytes),
            alternations: now.reuse.alternations.saturating_sub(then.reuse.alternations),
        };
        RangeCounts {
            fault_entries: now.fault_entries.saturating_sub(then.fault_entries),
            cpu_faults: now.cpu_faults.saturating_sub(then.cpu_faults),
            bytes_htod: now.bytes_htod.saturating_sub(then.bytes_htod),
            bytes_dtoh: now.bytes_dtoh.saturating_sub(then.bytes_dtoh),
            bytes_dtod: now.bytes_dtod.saturating_sub(then.bytes_dtod),
            populated_bytes: now.populated_bytes.saturating_sub(then.populated_bytes),
            evicted_bytes: now.evicted_bytes.saturating_sub(then.evicted_bytes),
            evictions: now.evictions.saturating_sub(then.evictions),
            reuse,
        }
    }
}

/// The ranges with most of the traffic that a verdict is about, between two readings, most first.
pub(crate) fn involved(kind: VerdictKind, earlier: &[RangeReading], later: &[RangeReading]) -> Vec<Involved> {
    let counted: Vec<(&RangeReading, RangeCounts)> = later
        .iter()
        .map(|range| {
            let same = |other: &&RangeReading| (other.begin, other.end) == (range.begin, range.end);
            (range, range.since(earlier.iter().find(same)))
        })
        .collect();
    let total: u64 = counted.iter().map(|(_, counts)| weight(kind, counts)).fold(0, u64::saturating_add);
    let mut involved: Vec<Involved> = counted
        .into_iter()
        .map(|(range, counts)| Involved {
            begin: range.begin,
            end: range.end,
            pattern: range.pattern,
            share: ratio(weight(kind, &counts), total),
            refetch_ratio: ratio(
                counts.reuse.refetched_bytes.saturating_add(counts.reuse.returned_bytes),
                counts.reuse.fetched_bytes,
            )
            .min(1.0),
        })
        .filter(|range| range.share >= RANGE_SHARE_MIN)
        .collect();
    involved.sort_by(|one, other| other.share.total_cmp(&one.share).then(one.begin.cmp(&other.begin)));
    involved.truncate(RANGES_MAX);
    involved
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
}

/// The traffic that a kind is about.
fn weight(kind: VerdictKind, counts: &RangeCounts) -> u64 {
    match kind {
        VerdictKind::CapacityThrash => counts.reuse.refetched_bytes,
        VerdictKind::PingPong => counts.reuse.returned_bytes,
        // Throttled pages fault and hardly move.
        VerdictKind::DriverThrottling => counts.fault_entries.saturating_add(counts.cpu_faults),
        VerdictKind::Streaming => counts.bytes_htod.saturating_add(counts.populated_bytes),
        VerdictKind::FirstTouchStorm => counts.populated_bytes,
    }
}
