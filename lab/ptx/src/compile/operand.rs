//! Registers of operands.

#![expect(clippy::indexing_slicing, reason = "hot loops: the compiler made the registers, and lanes are below 32")]

use super::Compiler;
use super::lanes::{CHUNK, chunks};
use super::scope::Name;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::access::{AccessSpace, Addresses, Machine};
use crate::machine::program::{Action, Special};
use crate::machine::state::put;
use crate::machine::{FUNCTION_WINDOW, LANES, LOCAL_WINDOW, PARAMETER_WINDOW};
use crate::types::Type;

/// Register that a result goes to.
pub(super) struct Destination {
    /// Register of the result's own size.
    pub(super) register: usize,
    /// Wider register to extend it to, and whether by its sign.
    widened: Option<(usize, bool)>,
}

/// Base of an address.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base {
    Nothing,
    Word(usize),
    Long(usize),
    /// Frame of the running function.
    Frame,
}

/// Address of an access: base and offset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address {
    base: Base,
    offset: u64,
}

impl Address {
    /// Sets the addresses of the active lanes.
    #[inline]
    pub(super) fn set(self, machine: &mut Machine<'_, '_>, mask: u32) {
        let Machine { state, addresses, .. } = machine;
        match self.base {
            Base::Nothing => **addresses = [self.offset; LANES],
            Base::Frame => **addresses = [self.offset.wrapping_add(state.frame_bytes); LANES],
            Base::Word(register) => self.beyond(&state.words[register], addresses, mask),
            Base::Long(register) => self.beyond(&state.longs[register], addresses, mask),
        }
    }

    /// The offset beyond the values of a register.
    #[inline]
    fn beyond<W: Copy + Into<u64>>(self, register: &[W; LANES], addresses: &mut Addresses, mask: u32) {
        for first in chunks(mask) {
            for lane in first..first + CHUNK {
                addresses[lane] = self.offset.wrapping_add(register[lane].into());
            }
        }
    }
}

impl Compiler<'_> {
    pub(super) fn word_constant(&mut self, value: u32) -> Result<usize, PtxError> {
        if let Some(&register) = self.word_constants.get(&value) {
            return Ok(register);
        }
        let register = self.new_register(Type::B32)?;
        self.word_constants.insert(value, register);
        self.program.word_constants.push((register, value));
        Ok(register)
    }

    pub(super) fn long_constant(&mut self, value: u64) -> Result<usize, PtxError> {
        if let Some(&register) = self.long_constants.get(&value) {
            return Ok(register);
        }
        let register = self.new_register(Type::B64)?;
        self.long_constants.insert(value, register);
        self.program.long_constants.push((register, value));
        Ok(register)
    }

    fn constant(&mut self, value: u64, of: Type) -> Result<usize, PtxError> {
        match of.bytes() {
            8 => self.long_constant(value),
            4 => self.word_constant(value as u32),
            2 => self.word_constant(u32::from(value as u16)),
            1 => self.word_constant(u32::from(value as u8)),
            _ => self.error("immediate of 128 bits"),
        }
    }

    fn special_register(&mut self, special: Special) -> Result<usize, PtxError> {
        if let Some(&(_, register)) = self.specials.iter().find(|(known, _)| *known == special) {
            return Ok(register);
        }
        let register = self.new_register(Type::B32)?;
        self.specials.push((special, register));
        self.program.specials.push((register, special));
        Ok(register)
    }

    /// Register with the value of an operand that is as wide as its type.
    pub(super) fn source(&mut self, operand: &Operand, of: Type) -> Result<usize, PtxError> {
        match operand {
            Operand::Symbol(name) => match self.find(name)? {
                Name::Register(register, index) if register.bytes() == of.bytes() => Ok(index),
                Name::Special(special) if of.bytes() <= 4 => self.special_register(special),
                Name::Special(special) if of.bytes() == 8 => {
                    let word = self.special_register(special)?;
                    let register = self.new_register(Type::B64)?;
                    self.emit(super::lanes::map1(register, word, |value: u32| u64::from(value)));
                    Ok(register)
                }
                Name::Register(..) => self.error(format!("{name} is not as wide as the type")),
                _ => self.error(format!("{name} is not a register")),
            },
            Operand::Integer(value) if of.is_integer() => self.constant(*value, of),
            Operand::Single(bits) if of.bytes() == 4 => self.word_constant(*bits),
            Operand::Double(value) => match of {
                Type::F32 => self.word_constant((*value as f32).to_bits()),
                Type::F64 | Type::B64 => self.long_constant(value.to_bits()),
                _ => self.error("a floating-point immediate does not fit the type"),
            },
            _ => self.error(format!("operand {operand:?}")),
        }
    }

    /// Register with the value of an operand that may be wider than its type, as those of `cvt` and
    /// `st`.
    pub(super) fn wide_source(&mut self, operand: &Operand, of: Type) -> Result<usize, PtxError> {
        if let Operand::Symbol(name) = operand
            && let Name::Register(register, index) = self.find(name)?
            && register.bytes() > of.bytes()
            && of != Type::Pred
        {
            if register.bytes() < 8 {
                return Ok(index);
            }
            let narrow = self.new_register(Type::B32)?;
            self.emit(super::lanes::map1(narrow, index, |value: u64| value as u32));
            return Ok(narrow);
        }
        self.source(operand, of)
    }

    /// Register for a result that is as wide as its type.
    pub(super) fn destination(&mut self, operand: &Operand, of: Type) -> Result<usize, PtxError> {
        match operand {
            Operand::Sink => self.new_register(of.bits()),
            Operand::Symbol(name) => match self.find(name)? {
                Name::Register(register, index) if register.bytes() == of.bytes() => Ok(index),
                _ => self.error(format!("{name} is not a register as wide as the type")),
            },
            _ => self.error(format!("operand {operand:?} for a result")),
        }
    }

    /// Register for a result that may be narrower than the register, as those of `cvt` and `ld`. It
    /// is extended by [`Compiler::widen`], after the instruction.
    pub(super) fn wide_destination(&mut self, operand: &Operand, of: Type) -> Result<Destination, PtxError> {
        if let Operand::Symbol(name) = operand
            && let Name::Register(register, index) = self.find(name)?
            && register.bytes() > of.bytes()
            && of != Type::Pred
        {
            if register.bytes() < 8 {
                return Ok(Destination { register: index, widened: None });
            }
            let narrow = self.new_register(Type::B32)?;
            return Ok(Destination { register: narrow, widened: Some((index, of.is_signed())) });
        }
        Ok(Destination { register: self.destination(operand, of)?, widened: None })
    }

    /// Extends a result to its register.
    pub(super) fn widen(&mut self, destination: &Destination) {
        let narrow = destination.register;
        match destination.widened {
            None => {}
            Some((wide, true)) => self.emit(super::lanes::map1(wide, narrow, |value: i32| i64::from(value))),
            Some((wide, false)) => self.emit(super::lanes::map1(wide, narrow, |value: u32| u64::from(value))),
        }
    }

    /// Predicate, and whether it is negated.
    pub(super) fn predicate(&mut self, operand: &Operand) -> Result<(usize, bool), PtxError> {
        let (name, negated) = match operand {
            Operand::Symbol(name) => (name, false),
            Operand::Not(name) => (name, true),
            Operand::Integer(value) => return Ok((0, *value == 0)),
            _ => return self.error(format!("operand {operand:?} for a predicate")),
        };
        match self.find(name)? {
            Name::Register(Type::Pred, index) => Ok((index, negated)),
            _ => self.error(format!("{name} is not a predicate")),
        }
    }

    /// Predicate for a result.
    pub(super) fn predicate_destination(&mut self, operand: &Operand) -> Result<usize, PtxError> {
        match operand {
            Operand::Sink => self.new_register(Type::Pred),
            Operand::Symbol(_) => Ok(self.predicate(operand)?.0),
            _ => self.error(format!("operand {operand:?} for a predicate")),
        }
    }

    /// Address operand of an access to a space.
    pub(super) fn address(
        &mut self,
        operand: &Operand,
        space: AccessSpace,
    ) -> Result<(AccessSpace, Address), PtxError> {
        let (symbol, offset) = match operand {
            Operand::Address(symbol, offset) => (symbol.as_ref(), offset),
            // An element, as `ld.global.u32 %r1, array[2]`.
            Operand::Sum(symbol, offset) => (Some(symbol), offset),
            _ => return self.error(format!("operand {operand:?} for an address")),
        };
        let offset = offset.cast_unsigned();
        let Some(name) = symbol else { return Ok((space, Address { base: Base::Nothing, offset })) };
        let fixed =
            |space, value: u64| Ok((space, Address { base: Base::Nothing, offset: value.wrapping_add(offset) }));
        match (self.find(name)?, space) {
            (Name::Register(register, index), _) => {
                let base = match register.bytes() {
                    8 => Base::Long(index),
                    4 => Base::Word(index),
                    _ => return self.error(format!("{name} is not as wide as an address")),
                };
                // The address of a parameter is a generic one.
                let space = if space == AccessSpace::Parameter { AccessSpace::Generic } else { space };
                Ok((space, Address { base, offset }))
            }
            (Name::Argument(at), AccessSpace::Parameter) => fixed(AccessSpace::Parameter, at),
            (Name::Frame { offset_bytes, parameter }, AccessSpace::Parameter | AccessSpace::Local)
                if parameter == (space == AccessSpace::Parameter) =>
            {
                Ok((AccessSpace::Local, Address { base: Base::Frame, offset: offset_bytes.wrapping_add(offset) }))
            }
            (Name::Shared(at), AccessSpace::Shared) => fixed(AccessSpace::Shared, at),
            (Name::DynamicShared, AccessSpace::Shared) => {
                let base = Base::Long(self.dynamic_long()?);
                Ok((AccessSpace::Shared, Address { base, offset }))
            }
            (Name::Global(at), AccessSpace::Global | AccessSpace::Generic) => fixed(AccessSpace::Global, at),
            _ => self.error(format!("{name} is not in the instruction's state space")),
        }
    }

    /// Register of 64 bits with the offset of dynamic shared memory.
    pub(super) fn dynamic_long(&mut self) -> Result<usize, PtxError> {
        if let Some(&register) = self.dynamic_longs.first() {
            return Ok(register);
        }
        let register = self.new_register(Type::B64)?;
        self.dynamic_longs.push(register);
        Ok(register)
    }

    fn dynamic_word(&mut self) -> Result<usize, PtxError> {
        if let Some(&register) = self.dynamic_words.first() {
            return Ok(register);
        }
        let register = self.new_register(Type::B32)?;
        self.dynamic_words.push(register);
        Ok(register)
    }

    /// Register with the address of a name, for `mov`; none: the name is a register.
    pub(super) fn address_of(&mut self, name: &str, offset: i64, of: Type) -> Result<Option<usize>, PtxError> {
        let offset = offset.cast_unsigned();
        let value = match self.find(name)? {
            Name::Register(..) | Name::Special(_) => return Ok(None),
            Name::Argument(at) => PARAMETER_WINDOW + at,
            Name::Shared(at) | Name::Global(at) => at,
            Name::Function(function) => {
                self.reach(function);
                FUNCTION_WINDOW + function as u64
            }
            Name::DynamicShared if offset != 0 => return self.error("offset of dynamic shared memory"),
            Name::DynamicShared => {
                return if of.bytes() == 8 { self.dynamic_long() } else { self.dynamic_word() }.map(Some);
            }
            Name::Frame { offset_bytes, parameter } => {
                let window = if parameter { LOCAL_WINDOW } else { 0 };
                let add = offset_bytes.wrapping_add(offset) | window;
                let register = self.new_register(of.bits())?;
                let long = of.bytes() == 8;
                self.emit(Action::Compute(Box::new(move |state, mask| {
                    let value = state.frame_bytes.wrapping_add(add);
                    if let (true, Some(register)) = (long, state.longs.get_mut(register)) {
                        put(register, &[value; LANES], mask);
                    } else if let (false, Some(register)) = (long, state.words.get_mut(register)) {
                        put(register, &[value as u32; LANES], mask);
                    }
                })));
                return Ok(Some(register));
            }
        };
        self.constant(value.wrapping_add(offset), of).map(Some)
    }
}
