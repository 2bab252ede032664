//! uvmd's verdicts during a variant, polled: each from its first to its last occurrence.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, anyhow};
use serde::Deserialize;

use super::label::Kind;
use crate::uvmd::{Client, ProcessId};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Time without a response after which uvmd counts as hung. While the host is loaded, a response
/// may take longer than a request waits.
const SILENCE_MAX: Duration = Duration::from_mins(1);

/// Compared part of the body of `/api/v1/verdicts`.
#[derive(Debug, Default, Deserialize)]
struct Verdicts {
    active: Vec<Verdict>,
    ended: Vec<Verdict>,
}

#[derive(Clone, Debug, Deserialize)]
struct Verdict {
    pid: u32,
    start_ticks: u64,
    kind: Kind,
    started_at: String,
    confirmed_at: String,
    ended_at: Option<String>,
    window_seconds: f64,
    total: Total,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Total {
    bytes_htod: u64,
    populated_bytes: u64,
}

/// A verdict, from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Episode {
    pub(super) kind: Kind,
    pub(super) since: SystemTime,
    pub(super) confirmed: SystemTime,
    pub(super) ended: Option<SystemTime>,
    /// Time of the last poll at which the verdict was active.
    pub(super) last_active_at: Option<SystemTime>,
    pub(super) window: Duration,
    /// Bytes that arrived during the verdict.
    pub(super) bytes: u64,
}

/// All verdicts seen, by process, kind and start. uvmd deletes the oldest ended verdicts.
#[derive(Debug, Default)]
pub(super) struct Episodes(BTreeMap<(u32, u64, Kind, String), Episode>);

/// Thread that polls uvmd's verdicts.
pub(super) struct Poller {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Episodes>>,
}

impl Poller {
    pub(super) fn start(client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut episodes = Episodes::default();
            let mut responded_at = Instant::now();
            loop {
                let last = is_stopped.load(Ordering::Relaxed);
                let is_polled = match client.get("/api/v1/verdicts?limit=1000") {
                    Ok(verdicts) => {
                        episodes.add(&verdicts, SystemTime::now())?;
                        responded_at = Instant::now();
                        true
                    }
                    Err(error) if responded_at.elapsed() > SILENCE_MAX => return Err(error),
                    Err(_) => false,
                };
                if last && is_polled {
                    return Ok(episodes);
                }
                thread::sleep(POLL_INTERVAL);
            }
        });
        Self { stop, thread }
    }

    /// Stop the thread after a last poll.
    pub(super) fn stop(self) -> anyhow::Result<Episodes> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the thread that polls uvmd panicked"))?
    }
}

impl Episodes {
    fn add(&mut self, verdicts: &Verdicts, now: SystemTime) -> anyhow::Result<()> {
        for (verdict, is_active) in verdicts
            .active
            .iter()
            .zip([true].into_iter().cycle())
            .chain(verdicts.ended.iter().zip([false].into_iter().cycle()))
        {
            let key = (verdict.pid, verdict.start_ticks, verdict.kind, verdict.started_at.clone());
            let mut episode = verdict.episode()?;
            let before = self.0.get(&key).and_then(|before| before.last_active_at);
            episode.last_active_at = if is_active { Some(now) } else { before };
            self.0.insert(key, episode);
        }
        Ok(())
    }

    /// Verdicts on a process, by their start.
    pub(super) fn of(&self, process: ProcessId) -> Vec<Episode> {
        let entries = self.0.iter().filter(|((pid, start_ticks, ..), _)| process.is(*pid, *start_ticks));
        let mut episodes: Vec<Episode> = entries.map(|(_, episode)| episode.clone()).collect();
        episodes.sort_by_key(|episode| episode.since);
        episodes
    }
}

impl Verdict {
    fn episode(&self) -> anyhow::Result<Episode> {
        Ok(Episode {
            kind: self.kind,
            since: time(&self.started_at)?,
            confirmed: time(&self.confirmed_at)?,
            ended: self.ended_at.as_deref().map(time).transpose()?,
            last_active_at: None,
            window: Duration::try_from_secs_f64(self.window_seconds).context("uvmd's window_seconds")?,
            bytes: self.total.bytes_htod + self.total.populated_bytes,
        })
    }
}

fn time(text: &str) -> anyhow::Result<SystemTime> {
    humantime::parse_rfc3339(text).with_context(|| format!("uvmd's time {text:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn verdict(ended: Option<&str>, bytes: u64) -> Value {
        json!({
            "pid": 7, "start_ticks": 500, "kind": "capacity_thrash", "started_at": "2026-01-01T00:00:10Z",
            "confirmed_at": "2026-01-01T00:00:12Z", "ended_at": ended, "window_seconds": 2.5,
            "total": { "bytes_htod": bytes, "populated_bytes": 1, "bounces": 3 },
        })
    }

    fn poll(episodes: &mut Episodes, active: &[Value], ended: &[Value], at_s: u64) {
        let body = json!({ "time": "x", "active": active, "ended": ended, "victims": [] });
        episodes
            .add(&serde_json::from_value(body).unwrap(), SystemTime::UNIX_EPOCH + Duration::from_secs(at_s))
            .unwrap();
    }

    #[test]
    fn a_verdict_is_one_episode_from_the_first_poll_to_its_end() {
        let mut all = Episodes::default();
        poll(&mut all, &[verdict(None, 10)], &[], 100);
        poll(&mut all, &[verdict(None, 20)], &[], 200);
        poll(&mut all, &[], &[verdict(Some("2026-01-01T00:00:20Z"), 30)], 300);
        poll(&mut all, &[], &[], 400);
        let episodes = all.of(ProcessId { pid: 7, start_ticks: 500 });
        let [episode] = episodes.as_slice() else { panic!("{episodes:?}") };
        assert_eq!((episode.kind, episode.bytes), (Kind::CapacityThrash, 31));
        assert_eq!(episode.last_active_at, Some(SystemTime::UNIX_EPOCH + Duration::from_secs(200)));
        assert_eq!(episode.ended.unwrap().duration_since(episode.since).unwrap(), Duration::from_secs(10));
        assert!(all.of(ProcessId { pid: 7, start_ticks: 501 }).is_empty());
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let mut unknown = verdict(None, 1);
        unknown["kind"] = json!("bad_luck");
        assert!(serde_json::from_value::<Verdict>(unknown).is_err());
    }
}
