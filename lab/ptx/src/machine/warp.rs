//! A warp: its groups, and how they execute.

#![expect(clippy::indexing_slicing, reason = "the compiler made all indices of registers and instructions")]

use std::rc::Rc;

use super::access::Machine;
use super::barrier::{BARRIERS, Barrier, BarrierKind};
use super::group::{Frame, Group, Saved, Wait};
use super::program::{Action, Barrier as BarrierInstruction, Copied, Instruction, Pc, Program, Progress, Target};
use super::state::State;
use super::{FUNCTION_WINDOW, lanes, sync};
use crate::{Counts, KernelError, Memory, Window};

/// Instructions that a warp executes before the next one has its turn.
const SLICE: u32 = 4096;

/// What warps of a block share while they execute.
pub(super) struct Environment<'a, 'm> {
    pub(super) program: &'a Program,
    pub(super) arguments: &'a [u8],
    pub(super) memory: &'a mut (dyn Memory + 'm),
    pub(super) window: Window,
    pub(super) counts: &'a mut Counts,
}

/// What the warps of one block share.
pub(super) struct Shared {
    pub(super) bytes: Vec<u8>,
    pub(super) barriers: [Barrier; BARRIERS],
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

    /// Takes the group that is due, with all that are at the same place: the one in most calls, at the
    /// lowest instruction; after a full slice another one, so that a lane that spins lets others go on.
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

    /// Puts a group back, and goes on with whichever is due.
    fn leave(&mut self, group: &Group) -> Next {
        self.groups.push(group.clone());
        Next::Schedule
    }

    /// Goes on with a group at another place.
    fn jump(&mut self, group: &mut Group, pc: Pc) -> Next {
        group.pc = pc;
        if self.groups.is_empty() { Next::Same } else { self.leave(group) }
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
        env.counts.warp_instructions += 1;
        env.counts.thread_instructions += u64::from(active.count_ones());
        if active == 0 {
            group.pc += 1;
            return Ok(Next::Same);
        }
        match &instruction.action {
            Action::Compute(work) => work(&mut self.state, active),
            Action::Memory(work) => {
                let mut machine = Machine {
                    state: &mut self.state,
                    shared: &mut shared.bytes,
                    arguments: env.arguments,
                    memory: &mut *env.memory,
                    window: env.window,
                    counts: &mut *env.counts,
                    parked: self.parked,
                };
                if work(&mut machine, active)? == Progress::Park {
                    env.counts.warp_instructions -= 1;
                    env.counts.thread_instructions -= u64::from(active.count_ones());
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

    /// Executes an instruction that is not about registers and memory alone.
    fn control(
        &mut self,
        group: &mut Group,
        active: u32,
        instruction: &Instruction,
        env: &mut Environment<'_, '_>,
        shared: &mut Shared,
    ) -> Result<Next, KernelError> {
        let line = instruction.line;
        if let Action::Branch(target) = instruction.action {
            if active == group.mask {
                return Ok(self.jump(group, target));
            }
            self.groups.push(group.part(group.pc + 1, group.mask & !active, Wait::Nothing));
            self.groups.push(group.part(target, active, Wait::Nothing));
            return Ok(Next::Schedule);
        }
        if active != group.mask {
            self.groups.push(group.part(group.pc + 1, group.mask & !active, Wait::Nothing));
            group.mask = active;
        }
        match &instruction.action {
            Action::Compute(_) | Action::Memory(_) | Action::Branch(_) => Ok(Next::Same),
            Action::Sync { members, work, .. } => Ok(self.synchronize(group, *members, work)),
            Action::BranchIndexed { index, targets } => {
                let indices = self.state.words[*index];
                self.scatter(group, line, |lane| targets.get(indices[lane] as usize).copied())
            }
            Action::Call { target, arguments, .. } => self.call(group, line, *target, arguments, env.program),
            Action::Return => Ok(self.give_back(group, env.program, shared)),
            Action::Exit => Ok(self.exit(active, shared)),
            Action::Barrier(barrier) => self.barrier(group, line, barrier, shared),
            Action::Yield => {
                group.pc += 1;
                self.groups.push(group.clone());
                self.yields = true;
                Ok(Next::Stop(Status::Ready))
            }
            Action::Trap => Err(KernelError::Trap { line }),
        }
    }

    fn synchronize(&mut self, group: &mut Group, members: usize, work: &super::program::Compute) -> Next {
        self.groups.retain(|other| {
            let same = other.wait == Wait::Members && other.same_place(group);
            if same {
                group.mask |= other.mask;
            }
            !same
        });
        let done = sync::perform(&mut self.state, members, group.mask, work);
        if done == group.mask {
            group.pc += 1;
            return Next::Same;
        }
        self.groups.push(group.part(group.pc, group.mask & !done, Wait::Members));
        if done != 0 {
            self.groups.push(group.part(group.pc + 1, done, Wait::Nothing));
        }
        Next::Schedule
    }

    /// Sends each lane to its own target.
    fn scatter(&mut self, group: &Group, line: u32, target: impl Fn(usize) -> Option<Pc>) -> Result<Next, KernelError> {
        let mut rest = group.mask;
        while let Some(first) = lanes(rest).next() {
            let Some(pc) = target(first) else { return Err(KernelError::Trap { line }) };
            let same = lanes(rest).filter(|&lane| target(lane) == Some(pc)).fold(0, |found, lane| found | 1 << lane);
            self.groups.push(group.part(pc, same, Wait::Nothing));
            rest &= !same;
        }
        Ok(Next::Schedule)
    }

    fn call(
        &mut self,
        group: &Group,
        line: u32,
        target: Target,
        arguments: &[Copied],
        program: &Program,
    ) -> Result<Next, KernelError> {
        let callee_of = |state: &State, lane: usize| match target {
            Target::Direct(function) => Some(function),
            Target::Indirect(register) => {
                let number = state.longs[register][lane].wrapping_sub(FUNCTION_WINDOW);
                program.functions.iter().skip(1).position(|function| function.number == number).map(|found| found + 1)
            }
        };
        let mut rest = group.mask;
        while let Some(first) = lanes(rest).next() {
            let callee = callee_of(&self.state, first).ok_or(KernelError::Trap { line })?;
            let mask = lanes(rest)
                .filter(|&lane| callee_of(&self.state, lane) == Some(callee))
                .fold(0, |found, lane| found | 1 << lane);
            rest &= !mask;
            let function = &program.functions[callee];
            let frame_bytes = group.frame_bytes + u64::from(program.functions[group.function].frame_bytes);
            if frame_bytes + u64::from(function.frame_bytes) > self.state.local_bytes as u64 {
                return Err(KernelError::OutOfSpace { space: "local", offset: frame_bytes });
            }
            for (from, to) in arguments.iter().zip(&function.parameters) {
                self.copy_local(mask, group.frame_bytes, *from, frame_bytes, *to);
            }
            let saved = group.is_in(callee).then(|| Saved::save(&self.state, function));
            let frame = Frame {
                call: group.pc,
                caller: group.function,
                caller_frame_bytes: group.frame_bytes,
                saved,
                parent: group.stack.clone(),
            };
            self.groups.push(Group {
                pc: function.entry,
                mask,
                wait: Wait::Nothing,
                function: callee,
                frame_bytes,
                depth: group.depth + 1,
                stack: Some(Rc::new(frame)),
            });
        }
        Ok(Next::Schedule)
    }

    /// Returns from a function, or ends the threads.
    fn give_back(&mut self, group: &Group, program: &Program, shared: &mut Shared) -> Next {
        let Some(frame) = group.stack.clone() else { return self.exit(group.mask, shared) };
        let function = &program.functions[group.function];
        if let Action::Call { results, .. } = &program.instructions[frame.call as usize].action {
            for (from, to) in function.results.iter().zip(results) {
                self.copy_local(group.mask, group.frame_bytes, *from, frame.caller_frame_bytes, *to);
            }
        }
        if let Some(saved) = &frame.saved {
            saved.restore(&mut self.state, function, group.mask);
        }
        self.groups.push(Group {
            pc: frame.call + 1,
            mask: group.mask,
            wait: Wait::Nothing,
            function: frame.caller,
            frame_bytes: frame.caller_frame_bytes,
            depth: group.depth - 1,
            stack: frame.parent.clone(),
        });
        Next::Schedule
    }

    /// Copies bytes between two frames of each lane.
    fn copy_local(&mut self, mask: u32, from_frame: u64, from: Copied, to_frame: u64, to: Copied) {
        let bytes = from.bytes.min(to.bytes) as usize;
        for lane in lanes(mask) {
            let base = lane * self.state.local_bytes;
            let source = base + from_frame as usize + from.offset_bytes as usize;
            let target = base + to_frame as usize + to.offset_bytes as usize;
            self.state.local.copy_within(source..source + bytes, target);
        }
    }

    fn exit(&mut self, mask: u32, shared: &mut Shared) -> Next {
        self.state.live &= !mask;
        shared.live_threads -= mask.count_ones();
        Next::Schedule
    }

    fn barrier(
        &mut self,
        group: &mut Group,
        line: u32,
        barrier: &BarrierInstruction,
        shared: &mut Shared,
    ) -> Result<Next, KernelError> {
        let first = lanes(group.mask).next().unwrap_or_default();
        let number = self.state.words[barrier.number][first] as usize;
        let expected = barrier.threads.map(|register| self.state.words[register][first]);
        let (predicate, negated) = barrier.predicate;
        let predicate = self.state.predicates[predicate] ^ if negated { u32::MAX } else { 0 };
        let Some(arrived) = shared.barriers.get_mut(number) else { return Err(KernelError::Trap { line }) };
        arrived.arrive(self.index, group.mask, self.state.live, expected, predicate);
        let waits = barrier.kind != BarrierKind::Arrive;
        let complete = arrived.is_complete(shared.live_threads);
        if waits {
            group.wait = Wait::Barrier(number);
        } else {
            group.pc += 1;
            if !complete {
                return Ok(Next::Same);
            }
        }
        self.groups.push(group.clone());
        Ok(if complete { Next::Stop(Status::Ready) } else { Next::Schedule })
    }

    /// Lets the groups go on that wait at a barrier that has completed.
    pub(super) fn pass(&mut self, program: &Program, number: usize, barrier: &Barrier) {
        for group in &mut self.groups {
            if group.wait != Wait::Barrier(number) {
                continue;
            }
            let instruction = &program.instructions[group.pc as usize];
            if let Action::Barrier(BarrierInstruction { kind, result, .. }) = instruction.action {
                let truth = match kind {
                    BarrierKind::All => barrier.all(),
                    BarrierKind::Any => barrier.population > 0,
                    _ => false,
                };
                match kind {
                    BarrierKind::Wait | BarrierKind::Arrive => {}
                    BarrierKind::Count => {
                        for lane in lanes(group.mask) {
                            self.state.words[result][lane] = barrier.population;
                        }
                    }
                    BarrierKind::All | BarrierKind::Any => {
                        let predicate = &mut self.state.predicates[result];
                        *predicate = *predicate & !group.mask | if truth { group.mask } else { 0 };
                    }
                }
            }
            group.wait = Wait::Nothing;
            group.pc += 1;
            if self.status == Status::Waiting {
                self.status = Status::Ready;
            }
        }
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
