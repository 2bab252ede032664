//! Calls of functions.

#![expect(clippy::indexing_slicing, reason = "the compiler made all indices of registers and instructions")]

use std::rc::Rc;

use super::{Next, Shared, Warp};
use crate::KernelError;
use crate::machine::group::{Frame, Group, Saved, Wait};
use crate::machine::program::{Action, Copied, Program, Target};
use crate::machine::state::State;
use crate::machine::{FUNCTION_WINDOW, lanes};

impl Warp {
    /// Calls a function, or several by their addresses.
    pub(super) fn call(
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
    pub(super) fn give_back(&mut self, group: &Group, program: &Program, shared: &mut Shared) -> Next {
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
}
