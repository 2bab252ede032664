//! A node with one GPU and programs that obey orders as the driver would: what is moved has to be fetched again, and what is advised is accessed
//! across the link.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use model::{
    Access, Action, Advice, Answer, ApiCall, Block, Budget, Call, Cause, Counters, Decision, Gpu, GpuKey, GpuUuid,
    LinkBytes, Mode, Order, Outcome, Pattern, Place, Process, ProcessId, Range, RangeCounts, Residency, Reuse,
    Snapshot, SourceState, SourceStatus, Step, Verdicts, Wish, block::BLOCK_BYTES, decision::Event,
};
use policy::{
    Judge,
    act::{Acting, Limits, Scene},
};

pub(crate) const GPU: GpuUuid = GpuUuid([1; 16]);
pub(crate) const KEY: GpuKey = GpuKey::Known(GPU);
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// Where every program's memory begins.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
const FAULTS_PER_BLOCK: u64 = 40;
const REPLAYS_PER_BLOCK: u64 = 6;

/// What a program does in a round with each of its blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
    /// CPU and GPU write it in turn.
    InTurn,
    /// Only the GPU uses it.
    OnGpu,
    /// Nothing.
    Idle,
}

#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) id: ProcessId,
    pub(crate) program: Program,
    pub(crate) started: SystemTime,
    pub(crate) ended: Option<SystemTime>,
    pub(crate) counters: Counters,
    pub(crate) host: Counters,
    reuse: Reuse,
    blocks: Vec<Block>,
    advice: BTreeMap<u64, BTreeSet<Advice>>,
    /// How long a round takes beside faults and copies.
    pub(crate) round: Duration,
    /// What of a block the GPU accesses in a round, if it does so across the link.
    pub(crate) accessed_bytes: u64,
    progress: f64,
    pub(crate) rounds: u64,
}

/// All of it, with the loop that acts on it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: SystemTime,
    pub(crate) since: SystemTime,
    pub(crate) processes: Vec<Simulated>,
    pub(crate) wishes: BTreeMap<ProcessId, Wish>,
    pub(crate) headroom_bytes: u64,
    pub(crate) on: bool,
    pub(crate) has_link: bool,
    pub(crate) driver: String,
    pub(crate) gpu_name: Option<String>,
    /// What the driver answers instead of doing what it is asked to.
    pub(crate) answers: Option<Answer>,
    remote: LinkBytes,
    pub(crate) judge: Judge,
    pub(crate) verdicts: Verdicts,
    pub(crate) acting: Acting,
    pub(crate) orders: Vec<(SystemTime, Order)>,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn wish(mode: Mode, policy: &str) -> Wish {
    Wish {
        asked_by: Some("test".to_owned()),
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
            since: now - Duration::from_mins(1),
            processes: Vec::new(),
            wishes: BTreeMap::new(),
            headroom_bytes: 64 << 30,
            on: true,
            has_link: true,
            driver: "550.163.01".to_owned(),
            gpu_name: Some("NVIDIA H100 PCIe".to_owned()),
            answers: None,
            remote: LinkBytes::default(),
            judge: Judge::default(),
            verdicts: Verdicts::default(),
            acting: Acting::new(limits),
            orders: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A program with so many blocks; what is wanted for it.
    pub(crate) fn add(&mut self, program: Program, blocks: u64, wish: Option<Wish>) -> ProcessId {
        let pid = 100 + u32::try_from(self.processes.len()).unwrap();
        let id = ProcessId { pid, start_ticks: 7 };
        let block = |at: u64| Block { gpu: Some(KEY), ..Block::new(BASE + at * BLOCK_BYTES, self.now) };
        self.processes.push(Simulated {
            id,
            program,
            started: self.now,
            ended: None,
            counters: Counters::default(),
            host: Counters::default(),
            reuse: Reuse::default(),
            blocks: (0..blocks).map(block).collect(),
            advice: BTreeMap::new(),
            round: Duration::from_millis(5),
            accessed_bytes: 64 << 10,
            progress: 0.0,
            rounds: 0,
        });
        self.wishes.extend(wish.map(|wish| (id, wish)));
        id
    }

    pub(crate) fn process(&mut self, id: ProcessId) -> &mut Simulated {
        self.processes.iter_mut().find(|process| process.id == id).unwrap()
    }

    /// So many seconds go by, with all that is ordered done at once.
    pub(crate) fn run(&mut self, seconds: f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        while self.now < end {
            let orders = self.interval();
            self.carry_out(orders);
        }
    }

    /// Until this holds; fails if it does not within a minute.
    pub(crate) fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            self.run(0.1);
        }
        panic!("{what} did not come: {:#?}", self.acting.decisions().next());
    }

    /// Programs go on, and the loop looks at them.
    pub(crate) fn interval(&mut self) -> Vec<Order> {
        for process in &mut self.processes {
            process.go_on(&mut self.remote);
        }
        self.now += INTERVAL;
        let snapshot = self.snapshot();
        self.judge.observe(&snapshot);
        self.verdicts = self.judge.verdicts();
        self.look(&snapshot)
    }

    pub(crate) fn look(&mut self, snapshot: &Snapshot) -> Vec<Order> {
        let wanted = self.acting.wants_blocks(&self.verdicts, &self.wishes);
        let blocks: BTreeMap<ProcessId, Vec<Block>> = self
            .processes
            .iter()
            .filter(|process| wanted.contains(&process.id))
            .map(|process| (process.id, process.blocks.clone()))
            .collect();
        let scene = Scene {
            snapshot,
            verdicts: &self.verdicts,
            blocks: &blocks,
            links: &self.links(snapshot),
            headroom_bytes: &self.processes.iter().map(|process| (process.id, self.headroom_bytes)).collect(),
            wishes: &self.wishes,
            on: self.on,
        };
        let orders = self.acting.observe(&scene);
        self.events.extend(self.acting.take_events());
        self.orders.extend(orders.iter().map(|order| (self.now, order.clone())));
        orders
    }

    pub(crate) fn carry_out(&mut self, orders: Vec<Order>) {
        for order in orders {
            let calls =
                order.steps.iter().map(|step| Call { step: *step, answer: self.call(&order, step), took_ns: 1000 });
            let calls = calls.collect();
            let Order { decision, process, gpu, is_undoing, .. } = order;
            self.acting.carried_out(Outcome { decision, process, gpu, is_undoing, calls });
            self.events.extend(self.acting.take_events());
        }
    }

    fn call(&mut self, order: &Order, step: &Step) -> Answer {
        if let Some(answer) = &self.answers {
            return answer.clone();
        }
        let Some(process) = self.processes.iter_mut().find(|process| process.id == order.process) else {
            return Answer::Ended;
        };
        if process.ended.is_some() {
            return Answer::Ended;
        }
        process.obey(step)
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
        let source = SourceStatus {
            backend: "test",
            state: SourceState::Counting { since: self.since },
            warnings: Vec::new(),
            driver: Some(model::DriverInfo { version: self.driver.clone(), ..model::DriverInfo::default() }),
            probes: Vec::new(),
            dropped_events: BTreeMap::new(),
            block_records: model::RecordFigures::default(),
        };
        let mut snapshot = Snapshot::empty(self.now, source);
        let gpu = Gpu { name: self.gpu_name.clone(), memory_bytes: Some(1 << 30), ..Gpu::default() };
        snapshot.gpus.insert(KEY, gpu);
        snapshot.gpu_totals.insert(KEY, self.processes.iter().map(|process| &process.counters).sum());
        snapshot.processes = self.processes.iter().map(Simulated::seen).collect();
        snapshot
    }

    /// The decision that was made last.
    pub(crate) fn decision(&self) -> &Decision {
        self.acting.decisions().next().expect("a decision")
    }

    /// Bytes under advice, of all programs.
    pub(crate) fn advised_blocks(&self) -> usize {
        self.processes.iter().flat_map(|process| process.advice.values()).filter(|advice| !advice.is_empty()).count()
    }
}

impl Simulated {
    pub(crate) fn is_advised(&self) -> bool {
        self.advice.values().any(|advice| !advice.is_empty())
    }

    /// An interval: as many rounds as there is time for.
    fn go_on(&mut self, remote: &mut LinkBytes) {
        if self.program == Program::Idle || self.ended.is_some() {
            return;
        }
        self.progress += INTERVAL.as_secs_f64();
        while self.progress > 0.0 {
            let took = self.do_round(remote);
            self.progress -= took.as_secs_f64();
            self.rounds += 1;
        }
    }

    fn do_round(&mut self, remote: &mut LinkBytes) -> Duration {
        let mut took = self.round;
        for block in &mut self.blocks {
            let is_remote = self
                .advice
                .get(&block.address)
                .is_some_and(|advice| advice.contains(&Advice::PreferredLocation(Place::Host)));
            if self.program == Program::InTurn && block.resident.bytes > 0 {
                // The CPU takes it.
                self.host.cpu_write_faults += FAULTS_PER_BLOCK;
                self.counters.bytes_dtoh[Cause::Fault] += BLOCK_BYTES;
                self.reuse.alternations += 1;
                block.resident = Residency::default();
                block.bytes_dtoh += BLOCK_BYTES;
                block.alternations += 1;
                took += Duration::from_micros(500);
            }
            if is_remote && block.resident.bytes == 0 {
                remote.htod += self.accessed_bytes;
                took += Duration::from_micros(50);
            } else if block.resident.bytes == 0 {
                self.counters.fault_entries[Access::Write] += FAULTS_PER_BLOCK;
                self.counters.replays += REPLAYS_PER_BLOCK;
                self.counters.bytes_htod[Cause::Fault] += BLOCK_BYTES;
                let came_back = if block.bytes_dtoh > 0 { BLOCK_BYTES } else { 0 };
                self.reuse.fetched_bytes += BLOCK_BYTES;
                self.reuse.returned_bytes += came_back;
                self.reuse.alternations += 1;
                block.resident = Residency::exactly(BLOCK_BYTES);
                block.fault_entries += FAULTS_PER_BLOCK;
                block.bytes_htod += BLOCK_BYTES;
                block.returned_bytes += came_back;
                block.alternations += 1;
                took += Duration::from_millis(1);
            }
        }
        took
    }

    fn obey(&mut self, step: &Step) -> Answer {
        let call = match step.action {
            Action::Migrate(_) | Action::Renew(_) => ApiCall::Prefetch,
            Action::Advise(Advice::PreferredLocation(_)) => ApiCall::SetPreferredLocation,
            Action::Withdraw(Advice::PreferredLocation(_)) => ApiCall::UnsetPreferredLocation,
            Action::Advise(Advice::AccessedBy(_)) => ApiCall::SetAccessedBy,
            Action::Withdraw(Advice::AccessedBy(_)) => ApiCall::UnsetAccessedBy,
            Action::Advise(Advice::ReadDuplication) => ApiCall::EnableReadDuplication,
            Action::Withdraw(Advice::ReadDuplication) => ApiCall::DisableReadDuplication,
        };
        self.host.tool_calls[call] += 1;
        let inside = |block: &&mut Block| step.begin <= block.address && block.address < step.end;
        for block in self.blocks.iter_mut().filter(inside) {
            let advice = self.advice.entry(block.address).or_default();
            match step.action {
                Action::Advise(given) => {
                    advice.insert(given);
                }
                Action::Withdraw(taken) => {
                    advice.remove(&taken);
                }
                Action::Migrate(Place::Host) if block.resident.bytes > 0 => {
                    self.counters.bytes_dtoh[Cause::Tool] += BLOCK_BYTES;
                    block.bytes_dtoh += BLOCK_BYTES;
                    block.resident = Residency::default();
                }
                Action::Migrate(Place::Gpu(_)) if block.resident.bytes == 0 => {
                    self.counters.bytes_htod[Cause::Tool] += BLOCK_BYTES;
                    block.bytes_htod += BLOCK_BYTES;
                    block.resident = Residency::exactly(BLOCK_BYTES);
                }
                Action::Migrate(_) | Action::Renew(_) => {}
            }
        }
        Answer::Done
    }

    fn seen(&self) -> Process {
        let mut process = Process::new(self.id, "program");
        process.started = Some(self.started);
        process.ended = self.ended;
        process.host = self.host.clone();
        process.gpus.insert(KEY, self.counters.clone());
        process.reuse.insert(KEY, self.reuse);
        let resident = Residency::exactly(self.blocks.iter().map(|block| block.resident.bytes).sum());
        process.residency.insert(KEY, resident);
        process.ranges.busiest = vec![Range {
            begin: BASE,
            end: BASE + self.blocks.len() as u64 * BLOCK_BYTES,
            mapped: true,
            counts: RangeCounts {
                fault_entries: self.counters.fault_entries.total(),
                bytes_htod: self.counters.bytes_htod.total(),
                bytes_dtoh: self.counters.bytes_dtoh.total(),
                reuse: self.reuse,
                ..RangeCounts::default()
            },
            residency: resident,
            pattern: Pattern::UNKNOWN,
        }];
        process.ranges.known = 1;
        process
    }
}
