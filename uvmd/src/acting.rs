//! The loop that acts: at each interval it shows the policies what is known, has their orders carried out, and tells what came of it.
//!
//! It works on a thread of its own, which reads files and waits for the actuator's workers; neither the collector nor a request waits for it. While nobody
//! wants anything, it only looks whether that has changed. `board`: where others read what it does. `state`: what outlives it.

mod board;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use actuator::{Journal, Journalled, Workers, headroom};
use anyhow::Context;
pub(crate) use board::{Board, Told};
use collector::Snapshots;
use model::{
    Actuator, Answer, Call, Decision, GpuKey, GpuUuid, LinkBytes, LinkMeter, Memory, Mode, Order, Process, ProcessId,
    Snapshot, Verdicts, Wish, api, decision::Event,
};
use policy::act::{Acting, Limits, Scene};
use sys::Roots;
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
};
use web::Events;

use crate::{
    audit::{Audit, Rotation},
    rules::Rules,
    switch::Switch,
};

/// How often to look whether anything is wanted.
const IDLE: Duration = Duration::from_millis(500);
/// While orders are out, nothing new can be told of what they are about: where that is all there is, the next look is as soon as they are done, or so much later
/// than it would be otherwise.
const LOOK_WAITS: Duration = Duration::from_millis(200);
/// How long what is in force may take to be put back when the service stops.
const PUTTING_BACK: Duration = Duration::from_secs(2);

/// What it works with.
pub(crate) struct Parts {
    pub(crate) snapshots: Snapshots,
    pub(crate) verdicts: watch::Receiver<Arc<Verdicts>>,
    pub(crate) rules: Rules,
    /// Asked between any two calls of the driver.
    pub(crate) switch: Switch,
    /// Where what happens is told.
    pub(crate) events: Events,
    pub(crate) limits: Limits,
    pub(crate) interval: Duration,
    pub(crate) actuator: actuator::Settings,
    /// Whether anything may be done at all, and not only shadowed.
    pub(crate) enabled: bool,
    /// For the advice that is in force, and the audit log unless that is elsewhere.
    pub(crate) state_dir: PathBuf,
    pub(crate) audit_log: PathBuf,
    pub(crate) rotation: Rotation,
}

/// The loop, for as long as it works.
#[derive(Debug)]
pub(crate) struct Deeds {
    told: Told,
    stop: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl Deeds {
    /// Begins. What a former run left in force is taken back first.
    pub(crate) fn start(parts: Parts) -> anyhow::Result<Self> {
        let (board, told) = Board::new();
        let (end, ended) = oneshot::channel();
        let stop = Arc::new(AtomicBool::new(false));
        let journal = state::open_journal(&parts)?;
        let audit = parts.enabled.then(|| state::open_audit(&parts)).transpose()?;
        let runtime = Handle::current();
        let stopping = Arc::clone(&stop);
        let work = move || {
            // Dropped last, also when this panics.
            let _end: oneshot::Sender<()> = end;
            Loop::new(parts, journal, audit, runtime, board).work(&stopping);
        };
        thread::Builder::new().name("acting".to_owned()).spawn(work).context("cannot start the thread that acts")?;
        Ok(Self { told, stop, ended })
    }

    /// Where to read what it decided, and what keeps it from more.
    pub(crate) fn told(&self) -> Told {
        self.told.clone()
    }

    /// Returns when it has ended by itself: with the collector, or by a mistake.
    pub(crate) async fn ended(&mut self) {
        // Always an error: nothing is ever sent.
        let _ = (&mut self.ended).await;
    }

    /// Takes back what is in force, and ends.
    pub(crate) async fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.ended().await;
    }
}

struct Loop {
    parts: Parts,
    runtime: Handle,
    acting: Acting,
    workers: Workers,
    meter: Box<dyn LinkMeter>,
    roots: Roots,
    executables: BTreeMap<ProcessId, Option<PathBuf>>,
    board: Board,
    /// Whether advice of a former run is being withdrawn.
    has_leftovers: bool,
    was_on: bool,
    /// When it began, by the calendar and by the clock that nobody sets.
    began: (SystemTime, Instant),
    audit: Option<Audit>,
    /// Whether it was said that there is no audit log.
    is_unaudited: bool,
}

impl Loop {
    fn new(parts: Parts, journal: Option<Journal>, audit: Option<Audit>, runtime: Handle, board: Board) -> Self {
        let roots = Roots::default();
        let mut acting = Acting::new(parts.limits.clone());
        let leftovers = journal.as_ref().map(Journal::leftovers).unwrap_or_default();
        say_leftovers(&leftovers);
        let left = acting.adopt(leftovers.into_iter().zip(0..).map(state::in_force).collect(), state::first_decision());
        let (settings, proc, journal) =
            (parts.actuator, roots.clone(), journal.map(|journal| Arc::new(Mutex::new(journal))));
        let make = move |_| -> Box<dyn Actuator> {
            match &journal {
                Some(journal) => {
                    Box::new(Journalled::new(actuator::Ioctl::new(settings, proc.clone()), Arc::clone(journal)))
                }
                // Nothing may be done.
                None => Box::new(actuator::Shadow),
            }
        };
        let switch = parts.switch.clone();
        let mut workers = Workers::start(make, move || !switch.is_on());
        let has_leftovers = !left.is_empty();
        for order in left {
            workers.submit(order);
        }
        let was_on = parts.switch.is_on();
        let meter = actuator::link::meter(roots.clone());
        Self {
            parts,
            runtime,
            acting,
            workers,
            meter,
            roots,
            executables: BTreeMap::new(),
            board,
            has_leftovers,
            was_on,
            began: (SystemTime::now(), Instant::now()),
            audit,
            is_unaudited: false,
        }
    }

    fn work(mut self, stop: &AtomicBool) {
        let mut looked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.take_outcomes(looked);
            self.say_withdrawn();
            looked = Instant::now();
            if self.observe().is_none() {
                break;
            }
        }
        self.put_back();
    }

    /// What was carried out, until it is time for the next look.
    fn take_outcomes(&mut self, looked: Instant) {
        loop {
            let waits = if self.acting.only_waits() { LOOK_WAITS } else { Duration::ZERO };
            let left = (looked + self.interval() + waits).saturating_duration_since(Instant::now());
            let Some(outcome) = self.workers.next_outcome(left) else { break };
            let now = self.now();
            self.acting.carried_out(outcome, now);
            self.tell();
        }
    }

    fn is_idle(&self) -> bool {
        !self.parts.rules.may_want() && !self.acting.is_busy()
    }

    fn interval(&self) -> Duration {
        if self.is_idle() { self.parts.interval.max(IDLE) } else { self.parts.interval }
    }

    /// What lasts is told by this: nobody sets it.
    fn now(&self) -> SystemTime {
        let (calendar, clock) = self.began;
        calendar + clock.elapsed()
    }

    /// Looks at everything once. `None` once the collector has stopped.
    fn observe(&mut self) -> Option<()> {
        let on = self.is_on();
        if self.is_idle() {
            self.board.rest();
            return Some(());
        }
        let snapshot = self.runtime.block_on(self.parts.snapshots.prompt())?;
        let now = self.now();
        // At once: what is copied between the two readings would pass for accesses across the link.
        let links = self.links(&snapshot);
        let verdicts = Arc::clone(&self.parts.verdicts.borrow());
        let wishes = self.wishes(&snapshot);
        let mut memory: BTreeMap<ProcessId, Memory> = BTreeMap::new();
        for process in self.acting.wants_memory(&verdicts, &wishes) {
            if let Some(of_process) = self.runtime.block_on(self.parts.snapshots.memory(process))? {
                memory.insert(process, of_process);
            }
        }
        let headroom_bytes = self.headroom(&snapshot, &wishes);
        let scene = Scene {
            now,
            snapshot: &snapshot,
            verdicts: &verdicts,
            memory: &memory,
            links: &links,
            headroom_bytes: &headroom_bytes,
            node_headroom_bytes: headroom::of_node(&self.roots).unwrap_or(0),
            wishes: &wishes,
            on,
        };
        let orders = self.acting.observe(&scene);
        self.submit(orders);
        self.board.hindered(|| self.acting.hindrances(&scene));
        self.tell();
        self.board.decided(self.acting.decisions());
        Some(())
    }

    fn submit(&mut self, orders: Vec<Order>) {
        for order in orders {
            self.workers.submit(order);
        }
    }

    /// What is wanted for each living process of which anything is.
    fn wishes(&mut self, snapshot: &Snapshot) -> BTreeMap<ProcessId, Wish> {
        let now = SystemTime::now();
        let living: Vec<&Process> = snapshot.processes.iter().filter(|process| process.ended.is_none()).collect();
        self.executables.retain(|process, _| living.iter().any(|living| living.id == *process));
        let mut wishes = BTreeMap::new();
        for process in living {
            let executable = self.executables.entry(process.id).or_insert_with(|| {
                std::fs::read_link(self.roots.proc.join(process.id.pid.to_string()).join("exe")).ok()
            });
            let wish = self.parts.rules.wish(process, executable.as_deref(), now);
            if wish.mode != Mode::Observe {
                wishes.insert(process.id, wish);
            }
        }
        wishes
    }

    fn links(&mut self, snapshot: &Snapshot) -> BTreeMap<GpuUuid, LinkBytes> {
        let gpus = snapshot.gpus.keys().filter_map(|gpu| match gpu {
            GpuKey::Known(uuid) => Some(*uuid),
            GpuKey::Pending(_) | GpuKey::Unknown(_) => None,
        });
        gpus.filter_map(|gpu| Some((gpu, self.meter.read(gpu)?))).collect()
    }

    fn headroom(&self, snapshot: &Snapshot, wishes: &BTreeMap<ProcessId, Wish>) -> BTreeMap<ProcessId, u64> {
        let wanted = snapshot.processes.iter().filter(|process| wishes.contains_key(&process.id));
        wanted.filter_map(|process| Some((process.id, headroom::bytes(&self.roots, process.id)?))).collect()
    }

    /// The kill switch, of which is told when it changes.
    fn is_on(&mut self) -> bool {
        let on = self.parts.switch.is_on();
        if on != self.was_on {
            self.was_on = on;
            self.say(&Event::Switched { on, by: self.parts.switch.by() });
        }
        on
    }

    /// Whoever wants to know is told what happened.
    fn tell(&mut self) {
        let happened = self.acting.take_events();
        if happened.is_empty() {
            return;
        }
        for event in &happened {
            self.say(event);
        }
        self.board.goes_stale();
    }

    fn say(&mut self, event: &Event) {
        log(event);
        let event = api::decision::Event::new(event, SystemTime::now());
        if let Some(audit) = self.audit() {
            audit.write(&event);
        }
        self.parts.events.tell(event);
    }

    /// The audit log, which is begun when there is first something to say.
    fn audit(&mut self) -> Option<&Audit> {
        if self.audit.is_none() && !self.is_unaudited {
            self.audit = state::open_audit(&self.parts)
                .inspect_err(|error| tracing::warn!("what is decided is not written down: {error:#}"))
                .ok();
            self.is_unaudited = self.audit.is_none();
        }
        self.audit.as_ref()
    }

    /// The service stops: nothing that it advised stays.
    fn put_back(&mut self) {
        let orders = self.acting.undo_all("uvmd stops");
        self.submit(orders);
        let deadline = Instant::now() + PUTTING_BACK;
        while self.acting.is_taking_back() {
            let Some(outcome) = self.workers.next_outcome(deadline.saturating_duration_since(Instant::now())) else {
                tracing::warn!("what is in force could not be taken back in time; the next run does it");
                break;
            };
            let now = self.now();
            self.acting.carried_out(outcome, now);
        }
        self.tell();
        self.board.decided(self.acting.decisions());
    }

    /// That nothing of a former run is in force any more.
    fn say_withdrawn(&mut self) {
        if self.has_leftovers && !self.acting.is_taking_back() {
            self.has_leftovers = false;
            tracing::info!("what a former run left in force is withdrawn");
        }
    }
}

/// What a former run did not take back itself.
fn say_leftovers(leftovers: &[actuator::Leftover]) {
    let processes: BTreeSet<ProcessId> = leftovers.iter().map(|left| left.process).collect();
    if !leftovers.is_empty() {
        tracing::warn!("a former run left advice in force for {} processes: it is withdrawn now", processes.len());
    }
}

/// What an operator should see without asking. What was carried out is in the audit log alone: it may be much.
fn log(event: &Event) {
    match event {
        Event::Made(decision) | Event::Changed(decision) => {
            let Decision { id, process, process_name, policy, stage, reason, .. } = decision;
            let why = stage.why().unwrap_or(reason);
            tracing::info!(
                "decision {id}: {policy} for {} ({}): {}: {why}",
                process.pid,
                process_name.escape_default(),
                stage.name()
            );
        }
        // What could not be put back is tried again, after longer and longer rests.
        Event::Acted(outcome) if outcome.is_undoing => {
            let failed = |call: &&Call| !matches!(call.answer, Answer::Done | Answer::NotMapped | Answer::Ended);
            if let Some(call) = outcome.calls.iter().find(failed) {
                let pid = outcome.process.pid;
                tracing::warn!(
                    "what decision {} advised for {pid} is still in force: {:?}",
                    outcome.decision,
                    call.answer
                );
            }
        }
        Event::Acted(_) => {}
        Event::Switched { on, by } => tracing::info!("acting is switched {} by {by}", if *on { "on" } else { "off" }),
    }
}
