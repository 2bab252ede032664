//! Matrices of 8 × 8 halves: `ldmatrix`, `stmatrix` and `movmatrix`.
//!
//! Lane `4 g + t` has the elements `2 t` and `2 t + 1` of row `g`; transposed, of column `g`. The
//! addresses of the rows are in lanes: those of the second matrix in lanes 8 to 15.

use super::super::Compiler;
use super::super::form::Form;
use super::super::lanes::{map1, map2};
use super::super::memory::{elements, space};
use super::super::operand::Address;
use crate::PtxError;
use crate::machine::access::{AccessSpace, Machine};
use crate::machine::program::{Action, Compute};
use crate::machine::{LANES, lanes};
use crate::types::Type;

/// Rows of a matrix.
const ROWS: usize = 8;

/// One element of each lane, or both, in memory.
#[derive(Clone, Copy)]
struct Eights {
    space: AccessSpace,
    rows: Address,
    /// Which of the matrices.
    number: usize,
}

impl Eights {
    /// Sets the addresses of what lanes have: `place(g, t)` is row and element.
    fn set(self, machine: &mut Machine<'_, '_>, place: impl Fn(usize, usize) -> (usize, usize)) {
        // Of the other lanes, too.
        self.rows.set(machine, u32::MAX);
        let rows = *machine.addresses;
        for (lane, address) in machine.addresses.iter_mut().enumerate() {
            let (row, element) = place(lane / 4, lane % 4);
            let begin = rows.get(self.number * ROWS + row).copied().unwrap_or_default();
            *address = begin.wrapping_add(2 * element as u64);
        }
    }

    /// Loads or stores the pair of a row.
    fn pair(self, load: bool, register: usize) -> Action {
        Action::Memory(Box::new(move |machine, mask| {
            self.set(machine, |group, thread| (group, 2 * thread));
            if load {
                machine.load(self.space, mask, &[register], |value: u32| value)
            } else {
                machine.store::<u32>(self.space, mask, &[register])
            }
        }))
    }

    /// Loads or stores one element of a column.
    fn half(self, load: bool, register: usize, within: usize) -> Action {
        Action::Memory(Box::new(move |machine, mask| {
            self.set(machine, |group, thread| (2 * thread + within, group));
            if load {
                machine.load(self.space, mask, &[register], |value: u16| value)
            } else {
                machine.store::<u16>(self.space, mask, &[register])
            }
        }))
    }
}

impl Compiler<'_> {
    /// Compiles `ldmatrix` and `stmatrix`.
    pub(in super::super) fn matrices(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let load = form.opcode == "ldmatrix";
        let number = match form.require(&["x1", "x2", "x4"])? {
            "x1" => 1,
            "x2" => 2,
            _ => 4,
        };
        let transposed = form.take("trans");
        let space = space(form);
        let known = form.take("sync") && form.take("aligned") && form.take("m8n8");
        let [first, second] = form.operands()?;
        if !known || form.only_type()? != Type::B16 || !matches!(space, AccessSpace::Shared | AccessSpace::Generic) {
            return Err(form.unknown());
        }
        let (values, address) = if load { (first, second) } else { (second, first) };
        let (space, rows) = self.address(address, space)?;
        let values = elements(form, values, number)?;
        // All lanes have come, whose addresses are read.
        self.emit_warp_sync(Box::new(|_, _| ()))?;
        let mut loaded = Vec::new();
        for (number, value) in values.iter().enumerate() {
            let part = Eights { space, rows, number };
            let upper = self.new_register(Type::B32)?;
            // An address may be in a register that is a result, too.
            let register = if load { self.new_register(Type::B32)? } else { self.source(value, Type::B32)? };
            match (transposed, load) {
                (false, _) => self.emit(part.pair(load, register)),
                (true, true) => {
                    self.emit(part.half(true, register, 0));
                    self.emit(part.half(true, upper, 1));
                    self.emit(map2(register, register, upper, |lower: u32, upper: u32| upper << 16 | lower));
                }
                (true, false) => {
                    self.emit(map1(upper, register, |pair: u32| pair >> 16));
                    self.emit(part.half(false, register, 0));
                    self.emit(part.half(false, upper, 1));
                }
            }
            loaded.push(register);
        }
        for (value, register) in values.iter().zip(loaded).filter(|_| load) {
            let to = self.destination(value, Type::B32)?;
            self.emit(map1(to, register, |value: u32| value));
        }
        Ok(())
    }

    /// Compiles `movmatrix`.
    pub(in super::super) fn transpose(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let known = ["sync", "aligned", "m8n8", "trans"].iter().all(|word| form.take(word));
        let [d, a] = form.operands()?;
        if !known || form.only_type()? != Type::B16 {
            return Err(form.unknown());
        }
        let a = self.source(a, Type::B32)?;
        let d = self.destination(d, Type::B32)?;
        let work: Compute = Box::new(move |state, mask| {
            let half = |row: usize, column: usize| {
                state.lane(Type::B32, a, 4 * row + column / 2) >> (column % 2 * 16) & 0xffff
            };
            let mut result = [0; LANES];
            for (lane, result) in result.iter_mut().enumerate() {
                let (group, thread) = (lane / 4, lane % 4);
                *result = half(2 * thread + 1, group) << 16 | half(2 * thread, group);
            }
            for lane in lanes(mask) {
                state.set_lane(Type::B32, d, lane, result.get(lane).copied().unwrap_or_default());
            }
        });
        self.emit_warp_sync(work)
    }
}
