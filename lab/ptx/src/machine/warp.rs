//! A warp: its groups, and how they execute.

#![expect(clippy::indexing_slicing, reason = "the compiler made all indices of registers and instructions")]

mod call;
mod control;

use std::sync::Mutex;

use super::access::{Addresses, Machine, Progress};
use super::barrier::{BARRIERS, Barrier};
use super::group::{Group, Wait};
use super::program::{Action, Pc, Program};
use super::state::State;
use super::{LANES, sync};
use crate::{Counts, Heap, KernelError, Memory, Window};

/// Instructions that a warp executes before the next one has its turn.
const SLICE: u32 = 4096;

/// What warps of a block share while they execute.
pub(super) struct Environment<'a, 'm> {
    pub(super) program: &'a Program,
    pub(super) arguments: &'a [u8],
    pub(super) memory: &'a mut (dyn Memory + 'm),
    pub(super) window: Window,
    pub(super) counts: &'a mut Counts,
    pub(super) heap: Option<&'a Mutex<Heap>>,
    /// Of an access; here, to spare its allocation.
    pub(super) addresses: Addresses,
}

/// What the warps of one block share.
pub(super) struct Shared {
    pub(super) bytes: Vec<u8>,
    pub(super) barriers: [Barrier; BARRIERS],
    /// Threads have arrived at one of them: only then one can complete.
    pub(super) has_arrivals: bool,
    pub(super) live_threads: u32,
}

/// Whether a warp can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ready,
    /// Waits for [`Memory::settle`].
    Parked,
    /// All groups wait.
    Waiting,
    Ended,
}

/// Warp.
pub(super) struct Warp {
    pub(super) state: State,
    pub(super) groups: Vec<Group>,
    pub(super) status: Status,
    index: usize,
    /// Times that it has parked at the present instruction.
    parked: u32,
    /// A group used its slice up: the next one is another group's.
    yields: bool,
}

/// How the execution of a group goes on.
enum Next {
    /// With the instruction at its place.
    Same,
    /// With whichever group is due.
    Schedule,
    Stop(Status),
}

impl Warp {
    pub(super) fn new(state: State, index: usize) -> Self {
        Self { state, groups: Vec::new(), status: Status::Ended, index, parked: 0, yields: false }
    }

    /// Begins with the lanes of a mask.
    pub(super) fn start(&mut self, mask: u32) {
        self.state.live = mask;
        self.state.carry = 0;
        self.parked = 0;
        self.yields = false;
        self.status = Status::Ready;
        self.groups.clear();
        let wait = Wait::Nothing;
        self.groups.push(Group { pc: 0, mask, wait, function: 0, frame_bytes: 0, depth: 0, stack: None });
    }

    /// Executes a slice.
    pub(super) fn run(&mut self, env: &mut Environment<'_, '_>, shared: &mut Shared) -> Result<(), KernelError> {
        let mut budget = SLICE;
        loop {
            let Some(mut group) = self.take_due() else {
                if sync::release(&self.state, env.program, &mut self.groups) {
                    continue;
                }
                self.status = if self.groups.is_empty() { Status::Ended } else { Status::Waiting };
                return Ok(());
            };
            let limit = self.limit(&group);
            self.state.frame_bytes = group.frame_bytes;
            loop {
                if group.pc >= limit {
                    self.groups.push(group);
                    break;
                }
                if budget == 0 {
                    self.groups.push(group);
                    self.yields = true;
                    return Ok(());
                }
                budget -= 1;
                match self.execute(&mut group, env, shared)? {
                    Next::Same => {}
                    Next::Schedule => break,
                    Next::Stop(status) => {
                        self.status = status;
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Takes the group that is due, with all that are at the same place: the one in most calls, at
    /// the lowest instruction; after a full slice another one, so that a lane that spins lets
    /// others go on.
    fn take_due(&mut self) -> Option<Group> {
        let ready = |group: &&Group| group.wait == Wait::Nothing;
        let number = self.groups.iter().filter(ready).count();
        if number == 0 {
            return None;
        }
        let due = if self.yields && number > 1 {
            // The one that had the slice was put back last.
            self.groups.iter().position(|group| ready(&group))?
        } else {
            let key = |group: &Group| (std::cmp::Reverse(group.depth), group.pc);
            self.groups.iter().enumerate().filter(|(_, group)| ready(group)).min_by_key(|(_, group)| key(group))?.0
        };
        self.yields = false;
        let mut group = self.groups.remove(due);
        self.groups.retain(|other| {
            let same = other.wait == Wait::Nothing && other.same_place(&group);
            if same {
                group.mask |= other.mask;
            }
            !same
        });
        Some(group)
    }

    /// Instruction at which a group meets the next one.
    fn limit(&self, group: &Group) -> Pc {
        let ahead = |other: &&Group| other.wait == Wait::Nothing && other.depth == group.depth && other.pc > group.pc;
        self.groups.iter().filter(ahead).map(|other| other.pc).min().unwrap_or(Pc::MAX)
    }

    /// Executes one instruction.
    #[inline]
    fn execute(
        &mut self,
        group: &mut Group,
        env: &mut Environment<'_, '_>,
        shared: &mut Shared,
    ) -> Result<Next, KernelError> {
        let program = env.program;
        let instruction = &program.instructions[group.pc as usize];
        let active = group.mask & (self.state.predicates[instruction.guard] ^ instruction.guard_flip);
        // Counting bits takes a while on processors of the first x86-64.
        let threads = if active == u32::MAX { LANES as u32 } else { active.count_ones() };
        env.counts.warp_instructions += 1;
        env.counts.thread_instructions += u64::from(threads);
        if active == 0 {
            group.pc += 1;
            return Ok(Next::Same);
        }
        match &instruction.action {
            Action::Lanes { work, registers } => work(&mut self.state, registers, active),
            Action::Compute(work) => work(&mut self.state, active),
            Action::Memory(work) => {
                let mut machine = Machine {
                    state: &mut self.state,
                    addresses: &mut env.addresses,
                    shared: &mut shared.bytes,
                    arguments: env.arguments,
                    memory: &mut *env.memory,
                    window: env.window,
                    counts: &mut *env.counts,
                    heap: env.heap,
                    parked: self.parked,
                };
                if work(&mut machine, active)? == Progress::Park {
                    env.counts.warp_instructions -= 1;
                    env.counts.thread_instructions -= u64::from(threads);
                    self.parked += 1;
                    self.groups.push(group.clone());
                    return Ok(Next::Stop(Status::Parked));
                }
                self.parked = 0;
            }
            _ => return self.control(group, active, instruction, env, shared),
        }
        group.pc += 1;
        Ok(Next::Same)
    }

    /// Goes on after [`Memory::settle`].
    pub(super) fn unpark(&mut self) {
        if self.status == Status::Parked {
            self.status = Status::Ready;
        }
    }

    /// Line of the instruction at which it waits.
    pub(super) fn line(&self, program: &Program) -> u32 {
        self.groups.first().map_or(0, |group| program.instructions[group.pc as usize].line)
    }
}
