//! Simulated programs under orders, as with the driver: migrated memory has to be fetched again,
//! and advised memory is accessed remotely.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use model::{
    Access, Action, ActuatorKind, Advice, ApiCall, Block, CallResult, Cause, Counters, LinkBytes, Memory, Pattern,
    Place, Process, ProcessId, Range, RangeCounts, Ranges, Residency, Reuse, Step, block::BLOCK_BYTES,
};

use crate::world::{INTERVAL, KEY};

/// Start of every program's memory.
pub(crate) const BASE: u64 = 0x7f00_0000_0000;
const FAULTS_PER_BLOCK: u64 = 40;
const REPLAYS_PER_BLOCK: u64 = 6;

/// Use of each block in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Program {
    /// CPU and GPU write it in turn.
    InTurn,
    /// The same with atomics: memory on the host migrates to the GPU for them.
    AtomicsInTurn,
    /// Only the GPU uses it.
    OnGpu,
    /// No use.
    Idle,
}

#[derive(Debug)]
pub(crate) struct Simulated {
    pub(crate) id: ProcessId,
    pub(crate) program: Program,
    pub(crate) is_adopted: bool,
    pub(crate) ended: Option<SystemTime>,
    pub(crate) counters: Counters,
    pub(crate) host: Counters,
    reuse: Reuse,
    blocks: Vec<Block>,
    advice: BTreeMap<u64, BTreeSet<Advice>>,
    /// Duration of a round without faults and copies.
    pub(crate) round: Duration,
    /// Remotely accessed bytes of a block per round.
    pub(crate) accessed_bytes: u64,
    progress: f64,
    pub(crate) rounds: u64,
}

impl Simulated {
    pub(crate) fn new(id: ProcessId, program: Program, blocks: u64, now: SystemTime) -> Self {
        let block = |at: u64| Block { gpu: Some(KEY), ..Block::new(BASE + at * BLOCK_BYTES, now) };
        Self {
            id,
            program,
            is_adopted: false,
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
        }
    }

    pub(crate) fn advised_blocks(&self) -> usize {
        self.advice.values().filter(|advice| !advice.is_empty()).count()
    }

    /// Advice calls about the process so far, by any program.
    pub(crate) fn advice_calls(&self) -> u64 {
        let host = &self.host;
        let both = [&host.tool_calls, &host.api_calls];
        both.map(|calls| calls.total() - calls[ApiCall::Prefetch] - calls[ApiCall::Discard]).iter().sum()
    }

    /// Runs the rounds of an interval.
    pub(crate) fn advance(&mut self, remote: &mut LinkBytes) {
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
            let in_turn = matches!(self.program, Program::InTurn | Program::AtomicsInTurn);
            if in_turn && block.resident.bytes > 0 {
                // The block migrates to the CPU.
                self.host.cpu_write_faults += FAULTS_PER_BLOCK;
                self.counters.bytes_dtoh[Cause::Fault] += BLOCK_BYTES;
                self.reuse.bounces += 1;
                block.resident = Residency::default();
                block.bytes_dtoh += BLOCK_BYTES;
                block.bounces += 1;
                took += Duration::from_micros(500);
            }
            if is_remote && block.resident.bytes == 0 && self.program != Program::AtomicsInTurn {
                remote.htod += self.accessed_bytes;
                took += Duration::from_micros(50);
            } else if block.resident.bytes == 0 {
                let by_atomics = self.program == Program::AtomicsInTurn;
                let access = if by_atomics { Access::AtomicStrong } else { Access::Write };
                self.counters.fault_entries[access] += FAULTS_PER_BLOCK;
                self.counters.replays += REPLAYS_PER_BLOCK;
                self.counters.bytes_htod[Cause::Fault] += BLOCK_BYTES;
                let reclaimed = if block.bytes_dtoh > 0 { BLOCK_BYTES } else { 0 };
                self.reuse.fetched_bytes += BLOCK_BYTES;
                self.reuse.cpu_reclaimed_bytes += reclaimed;
                self.reuse.bounces += 1;
                block.resident = Residency::exactly(BLOCK_BYTES);
                block.fault_entries += FAULTS_PER_BLOCK;
                block.bytes_htod += BLOCK_BYTES;
                block.cpu_reclaimed_bytes += reclaimed;
                block.bounces += 1;
                took += Duration::from_millis(1);
            }
        }
        took
    }

    pub(crate) fn execute(&mut self, step: &Step, actuator: ActuatorKind) -> CallResult {
        let call = match step.action {
            Action::Migrate(_) | Action::Touch(_) => ApiCall::Prefetch,
            Action::Advise(Advice::PreferredLocation(_)) => ApiCall::SetPreferredLocation,
            Action::Withdraw(Advice::PreferredLocation(_)) => ApiCall::UnsetPreferredLocation,
            Action::Advise(Advice::AccessedBy(_)) => ApiCall::SetAccessedBy,
            Action::Withdraw(Advice::AccessedBy(_)) => ApiCall::UnsetAccessedBy,
            Action::Advise(Advice::ReadDuplication) => ApiCall::EnableReadDuplication,
            Action::Withdraw(Advice::ReadDuplication) => ApiCall::DisableReadDuplication,
        };
        let calls = match actuator {
            ActuatorKind::Ioctl => &mut self.host.tool_calls,
            ActuatorKind::Helper => &mut self.host.api_calls,
        };
        calls[call] += 1;
        if step.action == Action::Withdraw(Advice::PreferredLocation(Place::Host)) {
            // Removes the remote mappings by a temporary preferred location at the GPU.
            calls[ApiCall::SetPreferredLocation] += 1;
        }
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
                Action::Migrate(_) | Action::Touch(_) => {}
            }
        }
        CallResult::Done
    }

    pub(crate) fn process(&self) -> Process {
        let mut process = Process::new(self.id, "program");
        process.counted_from = self.is_adopted.then_some(SystemTime::UNIX_EPOCH);
        process.exited_at = self.ended;
        process.host = self.host.clone();
        process.gpus.insert(KEY, self.counters.clone());
        process.reuse.insert(KEY, self.reuse);
        process.residency.insert(KEY, self.resident());
        process.ranges = Ranges { busiest: vec![self.range()], known: 1, ..Ranges::default() };
        process
    }

    /// Known memory of the program.
    pub(crate) fn memory(&self) -> Memory {
        Memory::new(self.blocks.clone(), vec![self.range()])
    }

    fn range(&self) -> Range {
        Range {
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
            residency: self.resident(),
            pattern: Pattern::UNKNOWN,
        }
    }

    fn resident(&self) -> Residency {
        Residency::exactly(self.blocks.iter().map(|block| block.resident.bytes).sum())
    }
}
