//! Simulated GPU with the driver's eviction order: the block that arrived first is evicted first,
//! used or not. Programs run in time slices, and the control loop acts on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use model::{
    Access, Action, Advice, AdviceCalls, ApiCall, Block, Call, CallResult, Cause, Counters, Decision, Directive,
    EvictionCause, EvictionPair, Gpu, LinkBytes, Memory, Order, Outcome, Party, PatternKind, Place, ProcessId,
    Residency, Restriction, Reuse, Snapshot, SourceState, SourceStatus, Step, Verdicts, block::BLOCK_BYTES,
    decision::Event,
};
use policy::{
    Judge,
    act::{Engine, Scene},
};

use crate::{
    frames::Frames,
    program::BASE,
    walker::{FAULTS, FETCH, HIT, REPLAYS, Round, Walker},
    world::{GPU, INTERVAL, KEY, limits},
};

/// Time slice of processes.
const SLICE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) now: SystemTime,
    frames: Frames,
    /// Duration of a block's fetch.
    pub(crate) fetch_duration: Duration,
    /// Delay from an interval to the execution of its orders. Programs run meanwhile.
    pub(crate) order_delay: Duration,
    /// Switch of acting.
    pub(crate) acting_enabled: bool,
    /// Processor time of each interval, measured on this machine.
    pub(crate) interval_times: Vec<Duration>,
    /// Number of ordered steps.
    pub(crate) steps: usize,
    pub(crate) programs: Vec<Walker>,
    pairs: BTreeMap<(ProcessId, ProcessId), u64>,
    remote: LinkBytes,
    judge: Judge,
    verdicts: Verdicts,
    acting: Engine,
    directives: BTreeMap<ProcessId, Directive>,
    pub(crate) events: Vec<Event>,
}

impl Card {
    pub(crate) fn new(frames: usize) -> Self {
        Self {
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000),
            frames: Frames::new(frames),
            fetch_duration: FETCH,
            order_delay: Duration::ZERO,
            acting_enabled: true,
            interval_times: Vec::new(),
            steps: 0,
            programs: Vec::new(),
            pairs: BTreeMap::new(),
            remote: LinkBytes::default(),
            judge: Judge::default(),
            verdicts: Verdicts::default(),
            acting: Engine::new(limits()),
            directives: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    /// Program that repeats these accesses.
    pub(crate) fn add(&mut self, round: Round, pattern: PatternKind, directive: Option<Directive>) -> ProcessId {
        let id = ProcessId { pid: 100 + u32::try_from(self.programs.len()).unwrap(), start_ticks: 7 };
        let blocks = round.iter().map(|(block, _)| block + 1).max().unwrap_or(0);
        self.programs.push(Walker {
            id,
            round,
            at: 0,
            rounds: 0,
            computes: Duration::ZERO,
            rounds_max: u64::MAX,
            owed: Duration::ZERO,
            pattern,
            counters: Counters::default(),
            host: Counters::default(),
            reuse: Reuse::default(),
            blocks: (0..blocks)
                .map(|at| (at, Block { gpu: Some(KEY), ..Block::new(BASE + at * BLOCK_BYTES, self.now) }))
                .collect(),
            allocation_blocks: usize::MAX,
            partial: BTreeSet::new(),
            remote: BTreeSet::new(),
            accessed_bytes: BLOCK_BYTES,
        });
        self.directives.extend(directive.map(|directive| (id, directive)));
        id
    }

    /// Replaces the directive of a program.
    pub(crate) fn set_directive(&mut self, id: ProcessId, directive: Directive) {
        self.directives.insert(id, directive);
    }

    pub(crate) fn program(&self, id: ProcessId) -> &Walker {
        self.programs.iter().find(|program| program.id == id).unwrap()
    }

    pub(crate) fn program_mut(&mut self, id: ProcessId) -> &mut Walker {
        self.programs.iter_mut().find(|program| program.id == id).unwrap()
    }

    pub(crate) fn link_bytes(&self) -> u64 {
        let copied = |program: &Walker| program.counters.bytes_htod.total() + program.counters.bytes_dtoh.total();
        self.programs.iter().map(copied).sum::<u64>() + self.remote.htod
    }

    /// Accesses of all programs.
    pub(crate) fn accesses(&self) -> u64 {
        self.programs.iter().map(|program| program.rounds * program.round.len() as u64 + program.at as u64).sum()
    }

    pub(crate) fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.acting.decisions()
    }

    /// Policies of all decisions that were tried.
    pub(crate) fn tried_policies(&self) -> Vec<&'static str> {
        let made = self.events.iter().filter_map(|event| match event {
            Event::Created(decision) if decision.stage.name() == "trial" => Some(decision.policy),
            _ => None,
        });
        made.collect()
    }

    /// Runs until all programs have completed this many rounds.
    pub(crate) fn run(&mut self, rounds: u64) {
        for program in &mut self.programs {
            program.rounds_max = rounds;
        }
        while self.programs.iter().any(|program| program.rounds < rounds) {
            self.interval();
        }
    }

    pub(crate) fn interval(&mut self) {
        self.advance(INTERVAL);
        let snapshot = self.snapshot();
        self.judge.observe(&snapshot);
        self.verdicts = self.judge.verdicts();
        let (orders, took) = self.with_scene(&snapshot, |acting, scene| {
            let began = Instant::now();
            (acting.observe(scene), began.elapsed())
        });
        self.interval_times.push(took);
        self.advance(self.order_delay);
        for order in orders {
            self.execute(&order);
        }
        self.events.extend(self.acting.take_events());
    }

    /// Current restrictions.
    pub(crate) fn restrictions(&mut self) -> Vec<Restriction> {
        let snapshot = self.snapshot();
        self.with_scene(&snapshot, Engine::restrictions)
    }

    fn with_scene<T>(&mut self, snapshot: &Snapshot, call: impl FnOnce(&mut Engine, &Scene<'_>) -> T) -> T {
        let wanted = self.acting.required_memory(&self.verdicts, &self.directives);
        let memory: BTreeMap<ProcessId, Memory> = self
            .programs
            .iter()
            .filter(|program| wanted.contains(&program.id))
            .map(|program| (program.id, program.memory()))
            .collect();
        let copied = snapshot.gpu_totals.get(&KEY).cloned().unwrap_or_default();
        let link = LinkBytes {
            htod: copied.bytes_htod.total() + self.remote.htod,
            dtoh: copied.bytes_dtoh.total() + self.remote.dtoh,
        };
        let headroom_bytes = self.programs.iter().map(|program| (program.id, 64 << 30)).collect();
        let links = [(GPU, link)].into();
        let scene = Scene {
            now: self.now,
            snapshot,
            verdicts: &self.verdicts,
            memory: &memory,
            links: &links,
            headroom_bytes: &headroom_bytes,
            node_headroom_bytes: 64 << 30,
            following: &BTreeMap::new(),
            deferred: &BTreeSet::new(),
            directives: &self.directives,
            acting_enabled: self.acting_enabled,
        };
        call(&mut self.acting, &scene)
    }

    fn advance(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / SLICE.as_millis() {
            for at in 0..self.programs.len() {
                self.slice(at);
            }
            self.now += SLICE;
        }
    }

    fn execute(&mut self, order: &Order) {
        let mut calls = Vec::new();
        self.steps += order.steps.len();
        for step in &order.steps {
            self.call(order.process, step);
            calls.push(Call {
                step: *step,
                result: CallResult::Done,
                duration_ns: 5000 * step.bytes().div_ceil(BLOCK_BYTES),
            });
        }
        let is_advice = |step: &&Step| matches!(step.action, Action::Advise(_) | Action::Withdraw(_));
        let by_ioctl = order.steps.iter().filter(is_advice).count() as u64;
        let advice_calls = AdviceCalls { by_ioctl, by_helper: 0 };
        self.acting.record_outcome(Outcome { advice_calls, ..Outcome::new(order, calls) }, self.now);
    }

    fn slice(&mut self, at: usize) {
        let mut left = SLICE;
        loop {
            let program = &mut self.programs[at];
            let paid = left.min(program.owed);
            program.owed -= paid;
            left -= paid;
            if left.is_zero() || program.rounds >= program.rounds_max {
                return;
            }
            let (block, writes) = program.round[program.at];
            program.at = (program.at + 1) % program.round.len();
            program.rounds += u64::from(program.at == 0);
            let took = self.access(at, block, writes, self.now + SLICE.saturating_sub(left));
            self.programs[at].owed = took + self.programs[at].computes;
        }
    }

    /// Accesses all of a block.
    fn access(&mut self, at: usize, block: u64, writes: bool, now: SystemTime) -> Duration {
        let program = &mut self.programs[at];
        let access = if writes { Access::Write } else { Access::Read };
        if program.is_resident(block) {
            return program.hit(block, access, now);
        }
        if program.remote.contains(&block) {
            self.remote.htod += program.accessed_bytes;
            return HIT;
        }
        let id = program.id;
        program.counters.fault_entries[access] += FAULTS;
        program.counters.replays += REPLAYS;
        program.block(block).fault_entries += FAULTS;
        self.fetch(id, block, BLOCK_BYTES, Cause::Fault, now);
        self.fetch_duration
    }

    /// Fetches this much of a block.
    fn fetch(&mut self, id: ProcessId, block: u64, bytes: u64, cause: Cause, now: SystemTime) {
        while self.frames.is_full() {
            self.evict(id);
        }
        self.frames.take(id, block);
        let program = self.program_mut(id);
        let known = program.block(block);
        let refetched = if known.evictions > 0 { bytes } else { 0 };
        known.bytes_htod += bytes;
        known.refetched_bytes += refetched;
        known.resident = Residency::exactly(bytes);
        known.last_seen_at = now;
        program.counters.bytes_htod[cause] += bytes;
        program.reuse.fetched_bytes += bytes;
        program.reuse.refetched_bytes += refetched;
    }

    fn evict(&mut self, evictor: ProcessId) {
        let (victim, block) = self.frames.free_oldest().expect("a frame");
        let now = self.now;
        let program = self.program_mut(victim);
        program.partial.remove(&block);
        let known = program.block(block);
        let bytes = known.resident.bytes;
        known.resident = Residency::default();
        known.evictions += 1;
        known.evicted_bytes += bytes;
        known.bytes_dtoh += bytes;
        known.last_seen_at = now;
        program.counters.bytes_dtoh[Cause::Eviction] += bytes;
        program.counters.evictions += 1;
        self.program_mut(evictor).counters.induced_eviction_bytes += bytes;
        *self.pairs.entry((victim, evictor)).or_default() += bytes;
    }

    fn call(&mut self, id: ProcessId, step: &Step) {
        let call = match step.action {
            Action::Migrate(_) | Action::Touch(_) => ApiCall::Prefetch,
            Action::Advise(Advice::PreferredLocation(_)) => ApiCall::SetPreferredLocation,
            Action::Withdraw(Advice::PreferredLocation(_)) => ApiCall::UnsetPreferredLocation,
            Action::Advise(Advice::AccessedBy(_)) => ApiCall::SetAccessedBy,
            Action::Withdraw(Advice::AccessedBy(_)) => ApiCall::UnsetAccessedBy,
            Action::Advise(Advice::ReadDuplication) => ApiCall::EnableReadDuplication,
            Action::Withdraw(Advice::ReadDuplication) => ApiCall::DisableReadDuplication,
        };
        self.program_mut(id).host.tool_calls[call] += 1;
        let first = (step.begin - BASE) / BLOCK_BYTES;
        for block in first..(step.end - BASE).div_ceil(BLOCK_BYTES) {
            let is_resident = self.frames.contains(id, block);
            match step.action {
                Action::Touch(_) if is_resident => self.frames.take(id, block),
                Action::Touch(_) => self.fetch(id, block, 4096, Cause::Tool, self.now),
                Action::Migrate(Place::Gpu(_)) if !is_resident => {
                    let omitted_bytes = step.begin.saturating_sub(BASE + block * BLOCK_BYTES);
                    self.fetch(id, block, BLOCK_BYTES - omitted_bytes, Cause::Tool, self.now);
                    if omitted_bytes > 0 {
                        self.program_mut(id).partial.insert(block);
                    }
                }
                Action::Migrate(_) => {}
                Action::Advise(Advice::ReadDuplication) => panic!("what is moved here would lose writes: {step:?}"),
                Action::Advise(_) => _ = self.program_mut(id).remote.insert(block),
                Action::Withdraw(_) => _ = self.program_mut(id).remote.remove(&block),
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let source = SourceStatus {
            driver: Some(model::DriverInfo { version: "550.163.01".to_owned(), ..model::DriverInfo::default() }),
            ..SourceStatus::new(SourceState::Counting { since: self.now - Duration::from_secs(100_000) })
        };
        let elapsed = self.now.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let mut snapshot = Snapshot { elapsed, ..Snapshot::empty(self.now, source) };
        let memory_bytes = Some((self.frames.count() as u64 + 1) * BLOCK_BYTES);
        snapshot.gpus.insert(KEY, Gpu { memory_bytes, ..Gpu::default() });
        snapshot.gpu_totals.insert(KEY, self.programs.iter().map(|program| &program.counters).sum());
        snapshot.processes = self.programs.iter().map(Walker::process).collect();
        let pairs = self.pairs.iter().map(|((victim, evictor), bytes)| EvictionPair {
            gpu: KEY,
            victim: Party::Process(*victim),
            evictor: Party::Process(*evictor),
            cause: EvictionCause::Fault,
            evictions: bytes / BLOCK_BYTES,
            bytes: *bytes,
        });
        snapshot.evictions = pairs.collect();
        snapshot
    }
}
