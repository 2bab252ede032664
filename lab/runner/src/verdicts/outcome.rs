//! One process of a variant: its label, its verdict, and what is wrong with it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    facts::Facts,
    label::{Kind, label},
    timeline::{Timeline, Window},
    told::Episode,
};

/// How it came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) variant: String,
    pub(crate) process: String,
    pub(crate) label: Kind,
    /// Another label would do as well: it does not count.
    pub(crate) is_near: bool,
    pub(crate) verdict: Kind,
    /// What its pages did in all, by the log.
    pub(crate) facts: Facts,
    /// What uvmd counted of that.
    pub(crate) uvmd: UvmdFacts,
    pub(crate) told: Vec<ToldOutcome>,
    /// Kinds that were told and not there, and that were there and not told.
    pub(crate) wrong: Vec<String>,
    /// From where a kind began by the log to where it was told.
    pub(crate) came_after: Vec<Delay>,
    /// From where a kind ended by the log to where it was told no more, where the process went on.
    pub(crate) went_after: Vec<Delay>,
}

/// How long something took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delay {
    pub(crate) seconds: f64,
    /// The same in windows of uvmd's, as long as the verdict's last.
    pub(crate) windows: f64,
}

/// uvmd's sums of what verdicts rest on, at the end of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UvmdFacts {
    pub(crate) fetched_bytes: u64,
    /// Of those, what block records tell of, the next two among it.
    pub(crate) recorded_bytes: u64,
    pub(crate) refetched_bytes: u64,
    pub(crate) cpu_reclaimed_bytes: u64,
    pub(crate) populated_bytes: u64,
    pub(crate) evicted_bytes: u64,
    pub(crate) evicted_for_it_bytes: u64,
    pub(crate) bounces: u64,
    pub(crate) throttles: u64,
}

/// A verdict, in seconds since the variant began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToldOutcome {
    pub(crate) kind: Kind,
    pub(crate) since: f64,
    pub(crate) confirmed: f64,
    pub(crate) ended: Option<f64>,
    pub(crate) bytes: u64,
}

/// What is known of the process.
pub(super) struct Case<'a> {
    pub(super) variant: &'a str,
    pub(super) process: &'a str,
    pub(super) pid: u32,
    pub(super) gpu_bytes: u64,
    pub(super) timeline: &'a Timeline,
    pub(super) begin: SystemTime,
    pub(super) end: SystemTime,
    pub(super) episodes: &'a [Episode],
    pub(super) uvmd: UvmdFacts,
}

/// A kind that lasts so many windows must be told.
const LASTING_WINDOWS: usize = 4;
/// While a verdict is in force, its minimums are that much lower.
const IN_FORCE: f64 = 0.2;

impl Outcome {
    /// Whether the verdict is the label, and nothing else is wrong.
    pub(crate) fn is_right(&self) -> bool {
        self.label == self.verdict && self.wrong.is_empty()
    }
}

impl Delay {
    fn between(from: SystemTime, to: SystemTime, window: Duration) -> Self {
        let seconds = to.duration_since(from).unwrap_or_default().as_secs_f64();
        Self { seconds, windows: seconds / window.as_secs_f64().max(f64::EPSILON) }
    }
}

/// Compare what was told with what was there.
pub(super) fn judge(case: &Case<'_>) -> Outcome {
    let &Case { variant, process, pid, gpu_bytes, timeline, begin, end, episodes, uvmd } = case;
    let stretches = timeline.stretches(pid, gpu_bytes);
    let label = label(&stretches);
    let windows = timeline.windows(pid);
    let runs = runs(&windows);
    let seconds = |at: SystemTime| at.duration_since(begin).unwrap_or_default().as_secs_f64();
    let told = |episode: &Episode| ToldOutcome {
        kind: episode.kind,
        since: seconds(episode.since),
        confirmed: seconds(episode.confirmed),
        ended: episode.ended.map(seconds),
        bytes: episode.bytes,
    };
    let mut wrong = Vec::new();
    for episode in episodes.iter().filter(|episode| !is_shown(episode, timeline, pid, &windows, end)) {
        let until = episode.ended.unwrap_or(end);
        let facts = timeline.between(pid, episode.since, until);
        let (from, to) = (seconds(episode.since), seconds(until));
        wrong.push(format!("{} told from {from:.1} to {to:.1} s, and it was {}", episode.kind, Kind::of(&facts)));
    }
    let (mut came_after, mut went_after) = (Vec::new(), Vec::new());
    for Run { kind, windows: count, begin: from, end: to, goes_on } in &runs {
        let overlaps = |episode: &&Episode| {
            episode.kind == *kind && episode.since < *to && episode.ended.is_none_or(|ended| ended > *from)
        };
        let Some(episode) = episodes.iter().find(overlaps) else {
            if *count >= LASTING_WINDOWS {
                wrong.push(format!("{kind} from {:.1} to {:.1} s, and never told", seconds(*from), seconds(*to)));
            }
            continue;
        };
        came_after.push(Delay::between(*from, episode.confirmed, episode.window));
        let last = episodes.iter().filter(overlaps).filter_map(|episode| episode.last_active_at).max();
        if let Some(last) = last.filter(|_| *goes_on) {
            went_after.push(Delay::between(*to, last, episode.window));
        }
    }
    Outcome {
        variant: variant.to_owned(),
        process: process.to_owned(),
        label: label.kind,
        is_near: label.is_near,
        verdict: verdict(episodes, uvmd.fetched_bytes + uvmd.populated_bytes),
        facts: timeline.between(pid, SystemTime::UNIX_EPOCH, end),
        uvmd,
        told: episodes.iter().map(told).collect(),
        wrong,
        came_after,
        went_after,
    }
}

/// The kind under which most bytes arrived.
fn verdict(episodes: &[Episode], arrived_bytes: u64) -> Kind {
    let of = |kind: Kind| -> u64 {
        episodes.iter().filter(|episode| episode.kind == kind).map(|episode| episode.bytes).sum()
    };
    let told: u64 = episodes.iter().map(|episode| episode.bytes).sum();
    let bytes = |kind: Kind| if kind == Kind::None { arrived_bytes.saturating_sub(told) } else { of(kind) };
    // Of equals the one that stands first, but only if it was told.
    let candidates = Kind::ALL
        .into_iter()
        .filter(|kind| *kind == Kind::None || episodes.iter().any(|episode| episode.kind == *kind));
    candidates.rev().max_by_key(|kind| bytes(*kind)).unwrap_or(Kind::None)
}

/// Whether the log shows its kind in all of its time, or in a window of it.
fn is_shown(episode: &Episode, timeline: &Timeline, pid: u32, windows: &[Window], end: SystemTime) -> bool {
    let until = episode.ended.unwrap_or(end);
    let may_be = |facts: &Facts| episode.kind.may_be(facts, IN_FORCE);
    may_be(&timeline.between(pid, episode.since, until))
        || windows
            .iter()
            .filter(|window| window.begin < until && window.end > episode.since)
            .any(|window| may_be(&window.facts))
}

/// Windows that follow each other and clearly are of one kind.
#[derive(Debug, PartialEq)]
struct Run {
    kind: Kind,
    windows: usize,
    begin: SystemTime,
    end: SystemTime,
    /// Whether the process was seen for three windows after it.
    goes_on: bool,
}

fn runs(windows: &[Window]) -> Vec<Run> {
    let clear = |window: &Window| {
        let possible = Kind::possible(&window.facts);
        let is_clear = possible.len() == 1 && !window.is_quiet;
        possible.into_iter().next().filter(|kind| is_clear && *kind != Kind::None)
    };
    let mut runs: Vec<Run> = Vec::new();
    for window in windows {
        let Some(kind) = clear(window) else { continue };
        match runs.last_mut() {
            Some(last) if last.kind == kind && last.end == window.begin => {
                last.windows += 1;
                last.end = window.end;
            }
            _ => runs.push(Run { kind, windows: 1, begin: window.begin, end: window.end, goes_on: false }),
        }
    }
    let last = windows.last().map(|window| window.end);
    for run in &mut runs {
        run.goes_on = last.is_some_and(|last| last.duration_since(run.end).is_ok_and(|rest| rest >= GOES_ON));
    }
    runs
}

/// Three windows.
const GOES_ON: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests;
