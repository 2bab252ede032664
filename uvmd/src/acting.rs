//! Loop that acts: at each interval it passes a snapshot to the policies, executes their orders,
//! and publishes the results.
//!
//! It runs on a separate thread, which reads files and waits for the actuator's workers; neither
//! the collector nor a request waits for it. While every process is in observe mode, it only checks
//! whether that has changed. `actuation`: execution of orders. `board`: published decisions.
//! `executables`: programs of processes. `headrooms`: headroom of their cgroups. `memories`: their
//! blocks and ranges. `numbers`: reserved ids of decisions. `process_quota`: number of processes. `state`:
//! persistent state.

mod actuation;
mod board;
mod executables;
mod headrooms;
mod memories;
mod numbers;
mod process_quota;
mod state;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use actuation::WithdrawalTimeouts;
pub(crate) use actuation::{Actuation, actuators};
pub(crate) use actuation::{CommandName, StillInForce};
use actuator::{Journal, headroom};
use anyhow::{Context, anyhow};
pub(crate) use board::{Board, BoardReader};
use collector::Snapshots;
pub(crate) use executables::Executables;
use followers::Followers;
use headrooms::Headrooms;
use memories::{Memories, Wanted};
use model::{
    Call, CallResult, Decision, Directive, GpuKey, GpuUuid, LinkBytes, LinkMeter, Mode, Order, Process, ProcessId,
    Restriction, RestrictionScope, Snapshot, Verdicts, decision::Event,
};
use policy::act::Scene;
use process_quota::{PROCESSES_MAX, ProcessQuota, USER_PROCESSES_MAX};
pub(crate) use state::JOURNAL_FILE;
use sys::{Roots, clock, host_memory::HostMemory, processes};
use tokio::{runtime::Handle, sync::watch, time};
use web::Events;

use crate::{audit::Audit, notify::Turns, rules::Rules, switch::Switch};

/// Interval of checks for directives, while there are none.
const IDLE: Duration = Duration::from_millis(500);
/// Extra delay of the next interval if all orders are in progress: nothing new can be decided until
/// they complete, which ends the delay.
const PENDING_DELAY: Duration = Duration::from_millis(200);
/// Time for the thread to stop: to withdraw all advice, and to notice the request.
pub(crate) const STOP_DEADLINE: Duration = WithdrawalTimeouts::AT_STOP.in_all.saturating_add(Duration::from_secs(3));

/// Inputs of the loop.
pub(crate) struct Parts {
    pub(crate) snapshots: Snapshots,
    pub(crate) verdicts: watch::Receiver<Arc<Verdicts>>,
    pub(crate) rules: Rules,
    /// Kill switch, checked between any two calls of the driver.
    pub(crate) switch: Switch,
    /// Stream of events.
    pub(crate) events: Events,
    /// Limits of bytes migrated per second, which a reload may change.
    pub(crate) rates: watch::Receiver<Rates>,
    pub(crate) interval: Duration,
    /// Audit log of the decisions.
    pub(crate) audit: Audit,
    /// Followers of programs, for plans.
    pub(crate) followers: Followers,
    /// Programs of processes, shared with the API.
    pub(crate) executables: Executables,
}

/// Limits of bytes migrated per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rates {
    /// Limit of the node, for all processes together.
    pub(crate) node_bytes_per_second: u64,
    /// Limit of one process.
    pub(crate) process_bytes_per_second: u64,
}

impl Rates {
    pub(crate) const fn of(policy: &config::Policy) -> Self {
        Self {
            node_bytes_per_second: policy.bytes_per_second.bytes,
            process_bytes_per_second: policy.process_bytes_per_second.bytes,
        }
    }
}

/// Handle of the loop that acts.
#[derive(Debug)]
pub(crate) struct ActingHandle {
    reader: BoardReader,
    turns: Turns,
    stop: Arc<AtomicBool>,
    /// Result of the loop, once it has ended: whether all advice is withdrawn.
    ended: watch::Receiver<Option<Result<(), StillInForce>>>,
}

impl ActingHandle {
    /// Starts the loop.
    pub(crate) fn start(parts: Parts, actuation: Actuation) -> anyhow::Result<Self> {
        let (board, reader) = Board::new(actuation.journal.as_ref().map(Journal::monitor));
        let (end, ended) = watch::channel(None);
        let stop = Arc::new(AtomicBool::new(false));
        let runtime = Handle::current();
        let stopping = Arc::clone(&stop);
        let turns = Turns::of("the policy loop");
        let turning = turns.clone();
        let work = move || {
            let withdrawn = Loop::new(parts, actuation, runtime, board).work(&stopping, &turning);
            // A panic drops the sender without a result.
            end.send_replace(Some(withdrawn));
        };
        thread::Builder::new().name("acting".to_owned()).spawn(work).context("cannot start the thread that acts")?;
        Ok(Self { reader, turns, stop, ended })
    }

    /// Reader of its decisions and restrictions.
    pub(crate) fn reader(&self) -> BoardReader {
        self.reader.clone()
    }

    /// Turns of the loop, by which it shows that it works.
    pub(crate) fn turns(&self) -> Turns {
        self.turns.clone()
    }

    /// Returns when the loop has ended by itself: with the collector, or by a bug.
    pub(crate) async fn ended(&mut self) {
        // An error means that its thread has ended.
        while self.ended.changed().await.is_ok() {}
    }

    /// Withdraws all advice in force, and ends the loop.
    ///
    /// # Errors
    /// If advice may remain in force: the processes.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let in_time = time::timeout(STOP_DEADLINE, self.ended()).await.is_ok();
        let ended = self.ended.borrow().clone().filter(|_| in_time);
        let unknown =
            || anyhow!("advice may still be in effect: the next start of uvmd withdraws it, or `uvmd --withdraw`");
        Ok(ended.ok_or_else(unknown)??)
    }
}

/// Restriction of a process beyond [`PROCESSES_MAX`] or [`USER_PROCESSES_MAX`].
fn omission(process: ProcessId) -> Restriction {
    let limits = format!("uvmd acts on at most {USER_PROCESSES_MAX} processes of a user, and {PROCESSES_MAX} of all");
    everything(process, format!("it is only observed: {limits}"))
}

/// Restriction of a process of which it is unknown which overrides select it.
fn unselectable(process: ProcessId, unknown: &str) -> Restriction {
    everything(process, format!("its {unknown} could not be read: an override for it could keep uvmd from acting"))
}

/// Restriction of a process whose blocks are unknown.
fn unread_memory(process: ProcessId) -> Restriction {
    everything(
        process,
        "its blocks are not read: those of its user's processes are too many, or take too long".to_owned(),
    )
}

const fn everything(process: ProcessId, reason: String) -> Restriction {
    Restriction { process, gpu: None, scope: RestrictionScope::Everything, reason }
}

struct Loop {
    parts: Parts,
    runtime: Handle,
    actuation: Actuation,
    meter: Box<dyn LinkMeter>,
    roots: Roots,
    headrooms: Headrooms,
    memories: Memories,
    /// Processes beyond the limits of [`PROCESSES_MAX`].
    omitted: Vec<ProcessId>,
    /// Processes without a known cgroup or program, and which of them is unknown.
    unselectable: Vec<(ProcessId, &'static str)>,
    board: Board,
    was_on: bool,
    /// Begin of the interval, by the calendar and by the monotonic clock.
    began: (SystemTime, Instant),
}

impl Loop {
    fn new(parts: Parts, actuation: Actuation, runtime: Handle, board: Board) -> Self {
        let roots = Roots::default();
        let was_on = parts.switch.is_on();
        let meter = actuator::link::meter(roots.clone());
        Self {
            parts,
            runtime,
            actuation,
            meter,
            roots,
            headrooms: Headrooms::default(),
            memories: Memories::new(),
            omitted: Vec::new(),
            unselectable: Vec::new(),
            board,
            was_on,
            began: (SystemTime::now(), Instant::now()),
        }
    }

    fn work(mut self, stop: &AtomicBool, turns: &Turns) -> Result<(), StillInForce> {
        let mut last = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            turns.turn();
            self.take_outcomes(last);
            self.actuation.log_withdrawn();
            last = Instant::now();
            if self.observe().is_none() {
                break;
            }
        }
        self.withdraw_advice()
    }

    /// Outcomes until the next interval.
    fn take_outcomes(&mut self, last: Instant) {
        loop {
            let waits = if self.actuation.acting.is_only_waiting() { PENDING_DELAY } else { Duration::ZERO };
            let left = (last + self.interval() + waits).saturating_duration_since(Instant::now());
            let Some(outcome) = self.actuation.workers.next_outcome(left) else { break };
            let now = self.now();
            self.actuation.acting.record_outcome(outcome, now);
            self.publish_events();
        }
    }

    fn is_idle(&self) -> bool {
        !self.parts.rules.may_act() && !self.actuation.acting.is_busy()
    }

    fn interval(&self) -> Duration {
        if self.is_idle() { self.parts.interval.max(IDLE) } else { self.parts.interval }
    }

    /// Calendar time by the monotonic clock, for durations.
    fn now(&self) -> SystemTime {
        let (calendar, clock) = self.began;
        calendar + clock.elapsed()
    }

    /// Runs one interval. `None` once the collector has stopped.
    fn observe(&mut self) -> Option<()> {
        let acting_enabled = self.is_on();
        if self.parts.rates.has_changed().unwrap_or(false) {
            let Rates { node_bytes_per_second, process_bytes_per_second } = *self.parts.rates.borrow_and_update();
            self.actuation.acting.set_rates(node_bytes_per_second, process_bytes_per_second);
        }
        if self.is_idle() {
            self.board.clear();
            self.parts.executables.retain(&[]);
            self.parts.followers.clear();
            return Some(());
        }
        let snapshot = self.runtime.block_on(self.parts.snapshots.prompt())?;
        let now = self.now();
        // At once: bytes copied between the two readings would count as remote accesses.
        let links = self.links(&snapshot);
        let verdicts = Arc::clone(&self.parts.verdicts.borrow());
        let directives = self.directives(&snapshot);
        let wanted = self.actuation.acting.required_memory(&verdicts, &directives);
        self.read_memory(&wanted, &snapshot, &directives)?;
        let node_headroom_bytes = HostMemory::read(&self.roots).map(|memory| memory.available_bytes);
        let headroom_bytes = self.headroom(&snapshot, &directives, node_headroom_bytes);
        let memory = self.memories.all();
        let following = self.parts.followers.follow(&snapshot, &directives, memory, self.memories.deferred());
        let scene = Scene {
            now,
            snapshot: &snapshot,
            verdicts: &verdicts,
            memory,
            links: &links,
            headroom_bytes: &headroom_bytes,
            node_headroom_bytes: node_headroom_bytes.unwrap_or(0),
            following: &following,
            deferred: self.memories.deferred(),
            directives: &directives,
            acting_enabled,
        };
        for order in self.actuation.acting.observe(&scene) {
            self.actuation.workers.submit(order);
        }
        self.actuation.extend_numbers(&self.runtime);
        self.parts.followers.carry_out(self.actuation.acting.take_plan_commands());
        if self.actuation.acting.take_figures_changed() {
            self.board.mark_stale();
        }
        let limited = self.omitted.iter().map(|process| omission(*process));
        let refused = self.memories.refused().iter().filter(|process| directives.contains_key(process));
        let limited = limited.chain(refused.map(|process| unread_memory(*process)));
        let limited = limited.chain(self.unselectable.iter().map(|(process, unknown)| unselectable(*process, unknown)));
        let restrictions = || self.actuation.acting.restrictions(&scene).into_iter().chain(limited).collect();
        self.board.publish_restrictions(Instant::now(), restrictions);
        self.publish_events();
        self.board.publish_decisions(self.actuation.acting.decisions());
        self.board.publish_following(following);
        Some(())
    }

    fn submit(&mut self, orders: Vec<Order>) {
        for order in orders {
            self.actuation.workers.submit(order);
        }
    }

    /// Reads the memory of these processes. `None` if the collector has ended.
    fn read_memory(
        &mut self,
        wanted: &[ProcessId],
        snapshot: &Snapshot,
        directives: &BTreeMap<ProcessId, Directive>,
    ) -> Option<()> {
        let present = snapshot.processes.iter().filter(|process| wanted.binary_search(&process.id).is_ok());
        let each = |process: &Process| Wanted {
            process: process.id,
            uid: process.uid,
            gpus: process.gpus.len(),
            is_directed: directives.contains_key(&process.id),
        };
        let wanted: Vec<Wanted> = present.map(each).collect();
        let read = |process| self.runtime.block_on(self.parts.snapshots.memory(process));
        self.memories.update(&wanted, clock::monotonic(), read)
    }

    /// Directives of the living processes that have one, up to the limits. The others are observed.
    fn directives(&mut self, snapshot: &Snapshot) -> BTreeMap<ProcessId, Directive> {
        let living: Vec<&Process> = snapshot.processes.iter().filter(|process| process.exited_at.is_none()).collect();
        let mut ids: Vec<ProcessId> = living.iter().map(|process| process.id).collect();
        ids.sort_unstable();
        self.parts.executables.retain(&ids);
        let mut directives = BTreeMap::new();
        let mut quota = ProcessQuota::default();
        self.omitted.clear();
        self.unselectable.clear();
        for process in living {
            let read = || processes::executable(&self.roots, process.id.pid);
            // An override for its cgroup, pod or job, or for its program, could keep uvmd from acting on it.
            if process.cgroup.is_none() {
                self.unselectable.push((process.id, "cgroup"));
                continue;
            }
            let Ok(executable) = self.parts.executables.get(process.id, clock::monotonic(), read) else {
                self.unselectable.push((process.id, "program"));
                continue;
            };
            let directive = self.parts.rules.directive(process, executable.as_deref());
            if directive.mode == Mode::Observe {
                continue;
            }
            if quota.admit(process.uid) {
                directives.insert(process.id, directive);
            } else {
                self.omitted.push(process.id);
            }
        }
        directives
    }

    fn links(&mut self, snapshot: &Snapshot) -> BTreeMap<GpuUuid, LinkBytes> {
        let gpus = snapshot.gpus.keys().filter_map(|gpu| match gpu {
            GpuKey::Known(uuid) => Some(*uuid),
            GpuKey::Pending(_) | GpuKey::Unknown(_) => None,
        });
        gpus.filter_map(|gpu| Some((gpu, self.meter.read(gpu)?))).collect()
    }

    /// Headroom of the processes that have a directive, as far as it is known.
    fn headroom(
        &mut self,
        snapshot: &Snapshot,
        directives: &BTreeMap<ProcessId, Directive>,
        of_node: Option<u64>,
    ) -> BTreeMap<ProcessId, u64> {
        let Some(of_node) = of_node else { return BTreeMap::new() };
        let wanted = snapshot.processes.iter().filter(|process| directives.contains_key(&process.id));
        let read = |pid| headroom::of_cgroups(&self.roots, pid);
        let mut known = self.headrooms.of(wanted, clock::monotonic, read);
        for bytes in known.values_mut() {
            *bytes = of_node.min(*bytes);
        }
        known
    }

    /// State of the kill switch; publishes an event when it changes.
    fn is_on(&mut self) -> bool {
        let on = self.parts.switch.is_on();
        if on != self.was_on {
            self.was_on = on;
            self.publish(&Event::Switched { active: on, actor: self.parts.switch.by() });
        }
        on
    }

    /// Publishes events.
    fn publish_events(&mut self) {
        let events = self.actuation.acting.take_events();
        for event in &events {
            self.publish(event);
        }
        if events.iter().any(|event| !matches!(event, Event::Withheld(_))) {
            self.board.mark_stale();
        }
    }

    fn publish(&mut self, event: &Event) {
        log(event);
        let is_counted_alone = matches!(event, Event::Withheld(_));
        let event = api::decision::Event::new(event, SystemTime::now());
        if is_counted_alone {
            self.parts.events.count(&event);
            return;
        }
        self.parts.audit.write_event(&event);
        self.parts.events.tell(event);
    }

    /// Withdraws all advice, as the service stops.
    fn withdraw_advice(mut self) -> Result<(), StillInForce> {
        let orders = self.actuation.acting.withdraw_all("uvmd stops");
        self.parts.followers.carry_out(self.actuation.acting.take_plan_commands());
        self.submit(orders);
        let (calendar, clock) = self.began;
        let withdrawn = self.actuation.withdraw_all(WithdrawalTimeouts::AT_STOP, || calendar + clock.elapsed());
        self.actuation.flush_journal();
        self.actuation.give_back_numbers();
        self.publish_events();
        self.board.publish_decisions(self.actuation.acting.decisions());
        withdrawn
    }
}

/// Logs events for operators. Executed calls are in the audit log alone: they may be many.
fn log(event: &Event) {
    match event {
        Event::Created(decision) | Event::Updated(decision) => {
            let Decision { id, process, process_name, policy, stage, reason, .. } = decision;
            let why = stage.reason().unwrap_or(reason);
            tracing::info!(
                "decision {id}: {policy} for {} ({}): {}: {why}",
                process.pid,
                process_name.escape_default(),
                stage.name()
            );
        }
        // Failed withdrawals are repeated, with growing pauses.
        Event::Applied(outcome) if outcome.is_rollback => {
            let failed =
                |call: &&Call| !matches!(call.result, CallResult::Done | CallResult::NotMapped | CallResult::Exited);
            if let Some(call) = outcome.calls.iter().find(failed) {
                let pid = outcome.process.pid;
                tracing::warn!(
                    "advice of decision {} for {pid} is still in effect: {:?}",
                    outcome.decision,
                    call.result
                );
            }
        }
        Event::Applied(_) | Event::Withheld(_) => {}
        Event::Switched { active, actor } => {
            tracing::info!("acting is switched {} by {actor}", if *active { "on" } else { "off" });
        }
    }
}
