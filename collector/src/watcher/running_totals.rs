//! Figures of the probes since uvmd started. Each attachment starts at 0; these sums are monotonic.

use std::{collections::BTreeMap, time::Duration};

use abi::{DropReason, Probe, RecordFate};
use model::{ProbeStatus, RecordFigures};

use crate::{Records, figures::Figures};

/// Runs of probes that the kernel skipped: unknown to the probes, so not among their reasons.
pub(super) const SKIPPED: &str = "skipped";

/// Totals of earlier attachments.
#[derive(Debug, Default)]
pub(super) struct RunningTotals {
    dropped: BTreeMap<&'static str, u64>,
    records: RecordFigures,
    probes: BTreeMap<&'static str, ProbeStatus>,
}

impl RunningTotals {
    pub(super) fn new(records: &Records) -> Self {
        Self { records: RecordFigures { is_off: !records.enabled, ..RecordFigures::default() }, ..Self::default() }
    }

    /// Adds the figures of a finished attachment.
    pub(super) fn add(&mut self, figures: &Figures) {
        self.dropped = self.dropped(figures);
        self.records = self.records(figures);
        for probe in Probe::ALL {
            self.probes.insert(probe.name(), self.probe(*probe, figures, None));
        }
    }

    /// Dropped events by reason, with all reasons. `figures`: of the current attachment, if any.
    pub(super) fn dropped(&self, figures: &Figures) -> BTreeMap<&'static str, u64> {
        let now = DropReason::ALL.iter().map(|reason| (reason.name(), figures.dropped.get(*reason as usize).copied()));
        let mut sums = self.dropped.clone();
        for (reason, events) in now.chain([(SKIPPED, Some(figures.skipped()))]) {
            let sum: &mut u64 = sums.entry(reason).or_default();
            *sum = sum.saturating_add(events.unwrap_or_default());
        }
        sums
    }

    /// Block records by fate.
    pub(super) fn records(&self, figures: &Figures) -> RecordFigures {
        let now = |fate| figures.records.get(fate as usize).copied().unwrap_or_default();
        let RecordFigures { written, sampled_out, dropped, is_off } = self.records;
        RecordFigures {
            is_off,
            written: written.saturating_add(now(RecordFate::Written)),
            sampled_out: sampled_out.saturating_add(now(RecordFate::SampledOut)),
            dropped: dropped.saturating_add(now(RecordFate::Dropped)),
        }
    }

    /// Statistics of the probes. `missing`: those that are not attached now, and the reasons.
    pub(super) fn probes(&self, figures: &Figures, missing: &BTreeMap<Probe, String>) -> Vec<ProbeStatus> {
        Probe::ALL.iter().map(|probe| self.probe(*probe, figures, missing.get(probe))).collect()
    }

    fn probe(&self, probe: Probe, figures: &Figures, missing: Option<&String>) -> ProbeStatus {
        let earlier = self.probes.get(probe.name());
        let run_times = [earlier.and_then(|earlier| earlier.run_time), figures.program(probe).run_time];
        ProbeStatus {
            name: probe.name().to_owned(),
            hits: earlier.map_or(0, |earlier| earlier.hits)
                + figures.hits.get(probe as usize).copied().unwrap_or_default(),
            run_time: run_times.into_iter().flatten().reduce(Duration::saturating_add),
            missing: missing.cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::ProgramInfo;

    fn figures(hits: u64, unreadable: u64, run_time: Option<Duration>) -> Figures {
        let mut figures = Figures { hits: vec![hits; Probe::ALL.len()], dropped: vec![0; 6], ..Figures::default() };
        figures.dropped[DropReason::Unreadable as usize] = unreadable;
        figures.programs[Probe::Notify as usize] = ProgramInfo { run_time, skipped: 1 };
        figures
    }

    #[test]
    fn totals_continue_across_attachments() {
        let mut totals = RunningTotals::default();
        totals.add(&figures(10, 2, Some(Duration::from_secs(1))));
        let second = figures(5, 1, Some(Duration::from_secs(2)));
        let [notify, ..] = &totals.probes(&second, &BTreeMap::new())[..] else { panic!() };
        assert_eq!((notify.hits, notify.run_time), (15, Some(Duration::from_secs(3))));
        let lost = totals.dropped(&second);
        assert_eq!((lost["unreadable"], lost["skipped"], lost["ring_full"]), (3, 2, 0));
    }

    #[test]
    fn run_times_remain_when_the_kernel_stops_measuring() {
        let mut totals = RunningTotals::default();
        totals.add(&figures(10, 0, Some(Duration::from_secs(1))));
        assert_eq!(totals.probes(&figures(1, 0, None), &BTreeMap::new())[0].run_time, Some(Duration::from_secs(1)));
        assert_eq!(RunningTotals::default().probes(&figures(1, 0, None), &BTreeMap::new())[0].run_time, None);
    }
}
