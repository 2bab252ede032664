//! `mov`, `cvta`, `isspacep`.

use super::Compiler;
use super::form::Form;
use super::lanes::{map1, test1};
use super::types::for_bits;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::access::Progress;
use crate::machine::lanes as active_lanes;
use crate::machine::program::Action;
use crate::machine::{LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, SPACE_WINDOW_BYTES};
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles `mov`.
    pub(super) fn transfer(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let [d, a] = form.operands()?;
        match (d, a) {
            (Operand::Vector(parts), a) => self.unpack(form, of, parts, a),
            (d, Operand::Vector(parts)) => self.pack(form, of, d, parts),
            _ if of == Type::Pred => {
                let a = self.predicate(a)?;
                let d = self.predicate_destination(d)?;
                self.emit(Action::Compute(Box::new(move |state, mask| {
                    state.set_predicate(d, state.predicate(a), mask);
                })));
                Ok(())
            }
            (d, Operand::Symbol(name)) if is_clock(name) => self.clock(form, of, d, name.ends_with("hi")),
            _ => {
                let address = match a {
                    Operand::Symbol(name) => self.address_of(name, 0, of)?,
                    Operand::Sum(name, offset) => {
                        Some(self.address_of(name, *offset, of)?.ok_or_else(|| form.error("sum of a register"))?)
                    }
                    _ => None,
                };
                let a = match address {
                    Some(register) => register,
                    None => self.source(a, of)?,
                };
                let d = self.destination(d, of)?;
                let action = for_bits!(of, T => map1(d, a, |a: T| a), return Err(form.unknown()));
                self.emit(action);
                Ok(())
            }
        }
    }

    fn clock(&mut self, form: &Form<'_>, of: Type, d: &Operand, upper: bool) -> Result<(), PtxError> {
        if of.bytes() < 4 {
            return Err(form.unknown());
        }
        let d = self.destination(d, of)?;
        self.emit(Action::Memory(Box::new(move |machine, mask| {
            let clock = machine.counts.warp_instructions >> if upper { 32 } else { 0 };
            for lane in active_lanes(mask) {
                machine.state.set_lane(of, d, lane, clock);
            }
            Ok(Progress::Done)
        })));
        Ok(())
    }

    /// Type of one of some parts of a value.
    fn part_type(form: &Form<'_>, of: Type, parts: usize) -> Result<Type, PtxError> {
        match (of.bytes(), parts) {
            (8, 2) => Ok(Type::B32),
            (8, 4) | (4, 2) => Ok(Type::B16),
            (4, 4) | (2, 2) => Ok(Type::B8),
            _ => Err(form.error("vector")),
        }
    }

    fn unpack(&mut self, form: &Form<'_>, of: Type, parts: &[Operand], a: &Operand) -> Result<(), PtxError> {
        let part = Self::part_type(form, of, parts.len())?;
        let a = self.source(a, of)?;
        let parts: Vec<usize> =
            parts.iter().map(|part_of| self.destination(part_of, part)).collect::<Result<_, _>>()?;
        let bits = part.bytes() * 8;
        self.emit(Action::Compute(Box::new(move |state, mask| {
            for lane in active_lanes(mask) {
                let mut value = state.lane(of, a, lane);
                for &register in &parts {
                    state.set_lane(part, register, lane, value & (u64::MAX >> (64 - bits)));
                    value >>= bits;
                }
            }
        })));
        Ok(())
    }

    fn pack(&mut self, form: &Form<'_>, of: Type, d: &Operand, parts: &[Operand]) -> Result<(), PtxError> {
        let part = Self::part_type(form, of, parts.len())?;
        let parts: Vec<usize> = parts.iter().map(|part_of| self.source(part_of, part)).collect::<Result<_, _>>()?;
        let d = self.destination(d, of)?;
        let bits = part.bytes() * 8;
        self.emit(Action::Compute(Box::new(move |state, mask| {
            for lane in active_lanes(mask) {
                let value = parts.iter().rev().fold(0, |value, &register| {
                    value << bits | state.lane(part, register, lane) & (u64::MAX >> (64 - bits))
                });
                state.set_lane(of, d, lane, value);
            }
        })));
        Ok(())
    }

    /// Compiles `cvta`: conversion between generic addresses and those of a space.
    pub(super) fn convert_address(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let to_space = form.take("to");
        let window = window(form)?;
        let [d, a] = form.operands()?;
        if of != Type::U64 {
            return Err(form.unknown());
        }
        let address = match a {
            Operand::Symbol(name) => self.address_of(name, 0, of)?,
            Operand::Sum(name, offset) => self.address_of(name, *offset, of)?,
            _ => None,
        };
        let a = match address {
            Some(register) => register,
            None => self.source(a, of)?,
        };
        let d = self.destination(d, of)?;
        self.emit(match (window, to_space) {
            (0, _) => map1(d, a, |a: u64| a),
            // Arguments are accessed by their generic address.
            (PARAMETER_WINDOW, _) => map1(d, a, |a: u64| a),
            (window, true) => map1(d, a, move |a: u64| a & !window),
            (window, false) => map1(d, a, move |a: u64| a | window),
        });
        Ok(())
    }

    /// Compiles `isspacep`.
    pub(super) fn is_in_space(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let window = window(form)?;
        let [p, a] = form.operands()?;
        let a = self.source(a, Type::U64)?;
        let p = self.predicate_destination(p)?;
        let test = test1(a, move |a: u64| {
            let space = a & !(SPACE_WINDOW_BYTES - 1);
            if window == 0 {
                !matches!(space, SHARED_WINDOW | LOCAL_WINDOW | PARAMETER_WINDOW)
            } else {
                space == window
            }
        });
        self.emit(Action::Compute(Box::new(move |state, mask| state.set_predicate(p, test(state), mask))));
        Ok(())
    }
}

/// Takes the state space of an address; gives its window, 0 for global memory.
fn window(form: &mut Form<'_>) -> Result<u64, PtxError> {
    Ok(match form.require(&["global", "const", "shared", "shared::cta", "local", "param", "param::entry"])? {
        "global" | "const" => 0,
        "shared" | "shared::cta" => SHARED_WINDOW,
        "local" => LOCAL_WINDOW,
        _ => PARAMETER_WINDOW,
    })
}

/// Tells whether a special register is a clock.
fn is_clock(name: &str) -> bool {
    matches!(name, "%clock" | "%clock_hi" | "%clock64" | "%globaltimer" | "%globaltimer_lo" | "%globaltimer_hi")
}
