//! Node with one GPU, its programs, and the loop that acts on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use model::{
    ActuatorKind, AdviceCalls, Budget, Call, CallResult, Decision, Directive, Following, Gpu, GpuKey, GpuUuid,
    LinkBytes, Memory, Mode, Order, Outcome, ProbeStatus, ProcessId, Restriction, Snapshot, SourceState, SourceStatus,
    Step, Verdicts, decision::Event,
};
use policy::{
    Judge,
    act::{Engine, Limits, Scene},
};

use crate::program::{Program, Simulated};

pub(crate) const GPU: GpuUuid = GpuUuid([1; 16]);
pub(crate) const KEY: GpuKey = GpuKey::Known(GPU);
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Node with its loop.
#[derive(Debug)]
pub(crate) struct World {
    /// Calendar time, which may be set.
    pub(crate) now: SystemTime,
    /// Monotonic time since the start.
    pub(crate) elapsed: Duration,
    pub(crate) since: SystemTime,
    pub(crate) processes: Vec<Simulated>,
    pub(crate) directives: BTreeMap<ProcessId, Directive>,
    pub(crate) headroom_bytes: u64,
    pub(crate) acting_enabled: bool,
    pub(crate) has_link: bool,
    pub(crate) driver: String,
    pub(crate) gpu_name: Option<String>,
    /// Actuator of all orders.
    pub(crate) actuator: ActuatorKind,
    /// Result of all calls, which are then not executed.
    pub(crate) forced_result: Option<CallResult>,
    /// Programs that snapshots omit.
    pub(crate) hidden: BTreeSet<ProcessId>,
    /// Programs that are not evaluated now.
    pub(crate) deferred: BTreeSet<ProcessId>,
    pub(crate) is_counting: bool,
    pub(crate) probes: Vec<ProbeStatus>,
    /// Quantities that the source does not count.
    pub(crate) not_counted: &'static [model::Quantity],
    remote: LinkBytes,
    pub(crate) judge: Judge,
    pub(crate) verdicts: Verdicts,
    pub(crate) acting: Engine,
    pub(crate) orders: Vec<(SystemTime, Order)>,
    pub(crate) events: Vec<Event>,
    /// Processes whose calls are followed.
    pub(crate) following: BTreeMap<ProcessId, Following>,
}

pub(crate) fn directive(mode: Mode, policy: &str) -> Directive {
    Directive {
        override_id: Some("test".to_owned()),
        mode,
        policy: policy.to_owned(),
        parameters: BTreeMap::new(),
        budget: Budget::default(),
        range: None,
        allocation_larger_than_bytes: None,
    }
}

pub(crate) fn limits() -> Limits {
    Limits { host_reserve_bytes: 0, ..Limits::default() }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(limits())
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        Self {
            now,
            elapsed: Duration::ZERO,
            since: now - Duration::from_mins(1),
            processes: Vec::new(),
            directives: BTreeMap::new(),
            headroom_bytes: 64 << 30,
            acting_enabled: true,
            has_link: true,
            driver: "550.163.01".to_owned(),
            gpu_name: Some("NVIDIA H100 PCIe".to_owned()),
            actuator: ActuatorKind::Ioctl,
            forced_result: None,
            hidden: BTreeSet::new(),
            deferred: BTreeSet::new(),
            is_counting: true,
            probes: Vec::new(),
            not_counted: &[],
            remote: LinkBytes::default(),
            judge: Judge::default(),
            verdicts: Verdicts::default(),
            acting: Engine::new(limits),
            orders: Vec::new(),
            events: Vec::new(),
            following: BTreeMap::new(),
        }
    }

    /// Adds a program with a number of blocks and a directive.
    pub(crate) fn add(&mut self, program: Program, blocks: u64, directive: Option<Directive>) -> ProcessId {
        let pid = 100 + u32::try_from(self.processes.len()).unwrap();
        let id = ProcessId { pid, start_ticks: 7 };
        self.processes.push(Simulated::new(id, program, blocks, self.now));
        self.directives.extend(directive.map(|directive| (id, directive)));
        id
    }

    pub(crate) fn process(&mut self, id: ProcessId) -> &mut Simulated {
        self.processes.iter_mut().find(|process| process.id == id).unwrap()
    }

    /// Runs for a time, with orders executed at once.
    pub(crate) fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            let orders = self.interval();
            self.execute(orders);
        }
    }

    /// Runs until the condition holds; fails after a minute.
    pub(crate) fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            self.run(0.1);
        }
        panic!("{what} did not come: {:#?}", self.acting.decisions().next());
    }

    /// Runs an interval of the programs and the loop.
    pub(crate) fn interval(&mut self) -> Vec<Order> {
        for process in &mut self.processes {
            process.advance(&mut self.remote);
        }
        self.now += INTERVAL;
        self.elapsed += INTERVAL;
        let snapshot = self.snapshot();
        self.judge.observe(&snapshot);
        self.verdicts = self.judge.verdicts();
        self.observe(&snapshot)
    }

    /// Monotonic time of scenes.
    pub(crate) fn now(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.elapsed
    }

    pub(crate) fn observe(&mut self, snapshot: &Snapshot) -> Vec<Order> {
        let orders = self.with_scene(snapshot, Engine::observe);
        self.events.extend(self.acting.take_events());
        self.orders.extend(orders.iter().map(|order| (self.now, order.clone())));
        orders
    }

    /// Current restrictions.
    pub(crate) fn restrictions(&mut self) -> Vec<Restriction> {
        let snapshot = self.snapshot();
        self.with_scene(&snapshot, Engine::restrictions)
    }

    fn with_scene<T>(&mut self, snapshot: &Snapshot, call: impl FnOnce(&mut Engine, &Scene<'_>) -> T) -> T {
        let wanted = self.acting.required_memory(&self.verdicts, &self.directives);
        let memory: BTreeMap<ProcessId, Memory> = self
            .processes
            .iter()
            .filter(|process| wanted.contains(&process.id))
            .map(|process| (process.id, process.memory()))
            .collect();
        let links = self.links(snapshot);
        let scene = Scene {
            now: self.now(),
            snapshot,
            verdicts: &self.verdicts,
            memory: &memory,
            links: &links,
            headroom_bytes: &self.processes.iter().map(|process| (process.id, self.headroom_bytes)).collect(),
            node_headroom_bytes: self.headroom_bytes,
            following: &self.following,
            deferred: &self.deferred,
            directives: &self.directives,
            acting_enabled: self.acting_enabled,
        };
        call(&mut self.acting, &scene)
    }

    pub(crate) fn execute(&mut self, orders: Vec<Order>) {
        for order in orders {
            let before = self.advice_calls(order.process);
            let calls =
                order.steps.iter().map(|step| Call { step: *step, result: self.call(&order, step), duration_ns: 1000 });
            let calls = calls.collect();
            let made = self.advice_calls(order.process) - before;
            let advice_calls = match self.actuator {
                ActuatorKind::Ioctl => AdviceCalls { by_ioctl: made, by_helper: 0 },
                ActuatorKind::Helper => AdviceCalls { by_ioctl: 0, by_helper: made },
            };
            let (now, actuator) = (self.now(), Some(self.actuator));
            self.acting.record_outcome(Outcome { actuator, advice_calls, ..Outcome::new(&order, calls) }, now);
            self.events.extend(self.acting.take_events());
        }
    }

    /// Advice calls about a program so far, by any program.
    pub(crate) fn advice_calls(&self, id: ProcessId) -> u64 {
        self.processes.iter().find(|process| process.id == id).map_or(0, Simulated::advice_calls)
    }

    pub(crate) fn call(&mut self, order: &Order, step: &Step) -> CallResult {
        if let Some(result) = &self.forced_result {
            return result.clone();
        }
        let Some(process) = self.processes.iter_mut().find(|process| process.id == order.process) else {
            return CallResult::Exited;
        };
        if process.ended.is_some() {
            return CallResult::Exited;
        }
        process.execute(step, self.actuator)
    }

    fn links(&self, snapshot: &Snapshot) -> BTreeMap<GpuUuid, LinkBytes> {
        let copied = snapshot.gpu_totals.get(&KEY).cloned().unwrap_or_default();
        let all = LinkBytes {
            htod: copied.bytes_htod.total() + self.remote.htod,
            dtoh: copied.bytes_dtoh.total() + self.remote.dtoh,
        };
        if self.has_link { [(GPU, all)].into() } else { BTreeMap::new() }
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = if self.is_counting {
            SourceState::Counting { since: self.since }
        } else {
            SourceState::Waiting { missing: Vec::new() }
        };
        let source = SourceStatus {
            not_counted: self.not_counted.to_vec(),
            driver: Some(model::DriverInfo { version: self.driver.clone(), ..model::DriverInfo::default() }),
            probes: self.probes.clone(),
            ..SourceStatus::new(state)
        };
        let mut snapshot = Snapshot { elapsed: self.elapsed, ..Snapshot::empty(self.now, source) };
        let gpu = Gpu { name: self.gpu_name.clone(), memory_bytes: Some(1 << 30), ..Gpu::default() };
        snapshot.gpus.insert(KEY, gpu);
        snapshot.gpu_totals.insert(KEY, self.processes.iter().map(|process| &process.counters).sum());
        let listed = self.processes.iter().filter(|process| !self.hidden.contains(&process.id));
        snapshot.processes = listed.map(Simulated::process).collect();
        snapshot
    }

    /// Latest decision.
    pub(crate) fn decision(&self) -> &Decision {
        self.acting.decisions().next().expect("a decision")
    }

    /// Blocks under advice, of all live programs.
    pub(crate) fn advised_blocks(&self) -> usize {
        self.processes.iter().filter(|process| process.ended.is_none()).map(Simulated::advised_blocks).sum()
    }
}
