//! Outcome of a process of a variant: its label, its verdict, and the errors of the verdict.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    episodes::Episode,
    facts::Facts,
    label::{Kind, label},
    timeline::{Timeline, Window},
};

/// Outcome of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) variant: String,
    pub(crate) process: String,
    pub(crate) label: Kind,
    /// Whether another label would be as justified, so that the outcome does not count.
    pub(crate) is_near: bool,
    pub(crate) verdict: Kind,
    /// Sums of its page events, by the log.
    pub(crate) facts: Facts,
    /// uvmd's counts of these events.
    pub(crate) uvmd: UvmdFacts,
    #[serde(rename = "told")]
    pub(crate) episodes: Vec<EpisodeReport>,
    /// Kinds that uvmd reported and the log does not show, and that the log shows and uvmd did not
    /// report.
    pub(crate) wrong: Vec<String>,
    /// Windows for which neither uvmd nor the log shows whether the verdict is right, as sentences.
    #[serde(default)]
    pub(crate) unjudged: Vec<String>,
    /// Delays from the start of a kind in the log to uvmd's report.
    #[serde(rename = "came_after")]
    pub(crate) start_delays: Vec<Delay>,
    /// Delays from the end of a kind in the log to the end of uvmd's report, if the process
    /// continued.
    #[serde(rename = "went_after")]
    pub(crate) end_delays: Vec<Delay>,
}

/// A delay.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Delay {
    pub(crate) seconds: f64,
    /// Delay in windows of uvmd, with the length of the verdict's last window.
    pub(crate) windows: f64,
}

/// uvmd's inputs of verdicts, summed up to the end of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UvmdFacts {
    pub(crate) fetched_bytes: u64,
    /// Fetched bytes with a block record, which include the next two.
    pub(crate) recorded_bytes: u64,
    pub(crate) refetched_bytes: u64,
    pub(crate) cpu_reclaimed_bytes: u64,
    pub(crate) populated_bytes: u64,
    pub(crate) evicted_bytes: u64,
    #[serde(rename = "evicted_for_it_bytes")]
    pub(crate) induced_eviction_bytes: u64,
    pub(crate) bounces: u64,
    pub(crate) throttles: u64,
}

/// A verdict of uvmd, in seconds since the start of the variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EpisodeReport {
    pub(crate) kind: Kind,
    pub(crate) since: f64,
    pub(crate) confirmed: f64,
    pub(crate) ended: Option<f64>,
    pub(crate) bytes: u64,
}

/// Input of the judgement of a process.
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
    /// uvmd's remarks on windows that it could not judge.
    pub(super) unjudged: &'a [String],
}

/// Number of windows after which uvmd must report a kind.
const LASTING_WINDOWS: usize = 4;
/// Share by which the minimums of an active verdict are lower.
const HYSTERESIS: f64 = 0.2;

impl Outcome {
    /// Whether the verdict equals the label, without other errors.
    pub(crate) fn is_right(&self) -> bool {
        self.label == self.verdict && self.wrong.is_empty()
    }

    /// Whether the outcome counts for nothing: there is no verdict, and its windows could not be judged.
    pub(crate) fn is_unjudged(&self) -> bool {
        self.verdict == Kind::None && self.label != Kind::None && !self.unjudged.is_empty()
    }
}

impl Delay {
    fn between(from: SystemTime, to: SystemTime, window: Duration) -> Self {
        let seconds = to.duration_since(from).unwrap_or_default().as_secs_f64();
        Self { seconds, windows: seconds / window.as_secs_f64().max(f64::EPSILON) }
    }
}

/// Compare uvmd's verdicts with the log.
pub(super) fn judge(case: &Case<'_>) -> Outcome {
    let &Case { variant, process, pid, gpu_bytes, timeline, begin, end, episodes, uvmd, unjudged } = case;
    let stretches = timeline.stretches(pid, gpu_bytes);
    let label = label(&stretches);
    let windows = timeline.windows(pid);
    let runs = runs(&windows);
    let seconds = |at: SystemTime| at.duration_since(begin).unwrap_or_default().as_secs_f64();
    let report = |episode: &Episode| EpisodeReport {
        kind: episode.kind,
        since: seconds(episode.since),
        confirmed: seconds(episode.confirmed),
        ended: episode.ended.map(seconds),
        bytes: episode.bytes,
    };
    let mut wrong = Vec::new();
    for episode in episodes.iter().filter(|episode| !is_supported(episode, timeline, pid, &windows, end)) {
        let until = episode.ended.unwrap_or(end);
        let facts = timeline.between(pid, episode.since, until);
        let (from, to) = (seconds(episode.since), seconds(until));
        wrong.push(format!(
            "{} reported from {from:.1} to {to:.1} s, but the log shows {}",
            episode.kind,
            Kind::of(&facts)
        ));
    }
    let (mut start_delays, mut end_delays) = (Vec::new(), Vec::new());
    for Run { kind, windows: count, begin: from, end: to, continues } in &runs {
        let overlaps = |episode: &&Episode| {
            episode.kind == *kind && episode.since < *to && episode.ended.is_none_or(|ended| ended > *from)
        };
        let Some(episode) = episodes.iter().find(overlaps) else {
            if *count >= LASTING_WINDOWS {
                wrong.push(format!("{kind} from {:.1} to {:.1} s, never reported", seconds(*from), seconds(*to)));
            }
            continue;
        };
        start_delays.push(Delay::between(*from, episode.confirmed, episode.window));
        let last = episodes.iter().filter(overlaps).filter_map(|episode| episode.last_active_at).max();
        if let Some(last) = last.filter(|_| *continues) {
            end_delays.push(Delay::between(*to, last, episode.window));
        }
    }
    let unshown = unshown(label.kind, &windows, seconds);
    Outcome {
        variant: variant.to_owned(),
        process: process.to_owned(),
        label: label.kind,
        is_near: label.is_near,
        verdict: verdict(episodes, uvmd.fetched_bytes + uvmd.populated_bytes),
        facts: timeline.between(pid, SystemTime::UNIX_EPOCH, end),
        uvmd,
        episodes: episodes.iter().map(report).collect(),
        wrong,
        unjudged: unjudged.iter().cloned().chain(unshown).collect(),
        start_delays,
        end_delays,
    }
}

/// Verdict of a run: the kind under which most bytes arrived.
fn verdict(episodes: &[Episode], arrived_bytes: u64) -> Kind {
    let of = |kind: Kind| -> u64 {
        episodes.iter().filter(|episode| episode.kind == kind).map(|episode| episode.bytes).sum()
    };
    let reported_bytes: u64 = episodes.iter().map(|episode| episode.bytes).sum();
    let bytes = |kind: Kind| if kind == Kind::None { arrived_bytes.saturating_sub(reported_bytes) } else { of(kind) };
    // Of equals, the kind with the highest precedence, but only if uvmd reported it.
    let candidates = Kind::ALL
        .into_iter()
        .filter(|kind| *kind == Kind::None || episodes.iter().any(|episode| episode.kind == *kind));
    candidates.rev().max_by_key(|kind| bytes(*kind)).unwrap_or(Kind::None)
}

/// Sentence for a label that the whole stretch shows and no window does. On a slow machine, a program
/// does in one stretch what it otherwise does in many.
fn unshown(label: Kind, windows: &[Window], seconds: impl Fn(SystemTime) -> f64) -> Option<String> {
    let is_shown = |window: &Window| !window.is_quiet && label.matches(&window.facts, HYSTERESIS);
    if label == Kind::None || windows.iter().any(is_shown) {
        return None;
    }
    let shown = |window: &Window| {
        let kind = if window.is_quiet { "quiet" } else { Kind::of(&window.facts).name() };
        format!("{kind} from {:.1} to {:.1} s", seconds(window.begin), seconds(window.end))
    };
    let windows: Vec<String> = windows.iter().map(shown).collect();
    let windows = if windows.is_empty() { "it ended before its first one".to_owned() } else { windows.join(", ") };
    Some(format!("no window of the log shows {label}: {windows}"))
}

/// Whether the log shows the kind of an episode, in its whole time or in one of its windows.
fn is_supported(episode: &Episode, timeline: &Timeline, pid: u32, windows: &[Window], end: SystemTime) -> bool {
    let until = episode.ended.unwrap_or(end);
    let matches = |facts: &Facts| episode.kind.matches(facts, HYSTERESIS);
    matches(&timeline.between(pid, episode.since, until))
        || windows
            .iter()
            .filter(|window| window.begin < until && window.end > episode.since)
            .any(|window| matches(&window.facts))
}

/// Consecutive windows that clearly are of one kind.
#[derive(Debug, PartialEq)]
struct Run {
    kind: Kind,
    windows: usize,
    begin: SystemTime,
    end: SystemTime,
    /// Whether the process continued for three windows after the run.
    continues: bool,
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
            _ => runs.push(Run { kind, windows: 1, begin: window.begin, end: window.end, continues: false }),
        }
    }
    let last = windows.last().map(|window| window.end);
    for run in &mut runs {
        run.continues = last.is_some_and(|last| last.duration_since(run.end).is_ok_and(|rest| rest >= THREE_WINDOWS));
    }
    runs
}

/// Length of three windows.
const THREE_WINDOWS: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests;
