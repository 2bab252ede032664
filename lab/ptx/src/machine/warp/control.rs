//! Instructions that are not about registers and memory alone.

#![expect(clippy::indexing_slicing, reason = "the compiler made all indices of registers and instructions")]

use super::{Environment, Next, Shared, Status, Warp};
use crate::KernelError;
use crate::machine::barrier::{Barrier, BarrierKind};
use crate::machine::group::{Group, Wait};
use crate::machine::program::{Action, Barrier as BarrierInstruction, Compute, Instruction, Pc, Program};
use crate::machine::{lanes, sync};

impl Warp {
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

    /// Executes an instruction that is not about registers and memory alone.
    pub(super) fn control(
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
            Action::Lanes { .. } | Action::Compute(_) | Action::Memory(_) | Action::Branch(_) => Ok(Next::Same),
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

    fn synchronize(&mut self, group: &mut Group, members: usize, work: &Compute) -> Next {
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

    /// Ends threads.
    pub(super) fn exit(&mut self, mask: u32, shared: &mut Shared) -> Next {
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
        shared.has_arrivals = true;
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
    pub(in crate::machine) fn pass(&mut self, program: &Program, number: usize, barrier: &Barrier) {
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
}
