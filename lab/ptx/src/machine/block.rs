//! A block of threads.

use super::LANES;
use super::barrier::{BARRIERS, Barrier};
use super::program::{Program, Special};
use super::state::State;
use super::warp::{Environment, Shared, Status, Warp};
use crate::{KernelError, Launch};

/// Block.
pub(super) struct Block {
    warps: Vec<Warp>,
    shared: Shared,
    /// Has been a block of the launch before: all but its index in the grid is set.
    reused: bool,
}

impl Block {
    /// Block without threads yet.
    pub(super) fn new(program: &Program, launch: &Launch, threads: u32) -> Self {
        let warps = threads.div_ceil(LANES as u32) as usize;
        let shared_bytes = program.shared_bytes as usize + launch.dynamic_shared_bytes as usize;
        Self {
            warps: (0..warps).map(|index| Warp::new(registers(program), index)).collect(),
            shared: Shared {
                bytes: vec![0; shared_bytes],
                barriers: [Barrier::default(); BARRIERS],
                has_arrivals: false,
                live_threads: threads,
            },
            reused: false,
        }
    }

    /// Begins as the block with an index in the grid.
    pub(super) fn start(&mut self, program: &Program, launch: &Launch, threads: u32, index: [u32; 3]) {
        self.shared.bytes.fill(0);
        self.shared.barriers = [Barrier::default(); BARRIERS];
        self.shared.has_arrivals = false;
        self.shared.live_threads = threads;
        let warps = self.warps.len() as u32;
        for (warp, first) in self.warps.iter_mut().zip((0u32..).step_by(LANES)) {
            for &(register, special) in &program.specials {
                if self.reused && !matches!(special, Special::BlockIndex(_)) {
                    continue;
                }
                if let Some(register) = warp.state.words.get_mut(register) {
                    for (lane, value) in register.iter_mut().enumerate() {
                        *value = value_of(special, program, launch, index, warps, first, lane as u32);
                    }
                }
            }
            let lanes = (threads - first).min(LANES as u32);
            warp.start(u32::MAX >> (LANES as u32 - lanes));
        }
        self.reused = true;
    }

    /// Executes a slice of each warp that can go on.
    pub(super) fn run(&mut self, env: &mut Environment<'_, '_>) -> Result<(), KernelError> {
        for index in 0..self.warps.len() {
            let Some(warp) = self.warps.get_mut(index) else { break };
            if warp.status == Status::Ready {
                warp.run(env, &mut self.shared)?;
                self.complete_barriers(env.program);
            }
        }
        Ok(())
    }

    fn complete_barriers(&mut self, program: &Program) {
        if !self.shared.has_arrivals {
            return;
        }
        for (number, barrier) in self.shared.barriers.iter_mut().enumerate() {
            if barrier.is_complete(self.shared.live_threads) {
                for warp in &mut self.warps {
                    warp.pass(program, number, barrier);
                }
                *barrier = Barrier::default();
            }
        }
        self.shared.has_arrivals = self.shared.barriers.iter().any(Barrier::has_arrivals);
    }

    /// Whether a warp can go on.
    pub(super) fn is_ready(&self) -> bool {
        self.warps.iter().any(|warp| warp.status == Status::Ready)
    }

    pub(super) fn ended(&self) -> bool {
        self.warps.iter().all(|warp| warp.status == Status::Ended)
    }

    pub(super) fn parked(&self) -> bool {
        self.warps.iter().any(|warp| warp.status == Status::Parked)
    }

    pub(super) fn unpark(&mut self) {
        for warp in &mut self.warps {
            warp.unpark();
        }
    }

    /// Line of the first instruction at which a warp waits.
    pub(super) fn waiting_line(&self, program: &Program) -> Option<u32> {
        self.warps.iter().find(|warp| warp.status == Status::Waiting).map(|warp| warp.line(program))
    }
}

fn registers(program: &Program) -> State {
    let mut state = State {
        words: vec![[0; LANES]; program.words],
        longs: vec![[0; LANES]; program.longs],
        predicates: vec![0; program.predicates],
        local: vec![0; program.local_bytes as usize * LANES],
        local_bytes: program.local_bytes as usize,
        ..State::default()
    };
    if let Some(always) = state.predicates.first_mut() {
        *always = u32::MAX;
    }
    for &(register, value) in &program.word_constants {
        if let Some(register) = state.words.get_mut(register) {
            *register = [value; LANES];
        }
    }
    for &(register, value) in &program.long_constants {
        if let Some(register) = state.longs.get_mut(register) {
            *register = [value; LANES];
        }
    }
    state
}

/// Value of a special register in one lane of the warp whose first thread is `first`.
fn value_of(
    special: Special,
    program: &Program,
    launch: &Launch,
    index: [u32; 3],
    warps: u32,
    first: u32,
    lane: u32,
) -> u32 {
    let at = |values: [u32; 3], axis: usize| values.get(axis).copied().unwrap_or_default();
    let [width, height, _] = launch.block.map(|extent| extent.max(1));
    let thread = first + lane;
    let bit = 1u32 << lane;
    match special {
        Special::Thread(axis) => at([thread % width, thread / width % height, thread / width / height], axis),
        Special::BlockSize(axis) => at(launch.block, axis),
        Special::BlockIndex(axis) => at(index, axis),
        Special::GridSize(axis) => at(launch.grid, axis),
        Special::Lane => lane,
        Special::Warp => first / LANES as u32,
        Special::Warps => warps,
        Special::LaneEqual => bit,
        Special::LaneLess => bit - 1,
        Special::LaneLessOrEqual => bit | (bit - 1),
        Special::LaneGreater => !(bit | (bit - 1)),
        Special::LaneGreaterOrEqual => !(bit - 1),
        Special::DynamicSharedBytes => launch.dynamic_shared_bytes,
        Special::TotalSharedBytes => program.shared_bytes.saturating_add(launch.dynamic_shared_bytes),
        Special::One => 1,
        Special::Zero => 0,
        Special::WorkspaceLow => launch.workspace.unwrap_or_default() as u32,
        Special::WorkspaceHigh => (launch.workspace.unwrap_or_default() >> 32) as u32,
    }
}
