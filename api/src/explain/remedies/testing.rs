//! Test data about a process.

use std::collections::BTreeMap;

use model::VerdictKind;

use super::{Remedy, of_program};
use crate::{
    Counts, GpuDetail, InvolvedRange, Pattern, Process, Range, Ranges, Residency, Verdict, explain::case::Case,
};

pub(crate) const GIB: u64 = 1 << 30;

/// Verdict over a window of 5 s, and its context.
pub(crate) struct Fixture {
    kind: VerdictKind,
    pub(crate) verdict: Verdict,
    pub(crate) process: Process,
    pub(crate) ranges: Option<Ranges>,
    pub(crate) gpu: Option<GpuDetail>,
    pub(crate) in_mode_act: bool,
}

impl Fixture {
    pub(crate) fn new(kind: &str) -> Self {
        let verdict = Verdict { pid: 41_207, kind: kind.to_owned(), window_seconds: 5.0, ..Verdict::default() };
        let counts = Counts { api_calls: Some(0), ..Counts::default() };
        let process = Process { pid: 41_207, name: "python train.py".to_owned(), counts, ..Process::default() };
        let kind = VerdictKind::named(kind).unwrap();
        Self { kind, verdict, process, ranges: None, gpu: None, in_mode_act: false }
    }

    pub(crate) fn case(&self) -> Case<'_> {
        let Self { kind, verdict, process, ranges, gpu, in_mode_act } = self;
        Case { kind: *kind, verdict, process, ranges: ranges.as_ref(), gpu: gpu.as_ref(), in_mode_act: *in_mode_act }
    }

    /// Adds a range to the verdict.
    pub(crate) fn involved(&mut self, begin: u64, bytes: u64, pattern: &str, refetch_ratio: f64) -> &mut Self {
        let (begin, end) = (format!("{begin:#x}"), format!("{:#x}", begin + bytes));
        let pattern = Pattern { kind: pattern.to_owned(), stride_bytes: None, confidence: 0.98, steps: 1234 };
        let range = InvolvedRange { begin, end, bytes, pattern, traffic_ratio: 0.8, refetch_ratio };
        self.verdict.ranges.get_or_insert_default().push(range);
        self
    }

    /// Sets the resident bytes of the range added last.
    pub(crate) fn resident(&mut self, bytes: u64) -> &mut Self {
        let begin = self.verdict.ranges.as_ref().unwrap().last().unwrap().begin.clone();
        let resident = Some(Residency { bytes, min_bytes: bytes, max_bytes: bytes });
        self.ranges.get_or_insert_default().ranges.push(Range { begin, resident, ..Range::default() });
        self
    }

    /// Sets the GPU faults by access.
    pub(crate) fn faults(&mut self, reads: u64, writes: u64) -> &mut Self {
        self.process.counts.fault_entries_by_access = Some(by_access(reads, writes));
        self
    }

    /// Sets the CPU faults by access.
    pub(crate) fn cpu_faults(&mut self, reads: u64, writes: u64) -> &mut Self {
        self.process.counts.cpu_faults_by_access = Some(by_access(reads, writes));
        self
    }

    /// Sets the GPU's memory, and the managed memory of its processes.
    pub(crate) fn card(&mut self, memory_bytes: u64, managed_bytes: u64) -> &mut Self {
        self.gpu = Some(GpuDetail {
            memory_bytes: Some(memory_bytes),
            managed_capacity_bytes: Some(memory_bytes),
            managed_bytes,
            ..GpuDetail::default()
        });
        self
    }
}

fn by_access(reads: u64, writes: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([("read".to_owned(), reads), ("write".to_owned(), writes)])
}

pub(crate) fn effective(known: &Fixture) -> Vec<Remedy> {
    of_program(&known.case()).effective
}

pub(crate) fn actions(known: &Fixture) -> Vec<String> {
    effective(known).into_iter().map(|advice| advice.action).collect()
}
