//! `cp.async`: copies from global to shared memory, which are done at once, so that nothing waits for
//! them.

use super::Compiler;
use super::form::Form;
use super::memory::{HINTS, load_work, store_work};
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::access::{AccessSpace, Progress};
use crate::machine::lanes;
use crate::machine::program::{Action, Work};
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles `cp.async`.
    pub(super) fn copy_async(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.require(&["async"])?;
        if form.take_one(&["commit_group", "wait_group", "wait_all"]).is_some() {
            return form.finish();
        }
        form.require(&["ca", "cg"])?;
        form.require(&["shared", "shared::cta"])?;
        form.require(&["global"])?;
        form.ignore(&HINTS);
        form.finish()?;
        let (to, from, bytes, taken) = match form.operands {
            [to, from, Operand::Integer(bytes)] => (to, from, *bytes, None),
            [to, from, Operand::Integer(bytes), taken] => (to, from, *bytes, Some(taken)),
            _ => return Err(form.error("operands")),
        };
        let (unit, number) = match bytes {
            4 => (Type::B32, 1),
            8 => (Type::B64, 1),
            16 => (Type::B64, 2),
            _ => return Err(form.unknown()),
        };
        let (_, from) = self.address(from, AccessSpace::Global)?;
        let (_, to) = self.address(to, AccessSpace::Shared)?;
        let registers: Vec<usize> = (0..number).map(|_| self.new_register(unit)).collect::<Result<_, _>>()?;
        let work = |registers| match unit {
            Type::B32 => load_work(AccessSpace::Global, from, registers, |value: u32| value),
            _ => load_work(AccessSpace::Global, from, registers, |value: u64| value),
        };
        let load = work(registers.clone());
        match taken {
            None => self.emit(Action::Memory(load)),
            Some(taken) => {
                let taken = self.source(taken, Type::U32)?;
                self.emit(Action::Memory(truncated(load, taken, unit, registers.clone())));
            }
        }
        self.emit(Action::Memory(match unit {
            Type::B32 => store_work::<u32>(AccessSpace::Shared, to, registers),
            _ => store_work::<u64>(AccessSpace::Shared, to, registers),
        }));
        Ok(())
    }
}

/// The same load of as many bytes as a register says, with zeros after them. A lane that takes none
/// accesses nothing.
fn truncated(load: Work, taken: usize, unit: Type, registers: Vec<usize>) -> Work {
    Box::new(move |machine, mask| {
        let loading = lanes(mask)
            .filter(|&lane| machine.state.lane(Type::U32, taken, lane) != 0)
            .fold(0, |loading, lane| loading | 1 << lane);
        if loading != 0 && load(machine, loading)? == Progress::Park {
            return Ok(Progress::Park);
        }
        for lane in lanes(mask) {
            let mut bytes = machine.state.lane(Type::U32, taken, lane) as u32;
            for &register in &registers {
                let stored = bytes.min(unit.bytes());
                let ones = u64::MAX.checked_shr(64 - 8 * stored).unwrap_or(0);
                let value = machine.state.lane(unit, register, lane);
                machine.state.set_lane(unit, register, lane, value & ones);
                bytes -= stored;
            }
        }
        Ok(Progress::Done)
    })
}
