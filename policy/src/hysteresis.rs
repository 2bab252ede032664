//! Start, duration and end of a verdict. It starts with one window, or replaces another of lower
//! rank; it ends with two consecutive windows that do not show it, or with one quiet one.

use std::time::{Duration, SystemTime};

use model::{Capabilities, GpuKey, ProcessId, Verdict, VerdictKind, verdict::Inputs};

use crate::{
    decision::{Decision, decide_as, precedes},
    ranges::involved,
    reading::{Moment, Reading, add},
    thresholds::CONTRARY_WINDOWS,
    window::WindowCounts,
};

/// A change of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Publication of a verdict.
    Began(Verdict),
    /// End of a verdict.
    Ended(Verdict),
}

/// The verdict in effect for one process at one GPU, and the windows that contradict it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hysteresis {
    active: Option<Active>,
    /// Windows since the last one that showed it.
    contrary: Vec<JudgedWindow>,
}

#[derive(Clone, Debug)]
struct Active {
    verdict: Verdict,
    /// Start of the verdict.
    since: Moment,
    /// End of the last window that showed it.
    shown_until: Moment,
}

#[derive(Clone, Debug)]
struct JudgedWindow {
    decision: Decision,
    counts: WindowCounts,
}

impl Hysteresis {
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.active.as_ref().map(|active| &active.verdict)
    }

    /// End of the last window that showed it.
    pub(crate) fn shown_until(&self) -> Option<SystemTime> {
        self.active.as_ref().map(|active| active.since.calendar_of(active.shown_until))
    }

    /// Whether a window that ended then showed the verdict in force.
    pub(crate) fn is_shown_at(&self, at: Moment) -> bool {
        self.active.as_ref().is_some_and(|active| active.shown_until.elapsed == at.elapsed)
    }

    /// Processes a complete window. At most one verdict ends, and then one starts.
    pub(crate) fn judge(
        &mut self,
        process: ProcessId,
        gpu: GpuKey,
        counts: WindowCounts,
        capabilities: Capabilities,
    ) -> Vec<Change> {
        let current = self.verdict().map(|verdict| verdict.kind);
        let decision = decide_as(&counts.inputs, current, capabilities);
        let shown = JudgedWindow { decision, counts };
        match (&mut self.active, shown.decision.kind) {
            (Some(active), Some(kind)) if kind == active.verdict.kind => {
                active.extend(&self.contrary, shown);
                self.contrary.clear();
                return Vec::new();
            }
            (None, None) => return Vec::new(),
            (None, Some(_)) => self.contrary = vec![shown],
            (Some(active), kind) => {
                let is_worse = kind.is_some_and(|kind| precedes(kind, active.verdict.kind));
                self.contrary.push(shown);
                if !is_worse && self.contrary.len() < CONTRARY_WINDOWS {
                    return Vec::new();
                }
            }
        }
        let windows = std::mem::take(&mut self.contrary);
        let ended = self.end().map(Change::Ended);
        self.active = Active::from_windows(process, gpu, windows);
        ended.into_iter().chain(self.verdict().cloned().map(Change::Began)).collect()
    }

    /// Ends the verdict: there were no events for a long time, or the process has exited.
    pub(crate) fn end(&mut self) -> Option<Verdict> {
        self.contrary.clear();
        let active = self.active.take()?;
        let ended_at = Some(active.since.calendar_of(active.shown_until));
        Some(Verdict { ended_at, ..active.verdict })
    }

    /// Replaces the GPU, whose identity has become known.
    pub(crate) fn set_gpu(&mut self, gpu: GpuKey) {
        if let Some(active) = &mut self.active {
            active.verdict.gpu = gpu;
        }
    }
}

impl Active {
    /// Verdict that the last window shows. It starts with the first of the consecutive windows that
    /// show it.
    fn from_windows(process: ProcessId, gpu: GpuKey, mut windows: Vec<JudgedWindow>) -> Option<Self> {
        let last = windows.last()?;
        let (kind, confirmed) = (last.decision.kind?, last.counts.to.at);
        let before = windows.iter().rposition(|window| window.decision.kind != Some(kind)).map_or(0, |at| at + 1);
        let mut showing = windows.drain(before..);
        let first = showing.next()?;
        let since = first.counts.from.at;
        let mut active = Self {
            since,
            shown_until: first.counts.to.at,
            verdict: Verdict {
                process,
                gpu,
                peer: None,
                kind,
                started_at: since.calendar,
                confirmed_at: since.calendar_of(confirmed),
                ended_at: None,
                ranges: Vec::new(),
                window: Duration::ZERO,
                inputs: Inputs::default(),
                total: Inputs::default(),
                checks: Vec::new(),
            },
        };
        active.extend(&[], first);
        for window in showing {
            active.extend(&[], window);
        }
        Some(active)
    }

    /// Extends the verdict: a window showed it again, after some that did not.
    fn extend(&mut self, between: &[JudgedWindow], JudgedWindow { decision, counts }: JudgedWindow) {
        let WindowCounts { inputs, from, to } = counts;
        let verdict = &mut self.verdict;
        for window in between {
            verdict.total = add(&verdict.total, &window.counts.inputs);
        }
        verdict.total = add(&verdict.total, &inputs);
        verdict.ranges = involved((verdict.kind, inputs.is_between_gpus()), &from.ranges, &to.ranges);
        verdict.window = to.at.since(from.at);
        verdict.peer = peer(verdict.kind, &inputs, &from, &to);
        verdict.inputs = inputs;
        verdict.checks = decision.checks;
        self.shown_until = to.at;
    }
}

/// The GPU from which the GPU of a verdict took most blocks between two readings, if blocks bounce
/// between GPUs.
fn peer(kind: VerdictKind, inputs: &Inputs, from: &Reading, to: &Reading) -> Option<GpuKey> {
    let is_about_sides = matches!(kind, VerdictKind::PingPong | VerdictKind::DriverThrottling);
    if !is_about_sides || !inputs.is_between_gpus() {
        return None;
    }
    let taken = |(peer, bounces): (&GpuKey, &u64)| {
        let before = from.peers.get(peer).copied().unwrap_or_default();
        (bounces.saturating_sub(before), *peer)
    };
    to.peers.iter().map(taken).filter(|(bounces, _)| *bounces > 0).max().map(|(_, peer)| peer)
}
