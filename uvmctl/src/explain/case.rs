//! One verdict, with everything else that is known and bears on it.

use std::collections::BTreeMap;

use model::api::{GpuDetail, InvolvedRange, Process, Range, Ranges, Verdict};

use crate::text;

/// What advice is given on. What is `None` could not be known, or may not be told to whoever asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) verdict: &'a Verdict,
    pub(crate) process: &'a Process,
    pub(crate) ranges: Option<&'a Ranges>,
    pub(crate) gpu: Option<&'a GpuDetail>,
}

/// A range that the verdict is about, and what is known of it beyond that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Involved<'a> {
    pub(crate) range: &'a InvolvedRange,
    known: Option<&'a Range>,
}

impl<'a> Case<'a> {
    /// The ranges that the verdict is about, busiest first.
    pub(crate) fn involved(&self) -> impl Iterator<Item = Involved<'a>> + use<'a> {
        let ranges = self.ranges.map_or(&[][..], |ranges| &ranges.ranges);
        let known = move |begin: &str| ranges.iter().find(|range| range.begin == begin);
        let involved = self.verdict.ranges.as_deref().unwrap_or_default();
        involved.iter().map(move |range| Involved { range, known: known(&range.begin) })
    }

    /// The busiest of those that are accessed in one of these ways.
    pub(crate) fn busiest(&self, patterns: &[&str]) -> Option<Involved<'a>> {
        self.involved().find(|involved| patterns.contains(&involved.pattern()))
    }

    /// Managed memory that the GPU has room for.
    pub(crate) fn managed_capacity_bytes(&self) -> Option<u64> {
        self.gpu?.managed_capacity_bytes
    }

    /// Managed memory of others on the same card.
    pub(crate) fn others_bytes(&self) -> Option<u64> {
        self.gpu?.managed_bytes.checked_sub(self.process.managed_bytes?).filter(|others| *others > 0)
    }

    /// Bytes of the ranges that the verdict is about.
    pub(crate) fn involved_bytes(&self) -> Option<u64> {
        self.involved().map(|involved| involved.range.bytes).reduce(u64::saturating_add)
    }

    /// What of the ranges that the verdict is about is in GPU memory now; of all its memory, where that is not known.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        let there = |involved: Involved<'_>| Some(involved.known?.resident?.bytes);
        let sum = self.involved().map(there).reduce(|sum, bytes| Some(sum?.saturating_add(bytes?)));
        sum.flatten().or(self.process.resident.map(|resident| resident.bytes))
    }

    /// What of a range can find no room, even were nothing else there; where the room is not known, what is not there now.
    pub(crate) fn without_room(&self, involved: Involved<'_>) -> Option<u64> {
        match self.managed_capacity_bytes() {
            Some(room) => Some(involved.range.bytes.saturating_sub(room)),
            None => involved.not_resident_bytes(),
        }
    }

    /// What part of its GPU faults were writes, in its whole life; nothing if there were none.
    pub(crate) fn gpu_write_share(&self) -> Option<f64> {
        write_share(&self.process.counts.fault_entries_by_access)
    }

    /// What part of its CPU faults were writes, likewise.
    pub(crate) fn cpu_write_share(&self) -> Option<f64> {
        write_share(&self.process.counts.cpu_faults_by_access)
    }

    /// So many in the window, a second.
    pub(crate) fn per_second(&self, in_window: u64) -> f64 {
        in_window as f64 / self.verdict.window_seconds.max(f64::MIN_POSITIVE)
    }
}

/// Of faults by access. As floats, whose sum does not overflow.
fn write_share(by_access: &BTreeMap<String, u64>) -> Option<f64> {
    let sum = |wanted: fn(&str) -> bool| -> f64 {
        by_access.iter().filter(|(access, _)| wanted(access)).map(|(_, faults)| *faults as f64).sum()
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
        let begin = text::printable(&self.range.begin);
        format!("{} at {begin}", text::bytes(self.range.bytes))
    }

    /// `cyclic, which fits 98 % of 1.2k steps`
    pub(crate) fn pattern_with_evidence(&self) -> String {
        let pattern = &self.range.pattern;
        let kind = text::printable(&pattern.kind).replace('_', " ");
        let (fits, steps) = (text::percent(pattern.confidence), text::count(pattern.steps));
        format!("{kind}, which fits {fits} of {steps} steps from fault to fault")
    }

    /// What of it is not in GPU memory now.
    fn not_resident_bytes(&self) -> Option<u64> {
        Some(self.range.bytes.saturating_sub(self.known?.resident?.bytes))
    }
}
