//! Counts of a process and of the other processes at a GPU, over spans of time before and after a
//! proposal.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{Access, Counters, LinkBytes, decision::Measured, verdict::Inputs};

use super::{
    arrivals::{Mark, Marks},
    live_policy::Accessed,
};
use crate::{
    act::{
        intervals::Intervals,
        limits::{NOISE_MAX, NOISE_MIN, PACE_BYTES_MIN},
        scene::Target,
    },
    reading::{counted_at, difference},
    thresholds::EARLY,
};

/// Length of the history, in windows.
const HISTORY_WINDOWS: u32 = 4;
/// Samples per window of the bytes that have arrived in each block.
const MARKS_PER_WINDOW: u32 = 4;

/// Cumulative counts at one moment.
#[derive(Clone, Debug)]
struct Sample {
    at: SystemTime,
    counted: Inputs,
    replays: u64,
    link: Option<LinkBytes>,
    /// Bytes copied over the link for all processes.
    copied_bytes: u64,
    /// Bytes of other processes evicted for this one.
    others_evicted_bytes: u64,
    /// Bytes that arrived for other processes.
    others_arrived_bytes: u64,
    /// Bytes that the program has passed, by the policy's own measure.
    passed_bytes: Option<u64>,
    atomic_faults: u64,
}

/// History of recent counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    samples: VecDeque<Sample>,
    marks: VecDeque<Arc<Mark>>,
}

/// Counts over a span of time.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) measured: Measured,
    /// Remotely accessed bytes, a part of `measured.own_link_bytes`.
    pub(crate) remote_bytes: u64,
    pub(crate) others_arrived_bytes: u64,
    pub(crate) passed_bytes: Option<u64>,
    pub(super) from: Option<Arc<Mark>>,
    pub(super) to: Option<Arc<Mark>>,
}

impl Meter {
    /// Adds a sample.
    pub(crate) fn read(&mut self, target: &Target<'_>, window: Duration, passed_bytes: Option<u64>, marks: &mut Marks) {
        let sample = sample(target, passed_bytes);
        if self.samples.back().is_some_and(|last| last.until(&sample).is_none()) {
            // Counts were reset, so earlier samples are useless.
            *self = Self::default();
        }
        let now = sample.at;
        self.samples.push_back(sample);
        let old = |at: SystemTime, windows: u32| between(at, now) > window.saturating_mul(windows);
        match marks.recent(target, window / MARKS_PER_WINDOW) {
            Some(mark) if self.marks.back().is_some_and(|last| last.at >= mark.at) => {}
            Some(mark) => self.marks.push_back(mark),
            // Blocks are unknown. A mark of a large process takes a megabyte.
            None => self.marks.retain(|mark| !old(mark.at, 1)),
        }
        while self.samples.get(1).is_some_and(|next| old(next.at, HISTORY_WINDOWS)) {
            self.samples.pop_front();
        }
        // The first mark in the history is at least a window old.
        while self.marks.get(1).is_some_and(|next| old(next.at, 1)) {
            self.marks.pop_front();
        }
    }

    /// Whether counts have changed within the history.
    pub(crate) fn is_busy(&self) -> bool {
        match (self.samples.front(), self.samples.back()) {
            (Some(first), Some(last)) => first.counted != last.counted,
            _ => false,
        }
    }

    /// Counts of the shortest last span of at least this length; `None` if the history is shorter.
    pub(crate) fn last(&self, window: Duration) -> Option<Span> {
        let (from, to) = self.last_samples(window)?;
        self.span(from, to)
    }

    /// Counts of the whole history.
    pub(crate) fn all(&self) -> Option<Span> {
        self.span(self.samples.front()?, self.samples.back()?)
    }

    /// Kinds of accesses in the last span of this length.
    pub(crate) fn accessed(&self, window: Duration) -> Option<Accessed> {
        let (from, to) = self.last_samples(window)?;
        Some(Accessed { gpu_atomics: to.atomic_faults > from.atomic_faults })
    }

    /// First and last sample of the last span of this length.
    fn last_samples(&self, window: Duration) -> Option<(&Sample, &Sample)> {
        let to = self.samples.back()?;
        let from = self.samples.iter().rev().find(|from| between(from.at, to.at) >= window.mul_f64(1.0 - EARLY))?;
        Some((from, to))
    }

    /// Counts since a time; `None` without a sample since then.
    pub(crate) fn since(&self, begin: SystemTime) -> Option<Span> {
        let to = self.samples.back()?;
        self.span(self.samples.iter().find(|from| from.at >= begin)?, to)
    }

    /// Counts between two samples. `None` if counts were reset, or if the link was read at one end
    /// only, because remote accesses are then unknown.
    fn span(&self, from: &Sample, to: &Sample) -> Option<Span> {
        let mut span = from.until(to).filter(|_| from.link.is_some() == to.link.is_some())?;
        span.from = self.marks.iter().rev().find(|mark| mark.at <= from.at).or(self.marks.front()).cloned();
        span.to = self.marks.back().cloned();
        Some(span)
    }

    /// Relative spread of the link bytes per second over successive half windows, before any
    /// action.
    pub(crate) fn noise(&self, window: Duration) -> f64 {
        let mut costs = Vec::new();
        let mut end = self.samples.len();
        while let Some(to) = end.checked_sub(1).and_then(|at| self.samples.get(at)) {
            let Some(begin) = self.samples.iter().take(end).rposition(|from| between(from.at, to.at) >= window / 2)
            else {
                break;
            };
            let span = self.samples.get(begin).and_then(|from| from.until(to));
            costs.extend(span.map(|span| rate(span.measured.own_link_bytes, span.measured.window)));
            end = begin.saturating_add(1);
        }
        let most = costs.iter().copied().fold(0.0, f64::max);
        let least = costs.iter().copied().fold(most, f64::min);
        let spread = if most > 0.0 { (most - least) / (most + least) } else { 0.0 };
        spread.clamp(NOISE_MIN, NOISE_MAX)
    }
}

impl Span {
    #[cfg(test)]
    pub(crate) const fn counted(measured: Measured) -> Self {
        Self { measured, remote_bytes: 0, others_arrived_bytes: 0, passed_bytes: None, from: None, to: None }
    }

    /// Bytes per second that arrived in blocks outside the affected memory; `None` below
    /// [`PACE_BYTES_MIN`].
    pub(crate) fn arrivals_outside(&self, touched: &Intervals) -> Option<f64> {
        let (from, to) = (self.from.as_ref()?, self.to.as_ref()?);
        let arrived = from.bytes_until(to, touched);
        (arrived >= PACE_BYTES_MIN && to.at > from.at).then(|| rate(arrived, between(from.at, to.at)))
    }
}

impl Sample {
    /// Counts from this sample to a later one; `None` if counts were reset in between.
    fn until(&self, to: &Self) -> Option<Span> {
        let window = to.at.duration_since(self.at).ok()?;
        let inputs = difference(&self.counted, &to.counted)?;
        let link = match (self.link, to.link) {
            (Some(from), Some(to)) => {
                Some(LinkBytes { htod: to.htod.checked_sub(from.htod)?, dtoh: to.dtoh.checked_sub(from.dtoh)? })
            }
            _ => None,
        };
        let own = inputs.bytes_htod.saturating_add(inputs.bytes_dtoh);
        let copied = to.copied_bytes.checked_sub(self.copied_bytes)?;
        let remote = link.map_or(0, |link| link.htod.saturating_add(link.dtoh).saturating_sub(copied));
        let measured = Measured {
            window,
            inputs,
            replays: to.replays.checked_sub(self.replays)?,
            link,
            own_link_bytes: own.saturating_add(remote),
            others_evicted_bytes: to.others_evicted_bytes.saturating_sub(self.others_evicted_bytes),
        };
        Some(Span {
            measured,
            remote_bytes: remote,
            others_arrived_bytes: to.others_arrived_bytes.saturating_sub(self.others_arrived_bytes),
            passed_bytes: to.passed_bytes.map(|passed| passed.saturating_sub(self.passed_bytes.unwrap_or(0))),
            from: None,
            to: None,
        })
    }
}

fn sample(target: &Target<'_>, passed_bytes: Option<u64>) -> Sample {
    let (snapshot, key) = (target.scene.snapshot, target.key());
    let copied = |counters: &Counters| counters.bytes_htod.total().saturating_add(counters.bytes_dtoh.total());
    let atomic_faults = faults_at_gpu(target, &[Access::AtomicWeak, Access::AtomicStrong]);
    Sample {
        at: target.scene.now,
        counted: counted_at(target.process, key),
        replays: target.process.gpus.get(&key).map_or(0, |counters| counters.replays),
        link: target.scene.links.get(&target.gpu).copied(),
        copied_bytes: snapshot.gpu_totals.get(&key).map_or(0, copied),
        others_evicted_bytes: target.gpu_context.evicted_bytes(target.process.id),
        others_arrived_bytes: target.gpu_context.others_arrived_bytes(target.process, key),
        passed_bytes,
        atomic_faults,
    }
}

fn faults_at_gpu(target: &Target<'_>, accesses: &[Access]) -> u64 {
    target.process.gpus.get(&target.key()).map_or(0, |counters| {
        accesses.iter().map(|access| counters.fault_entries[*access]).fold(0, u64::saturating_add)
    })
}

fn between(earlier: SystemTime, later: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or_default()
}

/// Rate per second.
pub(crate) fn rate(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() { 0.0 } else { count as f64 / elapsed.as_secs_f64() }
}
