//! Engine of the loop: orders per process at each interval, and their outcomes.

mod plans;
mod restrictions;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::SystemTime,
};

use model::{
    Decision, DecisionId, Directive, GpuKey, GpuUuid, Mode, Order, Outcome, PlanCommand, Process, ProcessId,
    Restriction, SourceState, Stage, Verdicts, decision::Event, policy::of_plans,
};

use super::{
    guard::Guard,
    limits::Limits,
    live::{
        arrivals::Marks,
        ledger::Ledger,
        open::add_calls,
        rollback::{InForce, Rollback, Withdrawn},
        track::{ClosedDecision, Track, TrackUpdate},
    },
    plans::track::PlanTrack,
    scene::{Scene, Target},
};

/// Engine for all processes. Without side effects: the caller executes the orders and reports their
/// outcomes.
#[derive(Debug)]
pub struct Engine {
    limits: Limits,
    guard: Guard,
    marks: Marks,
    tracks: BTreeMap<(ProcessId, GpuUuid), Track>,
    plans: BTreeMap<ProcessId, PlanTrack>,
    rollbacks: Rollback,
    /// Retained ended decisions, newest first.
    ended: VecDeque<Decision>,
    events: Vec<Event>,
    /// Commands to helpers that the caller has not taken yet.
    commands: Vec<PlanCommand>,
    /// Whether figures of decisions have changed since the last call, apart from those in events.
    have_figures_changed: bool,
    next: DecisionId,
    /// Restrictions when they were last computed.
    last_restrictions: BTreeMap<(ProcessId, GpuUuid), Vec<Restriction>>,
    /// Calendar time of the last interval.
    observed_at: SystemTime,
}

impl Engine {
    /// Engine without advice in force.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            guard: Guard::default(),
            marks: Marks::default(),
            tracks: BTreeMap::new(),
            plans: BTreeMap::new(),
            rollbacks: Rollback::default(),
            ended: VecDeque::new(),
            events: Vec::new(),
            commands: Vec::new(),
            have_figures_changed: false,
            next: DecisionId(1),
            last_restrictions: BTreeMap::new(),
            observed_at: SystemTime::UNIX_EPOCH,
        }
    }

    /// Sets the limits of bytes migrated per second, for the node and for one process.
    pub const fn set_rates(&mut self, node_bytes_per_second: u64, process_bytes_per_second: u64) {
        self.limits.node_bytes_per_second = node_bytes_per_second;
        self.limits.process_bytes_per_second = process_bytes_per_second;
    }

    /// Withdraws the advice that a former run may have left in force. Ids of new decisions are
    /// higher than the ids of that advice and than `last`.
    pub fn adopt(&mut self, in_force: Vec<InForce>, last: DecisionId) -> Vec<Order> {
        self.next = self.next.max(DecisionId(last.0.saturating_add(1)));
        let mut orders = Vec::new();
        for InForce { decision, process, gpu, steps } in in_force {
            self.next = self.next.max(DecisionId(decision.0.saturating_add(1)));
            let mut ledger = Ledger::default();
            for step in &steps {
                ledger.record_in_force(step);
            }
            orders.extend(self.rollbacks.begin(decision, process, gpu, ledger));
        }
        orders
    }

    /// Id of the last decision of this or an earlier run.
    #[must_use]
    pub const fn last_decision(&self) -> DecisionId {
        DecisionId(self.next.0.saturating_sub(1))
    }

    /// Processes whose memory the next scene must contain.
    #[must_use]
    pub fn required_memory(&self, verdicts: &Verdicts, directives: &BTreeMap<ProcessId, Directive>) -> Vec<ProcessId> {
        let wanted =
            |process: &ProcessId| directives.get(process).is_some_and(|directive| directive.mode != Mode::Observe);
        if !directives.keys().any(wanted) {
            return Vec::new();
        }
        let judged = verdicts.active.iter().map(|verdict| verdict.process);
        let victims = verdicts.victims.iter().flat_map(|victim| [victim.victim, victim.evictor]);
        let busy = self.tracks.iter().filter(|(_, track)| track.is_busy()).map(|((process, _), _)| *process);
        let planned = directives.iter().filter(|(_, directive)| of_plans(&directive.policy).is_some());
        let planned = planned.map(|(process, _)| *process);
        let wanted: BTreeSet<ProcessId> = judged.chain(victims).chain(busy).chain(planned).collect();
        wanted.into_iter().collect()
    }

    /// Processes a scene and returns the orders, to be executed in this sequence per GPU.
    pub fn observe(&mut self, scene: &Scene<'_>) -> Vec<Order> {
        self.observed_at = scene.snapshot.taken;
        let mut orders = self.rollbacks.due_orders();
        let targets = targets(scene);
        orders.extend(self.drop_absent(scene, &targets));
        self.drop_absent_plans(scene, &targets);
        self.guard.begin(scene);
        self.marks.retain(scene);
        let gpu_contexts = scene.gpu_contexts(targets.iter().map(|(_, gpu, _)| *gpu));
        let mut acted_on = self.acted_on();
        for (process, gpu, directive) in targets {
            if self.is_deferred(scene, process.id, gpu, directive) {
                continue;
            }
            let Some(gpu_context) = gpu_contexts.get(&gpu) else { continue };
            let target = Target::of(scene, process, gpu, directive, gpu_context, acted_on.at(gpu));
            let is_withdrawing = self.rollbacks.is_withdrawing(process.id, gpu);
            let track = self.tracks.entry((process.id, gpu)).or_default();
            let update =
                track.update(&target, &mut self.guard, &self.limits, self.next, is_withdrawing, &mut self.marks);
            self.apply(update, &mut orders);
            self.update_plan(&target, is_withdrawing);
            acted_on.set(process.id, gpu, self.acts_on(process.id, gpu));
        }
        for order in orders.iter().filter(|order| order.is_rollback) {
            self.guard.count_withdrawal(order.process);
        }
        orders
    }

    /// Processes that uvmd acts on.
    fn acted_on(&self) -> ActedOn {
        let mut acted_on = ActedOn::default();
        for ((process, gpu), _) in self.tracks.iter().filter(|(_, track)| track.acts()) {
            acted_on.set(*process, *gpu, true);
        }
        for (process, plan) in self.plans.iter().filter(|(_, plan)| plan.acts()) {
            if let Some(decision) = plan.decision() {
                acted_on.set(*process, decision.gpu, true);
            }
        }
        acted_on
    }

    /// Whether uvmd acts on a process at a GPU.
    fn acts_on(&self, process: ProcessId, gpu: GpuUuid) -> bool {
        let is_at_gpu = |plan: &PlanTrack| plan.acts() && plan.decision().is_some_and(|decision| decision.gpu == gpu);
        self.tracks.get(&(process, gpu)).is_some_and(Track::acts) || self.plans.get(&process).is_some_and(is_at_gpu)
    }

    /// Whether the process is not evaluated at this GPU in this interval.
    fn is_deferred(&self, scene: &Scene<'_>, process: ProcessId, gpu: GpuUuid, directive: &Directive) -> bool {
        let is_permitted = scene.acting_enabled && directive.mode == Mode::Act;
        scene.deferred.contains(&process) && (is_permitted || !self.acts_on(process, gpu))
    }

    fn apply(&mut self, update: TrackUpdate, orders: &mut Vec<Order>) {
        self.record(update.events);
        for closed in update.closed {
            orders.extend(self.close(closed));
        }
        orders.extend(update.order);
    }

    /// Records the events of an interval, and advances the next id past those of new decisions.
    fn record(&mut self, events: Vec<Event>) {
        for event in &events {
            if let Event::Created(decision) = event {
                self.next = self.next.max(DecisionId(decision.id.0.saturating_add(1)));
            }
        }
        self.events.extend(events);
    }

    fn close(&mut self, ClosedDecision { decision, ledger, is_pending }: ClosedDecision) -> Option<Order> {
        let Decision { id, process, gpu, .. } = decision;
        self.guard.release_all(process, gpu);
        let order = self.rollbacks.begin(id, process, gpu, ledger);
        self.retain_ended(decision);
        // Migrations cannot be withdrawn; the rest of the order is cancelled.
        let cancel = || Order { decision: id, process, gpu, steps: Vec::new(), is_rollback: true };
        order.or_else(|| is_pending.then(cancel))
    }

    fn retain_ended(&mut self, decision: Decision) {
        self.ended.push_front(decision);
        self.ended.truncate(self.limits.decisions_max);
    }

    /// Ends the decisions on processes that have exited or whose mode is observe.
    fn drop_absent(&mut self, scene: &Scene<'_>, targets: &[(&Process, GpuUuid, &Directive)]) -> Vec<Order> {
        let present: BTreeSet<(ProcessId, GpuUuid)> =
            targets.iter().map(|(process, gpu, _)| (process.id, *gpu)).collect();
        let gone: Vec<(ProcessId, GpuUuid)> =
            self.tracks.keys().filter(|key| !present.contains(key)).copied().collect();
        let mut orders = Vec::new();
        for key in gone {
            let Some(mut track) = self.tracks.remove(&key) else { continue };
            let process = scene.snapshot.processes.iter().find(|process| process.id == key.0);
            let has_exited = process.is_some_and(|process| process.exited_at.is_some());
            let why = absence_reason(process, scene);
            if let Some((mut closed, event)) = track.close(Stage::Ended(why.to_owned()), self.observed_at) {
                if has_exited {
                    // The memory was freed, and its advice with it.
                    (closed.ledger, closed.is_pending) = (Ledger::default(), false);
                }
                self.events.push(event);
                orders.extend(self.close(closed));
            }
        }
        orders
    }

    /// Processes the outcome of an order. `now`: time of the outcome, by the clock of
    /// [`Scene::now`].
    pub fn record_outcome(&mut self, outcome: Outcome, now: SystemTime) {
        self.guard.record_outcome(&outcome);
        let withdrawn = self.rollbacks.record_outcome(&outcome);
        if let Some(track) =
            self.tracks.get_mut(&(outcome.process, outcome.gpu)).filter(|track| track.has_open(outcome.decision))
        {
            track.record_outcome(&outcome, now);
        }
        let ended = self.ended.iter_mut().find(|decision| decision.id == outcome.decision);
        if let Some(decision) = ended {
            decision.actuator = outcome.actuator.or(decision.actuator);
            if !outcome.is_rollback {
                add_calls(decision, &outcome.calls);
            }
            match &withdrawn {
                Some(Withdrawn::All { after_failure }) => {
                    decision.done.advised_bytes = 0;
                    if *after_failure {
                        decision.last_error = None;
                        self.events.push(Event::Updated(decision.clone()));
                    }
                }
                Some(Withdrawn::Failed(result)) => {
                    decision.last_error = Some(result.clone());
                    self.events.push(Event::Updated(decision.clone()));
                }
                Some(Withdrawn::Pending) | None => {}
            }
        }
        if withdrawn.is_some() {
            let has_failed = self.rollbacks.has_failed(outcome.process);
            let why = has_failed.then(|| "earlier advice could not be withdrawn".to_owned());
            self.guard.set_withdrawal_error(outcome.process, why);
        }
        self.events.push(Event::Applied(outcome));
    }

    /// Takes the events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Open and retained ended decisions, newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        let mut all: Vec<&Decision> = self.tracks.values().filter_map(Track::decision).chain(&self.ended).collect();
        all.extend(self.plans.values().filter_map(PlanTrack::decision));
        all.sort_by_key(|decision| std::cmp::Reverse(decision.id));
        all.into_iter()
    }

    /// Whether any advice or plan is in force, or the outcome of an order is pending.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        let has_plan = self.plans.values().any(|plan| plan.decision().is_some() || plan.is_published());
        has_plan || !self.rollbacks.is_empty() || self.tracks.values().any(Track::is_busy)
    }

    /// Whether all open decisions wait for the outcome of their last order, so that another
    /// interval would change nothing.
    #[must_use]
    pub fn is_only_waiting(&self) -> bool {
        let mut open = self.tracks.values().filter(|track| track.is_open()).peekable();
        let has_plan = self.plans.values().any(|plan| plan.decision().is_some());
        !has_plan && self.rollbacks.is_empty() && open.peek().is_some() && open.all(Track::has_pending_order)
    }

    /// Whether advice is being withdrawn.
    #[must_use]
    pub fn is_withdrawing(&self) -> bool {
        !self.rollbacks.is_empty()
    }

    /// Processes with advice that is being withdrawn.
    #[must_use]
    pub fn withdrawing(&self) -> BTreeSet<ProcessId> {
        self.rollbacks.processes()
    }

    /// Orders that repeat failed withdrawals at once; empty while the outcome of an earlier attempt
    /// is pending. So an order that gave way to others of its GPU is executed after them.
    pub fn retry_withdrawals(&mut self) -> Vec<Order> {
        self.rollbacks.orders_if_idle()
    }

    /// Withdraws all advice and all plans at the end of the service.
    pub fn withdraw_all(&mut self, why: &str) -> Vec<Order> {
        let processes: Vec<ProcessId> = self.plans.keys().copied().collect();
        for process in processes {
            self.close_plan(process, Stage::RolledBack(why.to_owned()));
        }
        let mut orders = self.rollbacks.all_orders();
        let closed: Vec<_> = self
            .tracks
            .values_mut()
            .filter_map(|track| track.close(Stage::RolledBack(why.to_owned()), self.observed_at))
            .collect();
        for (closed, event) in closed {
            self.events.push(event);
            orders.extend(self.close(closed));
        }
        for order in &orders {
            self.guard.count_withdrawal(order.process);
        }
        orders
    }
}

/// Processes that uvmd acts on, at each GPU.
#[derive(Debug, Default)]
struct ActedOn {
    by_gpu: BTreeMap<GpuUuid, BTreeSet<ProcessId>>,
    empty: BTreeSet<ProcessId>,
}

impl ActedOn {
    fn at(&self, gpu: GpuUuid) -> &BTreeSet<ProcessId> {
        self.by_gpu.get(&gpu).unwrap_or(&self.empty)
    }

    fn set(&mut self, process: ProcessId, gpu: GpuUuid, is_acted_on: bool) {
        let processes = self.by_gpu.entry(gpu).or_default();
        if is_acted_on {
            processes.insert(process);
        } else {
            processes.remove(&process);
        }
    }
}

/// Reason why a process is no longer in the scene.
fn absence_reason(process: Option<&Process>, scene: &Scene<'_>) -> &'static str {
    match process {
        Some(process) if process.exited_at.is_some() => "the process has ended",
        Some(_) if is_counting(scene) => "the process no longer has a directive",
        Some(_) | None => "the process is no longer watched",
    }
}

fn is_counting(scene: &Scene<'_>) -> bool {
    matches!(scene.snapshot.source.state, SourceState::Counting { .. })
}

/// Live processes in a mode other than observe, at each GPU that they use.
fn targets<'a>(scene: &Scene<'a>) -> Vec<(&'a Process, GpuUuid, &'a Directive)> {
    if !is_counting(scene) {
        return Vec::new();
    }
    let targets =
        directed(scene).flat_map(|(process, directive)| gpus(process).map(move |gpu| (process, gpu, directive)));
    targets.collect()
}

fn gpus(process: &Process) -> impl Iterator<Item = GpuUuid> {
    process.gpus.keys().copied().filter_map(GpuKey::uuid)
}

/// Live processes in a mode other than observe.
fn directed<'a>(scene: &Scene<'a>) -> impl Iterator<Item = (&'a Process, &'a Directive)> {
    let living = scene.snapshot.processes.iter().filter(|process| process.exited_at.is_none());
    living.filter_map(|process| {
        let directive = scene.directives.get(&process.id).filter(|directive| directive.mode != Mode::Observe)?;
        Some((process, directive))
    })
}
