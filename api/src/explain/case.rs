//! One verdict with its context.

use std::collections::BTreeMap;

use model::{VerdictKind, text};

use crate::{GpuDetail, InvolvedRange, Process, Range, Ranges, Verdict};

/// A verdict with what remedies depend on. `None` is unknown, or requires read permission.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// Kind of the verdict.
    pub kind: VerdictKind,
    /// Verdict.
    pub verdict: &'a Verdict,
    /// Its process.
    pub process: &'a Process,
    /// Ranges of the process.
    pub ranges: Option<&'a Ranges>,
    /// GPU of the verdict.
    pub gpu: Option<&'a GpuDetail>,
    /// Whether the policy in effect has mode act, for the process of uvmd's remedy: the evictor, else
    /// the process itself.
    pub in_mode_act: bool,
}

/// Range of a verdict with its details.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Involved<'a> {
    pub(crate) range: &'a InvolvedRange,
    details: Option<&'a Range>,
}

impl<'a> Case<'a> {
    /// Ranges of the verdict, busiest first.
    pub(crate) fn involved(&self) -> impl Iterator<Item = Involved<'a>> + use<'a> {
        let ranges = self.ranges.map_or(&[][..], |ranges| &ranges.ranges);
        let details = move |begin: &str| ranges.iter().find(|range| range.begin == begin);
        let involved = self.verdict.ranges.as_deref().unwrap_or_default();
        involved.iter().map(move |range| Involved { range, details: details(&range.begin) })
    }

    /// Busiest range with one of these access patterns.
    pub(crate) fn busiest(&self, patterns: &[&str]) -> Option<Involved<'a>> {
        self.involved().find(|involved| patterns.contains(&involved.pattern()))
    }

    /// Managed memory that fits on the GPU.
    pub(crate) fn managed_capacity_bytes(&self) -> Option<u64> {
        self.gpu?.managed_capacity_bytes
    }

    /// Managed memory of other processes on the GPU.
    pub(crate) fn others_bytes(&self) -> Option<u64> {
        self.gpu?.managed_bytes.checked_sub(self.process.managed_bytes?).filter(|others| *others > 0)
    }

    /// Bytes of the verdict's ranges.
    pub(crate) fn involved_bytes(&self) -> Option<u64> {
        self.involved().map(|involved| involved.range.bytes).reduce(u64::saturating_add)
    }

    /// Bytes of the verdict's ranges in GPU memory now; of all the process's memory, if the ranges'
    /// are unknown.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let resident = |involved: Involved<'_>| Some(involved.details?.resident?.bytes);
        let sum = self.involved().map(resident).reduce(|sum, bytes| Some(sum?.saturating_add(bytes?)));
        sum.flatten().or(self.process.resident.map(|resident| resident.bytes))
    }

    /// Bytes of a range beyond the capacity of the otherwise empty GPU; with unknown capacity,
    /// bytes that are not resident now.
    pub(crate) fn excess_bytes(&self, involved: Involved<'_>) -> Option<u64> {
        match self.managed_capacity_bytes() {
            Some(capacity) => Some(involved.range.bytes.saturating_sub(capacity)),
            None => involved.not_resident_bytes(),
        }
    }

    /// Share of writes among the process's GPU faults since its start; `None` without faults, and if these are not counted.
    pub(crate) fn gpu_write_share(&self) -> Option<f64> {
        write_share(self.process.counts.fault_entries_by_access.as_ref()?)
    }

    /// Share of writes among the process's CPU faults since its start; `None` without faults, and if these are not counted.
    pub(crate) fn cpu_write_share(&self) -> Option<f64> {
        write_share(self.process.counts.cpu_faults_by_access.as_ref()?)
    }

    /// Rate of a count over the window, such as `1.2k/s`.
    pub(crate) fn rate(&self, in_window: u64, shown: text::Formatter) -> String {
        rate(self.verdict, in_window, shown)
    }
}

/// Rate of a count over the window of a verdict.
pub(super) fn rate(verdict: &Verdict, in_window: u64, shown: text::Formatter) -> String {
    let per_second = in_window as f64 / verdict.window_seconds.max(f64::MIN_POSITIVE);
    text::per_second(Some(per_second), shown)
}

/// Share of writes among faults by access. Sums are floats, which do not overflow.
fn write_share(by_access: &BTreeMap<String, u64>) -> Option<f64> {
    let sum = |is_counted: fn(&str) -> bool| -> f64 {
        by_access.iter().filter(|(access, _)| is_counted(access)).map(|(_, faults)| *faults as f64).sum()
    };
    let all = sum(|_| true);
    (all > 0.0).then(|| sum(|access| !is_read(access)) / all)
}

fn is_read(access: &str) -> bool {
    matches!(access, "read" | "prefetch")
}

impl Involved<'_> {
    pub(crate) fn pattern(&self) -> &str {
        &self.range.pattern.kind
    }

    /// `48.0 GiB at 0x7f2a40000000`
    pub(crate) fn name(&self) -> String {
        let begin = &self.range.begin;
        format!("{} at {begin}", text::bytes(self.range.bytes))
    }

    /// `cyclic, which fits 98 % of 1.2k steps`
    pub(crate) fn pattern_with_evidence(&self) -> String {
        let pattern = &self.range.pattern;
        let kind = pattern.kind.replace('_', " ");
        let (fits, steps) = (text::percent(pattern.confidence), text::count(pattern.steps));
        format!("{kind}, which fits {fits} of {steps} steps from fault to fault")
    }

    /// Bytes that are not in GPU memory now.
    fn not_resident_bytes(&self) -> Option<u64> {
        Some(self.range.bytes.saturating_sub(self.details?.resident?.bytes))
    }
}
