//! Windows and verdicts for each process and GPU, over successive snapshots.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{
    Capabilities, Gpu, GpuKey, Process, ProcessId, Quantity, Snapshot, Usage, Verdict, Verdicts, verdict::Unjudged,
};

use crate::{
    hysteresis::{Change, Hysteresis},
    reading::{Moment, ProcessReading, Reading, difference},
    thresholds::{ENDED_MAX, LATE_WINDOWS, UNJUDGED_MAX, WINDOW},
    verdict_time::{Increment, VerdictTime},
    victims::Victims,
    window::{Window, WindowState, is_enough},
};

/// Judge of successive snapshots, at any pace.
#[derive(Clone, Debug)]
pub struct Judge {
    window: Duration,
    /// Time between two readings that are in time.
    interval: Duration,
    /// Time of the last snapshot.
    last: Option<Moment>,
    processes: BTreeMap<ProcessId, Watched>,
    /// Ended verdicts, the latest first.
    ended: VecDeque<Verdict>,
    victims: Victims,
    verdict_time: VerdictTime,
    usage: Arc<Usage>,
    /// Windows that could not be judged, the latest first, and their number.
    unjudged: VecDeque<Unjudged>,
    unjudged_windows: u64,
}

/// Parameters of one reading.
#[derive(Clone, Copy, Debug)]
struct Timing {
    /// Minimum window.
    window: Duration,
    /// Configured interval of readings.
    interval: Duration,
    /// Whether a window may wait for late records.
    may_wait: bool,
    /// Quantities that are counted.
    capabilities: Capabilities,
}

#[derive(Clone, Debug)]
struct Watched {
    /// Counts without a GPU at the last reading.
    host: Reading,
    gpus: BTreeMap<GpuKey, Track>,
}

#[derive(Clone, Debug)]
struct Track {
    last: Reading,
    window: Window,
    hysteresis: Hysteresis,
    /// Windows that a late reading merged into the open one.
    late: Option<Unjudged>,
}

impl Default for Judge {
    fn default() -> Self {
        Self::new(WINDOW)
    }
}

impl Judge {
    /// Judge with this minimum window.
    #[must_use]
    pub fn new(window: Duration) -> Self {
        Self {
            window,
            interval: Duration::ZERO,
            last: None,
            processes: BTreeMap::new(),
            ended: VecDeque::new(),
            victims: Victims::default(),
            verdict_time: VerdictTime::default(),
            usage: Arc::default(),
            unjudged: VecDeque::new(),
            unjudged_windows: 0,
        }
    }

    /// Sets the interval of readings. A reading is late after [`LATE_WINDOWS`] intervals.
    #[must_use]
    pub fn with_interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Processes a snapshot. Counts before the first one are not judged.
    pub fn observe(&mut self, snapshot: &Snapshot) -> Vec<Change> {
        let processes: BTreeMap<ProcessId, &Process> =
            snapshot.processes.iter().map(|process| (process.id, process)).collect();
        let mut changes = self.drop_absent(&processes);
        for process in &snapshot.processes {
            changes.extend(self.observe_process(process, snapshot));
        }
        let usage = Arc::make_mut(&mut self.usage);
        usage.observe(snapshot);
        let mut account = |verdict: &Verdict, until| {
            let duration = duration_until(verdict, until);
            let process = processes.get(&verdict.process).copied();
            let increment = self.verdict_time.add(verdict, duration, process, snapshot);
            if let Some(Increment { owner, step, duration }) = increment {
                usage.add_verdict_time(owner, step.as_deref(), verdict.kind, duration);
            }
            if let Some(process) = process {
                usage.judge(verdict, process, snapshot);
            }
        };
        for change in &changes {
            if let Change::Ended(verdict) = change {
                account(verdict, verdict.ended_at);
                self.ended.push_front(verdict.clone());
            }
        }
        self.ended.truncate(ENDED_MAX);
        self.unjudged.truncate(UNJUDGED_MAX);
        for hysteresis in
            self.processes.values().flat_map(|watched| watched.gpus.values()).map(|track| &track.hysteresis)
        {
            if let Some(verdict) = hysteresis.verdict() {
                account(verdict, hysteresis.shown_until());
            }
        }
        self.verdict_time.retain_listed(snapshot);
        self.victims.observe(snapshot, self.window);
        self.last = Some(Moment::of(snapshot));
        changes
    }

    /// Current verdicts.
    #[must_use]
    pub fn verdicts(&self) -> Verdicts {
        let tracks = self.processes.values().flat_map(|watched| watched.gpus.values());
        let mut active: Vec<Verdict> = tracks.filter_map(|track| track.hysteresis.verdict().cloned()).collect();
        active.sort_by_key(|verdict| Reverse(verdict.traffic_bytes()));
        Verdicts {
            active,
            ended: self.ended.iter().cloned().collect(),
            victims: self.victims.latest().to_vec(),
            unjudged: self.unjudged.iter().copied().collect(),
            unjudged_windows: self.unjudged_windows,
            verdict_time: self.verdict_time.sums().clone(),
            usage: Arc::clone(&self.usage),
        }
    }

    fn drop_absent(&mut self, present: &BTreeMap<ProcessId, &Process>) -> Vec<Change> {
        let missing: Vec<ProcessId> =
            self.processes.keys().filter(|process| !present.contains_key(process)).copied().collect();
        missing
            .iter()
            .filter_map(|process| self.processes.remove(process))
            .flat_map(|mut watched| watched.end())
            .collect()
    }

    fn observe_process(&mut self, process: &Process, snapshot: &Snapshot) -> Vec<Change> {
        let now = ProcessReading::of(process, Moment::of(snapshot));
        let Some(last) = self.last else {
            self.processes.insert(process.id, Watched::starting_at(now));
            return Vec::new();
        };
        // A process that is new in this snapshot had no counts before.
        let watched = self
            .processes
            .entry(process.id)
            .or_insert_with(|| Watched { host: Reading::zero(last), gpus: BTreeMap::new() });
        let mut changes = watched.resolve_pending(&now, &snapshot.gpus);
        let capabilities = Capabilities::of(snapshot);
        let timing = Timing {
            window: self.window,
            interval: self.interval,
            may_wait: process.exited_at.is_none() && capabilities.has(Quantity::Reuse),
            capabilities,
        };
        let (read, unjudged) = watched.read(process.id, now, timing);
        changes.extend(read);
        for each in unjudged {
            self.unjudged_windows = self.unjudged_windows.saturating_add(each.windows);
            self.unjudged.push_front(each);
        }
        if process.exited_at.is_some() {
            changes.extend(watched.end());
        }
        changes
    }
}

impl Watched {
    fn starting_at(now: ProcessReading) -> Self {
        let gpus = now.gpus.into_iter().map(|(gpu, reading)| (gpu, Track::from(reading))).collect();
        Self { host: now.host, gpus }
    }

    /// Moves counts of an unknown GPU to the GPU once it is known. Its verdict moves too, and all
    /// windows restart: arrivals at the other GPU were not counted there.
    fn resolve_pending(&mut self, now: &ProcessReading, gpus: &BTreeMap<GpuKey, Gpu>) -> Vec<Change> {
        let has_decreased = |gpu: &GpuKey, track: &Track| {
            matches!(gpu, GpuKey::Pending(_))
                && now.gpus.get(gpu).is_none_or(|now| difference(&track.last.counted, &now.counted).is_none())
        };
        if !self.gpus.iter().any(|(gpu, track)| has_decreased(gpu, track)) {
            return Vec::new();
        }
        let mut ended = Vec::new();
        let mut tracks: BTreeMap<GpuKey, Track> = BTreeMap::new();
        for (gpu, mut track) in std::mem::take(&mut self.gpus) {
            let key = if now.gpus.contains_key(&gpu) { Some(gpu) } else { resolved_key(gpu, now, gpus) };
            match key {
                // An existing verdict there stays.
                Some(gpu) if tracks.get(&gpu).is_none_or(|existing| existing.hysteresis.verdict().is_none()) => {
                    track.hysteresis.set_gpu(gpu);
                    tracks.insert(gpu, track);
                }
                Some(_) | None => ended.extend(track.hysteresis.end().map(Change::Ended)),
            }
        }
        for (gpu, reading) in &now.gpus {
            let track = tracks.entry(*gpu).or_insert_with(|| Track::from(reading.clone()));
            track.window.restart(reading.clone());
            track.late = None;
            track.last = reading.clone();
        }
        self.gpus = tracks;
        ended
    }

    /// Processes a reading. Returns the changes, and windows that could not be judged.
    fn read(&mut self, process: ProcessId, now: ProcessReading, timing: Timing) -> (Vec<Change>, Vec<Unjudged>) {
        let (mut changes, mut unjudged) = (Vec::new(), Vec::new());
        for (gpu, reading) in now.gpus {
            let track = self.gpus.entry(gpu).or_insert_with(|| Track::from(self.host.clone()));
            let last = std::mem::replace(&mut track.last, reading.clone());
            let at = reading.at;
            if let Some(windows) = timing.late_windows(&last, &reading) {
                // The window may be one that already awaits the records of a late reading.
                let earlier = track.late.take();
                let started_at = earlier.map_or(last.at.calendar, |earlier| earlier.started_at);
                let windows = earlier.map_or(0, |earlier| earlier.windows).saturating_add(windows);
                let ended_at = last.at.calendar_of(at);
                track.late = Some(Unjudged { process, gpu, started_at, ended_at, windows });
            }
            match track.window.read(reading, timing.window, timing.may_wait) {
                WindowState::Open => {}
                WindowState::Restarted => track.late = None,
                WindowState::Complete(counts) => {
                    changes.extend(track.hysteresis.judge(process, gpu, *counts, timing.capabilities));
                    // Shares of the whole say nothing about its parts, unless all of it shows a kind.
                    unjudged.extend(track.late.take().filter(|_| !track.hysteresis.is_shown_at(at)));
                }
                WindowState::Quiet => {
                    track.late = None;
                    changes.extend(track.hysteresis.end().map(Change::Ended));
                }
            }
        }
        self.host = now.host;
        (changes, unjudged)
    }

    fn end(&mut self) -> Vec<Change> {
        self.gpus.values_mut().filter_map(|track| track.hysteresis.end()).map(Change::Ended).collect()
    }
}

impl Timing {
    /// Whole windows between two readings, if the later one is late and there is evidence in between.
    fn late_windows(self, last: &Reading, now: &Reading) -> Option<u64> {
        let gap = now.at.since(last.at);
        let window = self.window.max(self.interval).as_nanos().max(1);
        let windows = u64::try_from(gap.as_nanos() / window).unwrap_or(u64::MAX);
        let has_evidence = difference(&last.counted, &now.counted).is_some_and(|inputs| is_enough(&inputs));
        (windows >= LATE_WINDOWS && has_evidence).then_some(windows)
    }
}

impl From<Reading> for Track {
    fn from(from: Reading) -> Self {
        Self { last: from.clone(), window: Window::new(from), hysteresis: Hysteresis::default(), late: None }
    }
}

/// Duration of a verdict up to this time.
fn duration_until(verdict: &Verdict, until: Option<SystemTime>) -> Duration {
    until.and_then(|until| until.duration_since(verdict.started_at).ok()).unwrap_or_default()
}

/// Current key of a GPU that had only an id.
fn resolved_key(gpu: GpuKey, now: &ProcessReading, gpus: &BTreeMap<GpuKey, Gpu>) -> Option<GpuKey> {
    let GpuKey::Pending(id) = gpu else { return None };
    let has_id = |key: &GpuKey| match key {
        GpuKey::Known(_) => gpus.get(key).is_some_and(|gpu| gpu.id == Some(id)),
        GpuKey::Unknown(unknown) => *unknown == id,
        GpuKey::Pending(_) => false,
    };
    now.gpus.keys().copied().find(has_id)
}
