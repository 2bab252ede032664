//! When a verdict begins, stands and ends. It begins with one window, or ends another that stands less high; it ends with two windows in a row
//! that do not show it, or with one quiet one.

use std::time::{Duration, SystemTime};

use model::{GpuKey, ProcessId, Verdict, verdict::Inputs};

use crate::{
    decision::{Decision, decide, precedes},
    ranges::involved,
    reading::add,
    thresholds::CONTRARY_WINDOWS,
    window::Stretch,
};

/// What became of a verdict.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// It was told.
    Began(Verdict),
    /// It is over.
    Ended(Verdict),
}

/// What stands against one process at one GPU.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hysteresis {
    told: Option<Told>,
    /// The windows since, that do not show it.
    contrary: Vec<Shown>,
}

#[derive(Clone, Debug)]
struct Told {
    verdict: Verdict,
    /// The end of the last window that showed it.
    shown_until: SystemTime,
}

#[derive(Clone, Debug)]
struct Shown {
    decision: Decision,
    stretch: Stretch,
}

impl Hysteresis {
    pub(crate) fn verdict(&self) -> Option<&Verdict> {
        self.told.as_ref().map(|told| &told.verdict)
    }

    /// The end of the last window that showed it.
    pub(crate) fn shown_until(&self) -> Option<SystemTime> {
        self.told.as_ref().map(|told| told.shown_until)
    }

    /// A window is over. At most one verdict ends, and then one begins.
    pub(crate) fn judge(&mut self, process: ProcessId, gpu: GpuKey, stretch: Stretch) -> Vec<Change> {
        let hysteresis = self.verdict().map(|verdict| verdict.kind);
        let decision = decide(&stretch.inputs, hysteresis);
        let shown = Shown { decision, stretch };
        match (&mut self.told, shown.decision.kind) {
            (Some(told), Some(kind)) if kind == told.verdict.kind => {
                told.goes_on(&self.contrary, shown);
                self.contrary.clear();
                return Vec::new();
            }
            (None, None) => return Vec::new(),
            (None, Some(_)) => self.contrary = vec![shown],
            (Some(told), kind) => {
                let is_worse = kind.is_some_and(|kind| precedes(kind, told.verdict.kind));
                self.contrary.push(shown);
                if !is_worse && self.contrary.len() < CONTRARY_WINDOWS {
                    return Vec::new();
                }
            }
        }
        let windows = std::mem::take(&mut self.contrary);
        let ended = self.end().map(Change::Ended);
        self.told = Told::begins(process, gpu, windows);
        ended.into_iter().chain(self.verdict().cloned().map(Change::Began)).collect()
    }

    /// Nothing came for long, or the process is gone.
    pub(crate) fn end(&mut self) -> Option<Verdict> {
        self.contrary.clear();
        let Told { verdict, shown_until } = self.told.take()?;
        // Not before its beginning, should the clock have been set back.
        Some(Verdict { ended_at: Some(shown_until.max(verdict.started_at)), ..verdict })
    }

    /// Which GPU it is became known.
    pub(crate) fn is_at(&mut self, gpu: GpuKey) {
        if let Some(told) = &mut self.told {
            told.verdict.gpu = gpu;
        }
    }
}

impl Told {
    /// By what the last of these windows shows, from the first on after which all show it.
    fn begins(process: ProcessId, gpu: GpuKey, mut windows: Vec<Shown>) -> Option<Self> {
        let last = windows.last()?;
        let kind = last.decision.kind?;
        let before = windows.iter().rposition(|window| window.decision.kind != Some(kind)).map_or(0, |at| at + 1);
        let mut showing = windows.drain(before..);
        let first = showing.next()?;
        let mut told = Self {
            shown_until: first.stretch.to.at,
            verdict: Verdict {
                process,
                gpu,
                kind,
                started_at: first.stretch.from.at,
                confirmed_at: first.stretch.to.at,
                ended_at: None,
                ranges: Vec::new(),
                window: Duration::ZERO,
                inputs: Inputs::default(),
                total: Inputs::default(),
                checks: Vec::new(),
            },
        };
        told.goes_on(&[], first);
        for window in showing {
            told.verdict.confirmed_at = window.stretch.to.at;
            told.goes_on(&[], window);
        }
        Some(told)
    }

    /// A window showed it again, after some that did not.
    fn goes_on(&mut self, between: &[Shown], Shown { decision, stretch }: Shown) {
        let Stretch { inputs, from, to } = stretch;
        let verdict = &mut self.verdict;
        for window in between {
            verdict.total = add(&verdict.total, &window.stretch.inputs);
        }
        verdict.total = add(&verdict.total, &inputs);
        verdict.ranges = involved(verdict.kind, &from.ranges, &to.ranges);
        verdict.window = to.at.duration_since(from.at).unwrap_or_default();
        verdict.inputs = inputs;
        verdict.checks = decision.checks;
        self.shown_until = to.at;
    }
}
