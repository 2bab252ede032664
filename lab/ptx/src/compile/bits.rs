//! Logic, shifts and bit fields.

use super::Compiler;
use super::form::Form;
use super::lanes::map3;
use super::types::{for_bits, for_integer};
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::program::Action;
use crate::ops::bits::{extract, extract_signed, insert, permute, selectors, table};
use crate::types::Type;

impl Compiler<'_> {
    /// Compiles `and`, `or`, `xor`.
    pub(super) fn logic(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let [d, a, b] = form.operands()?;
        let opcode = form.opcode;
        if of == Type::Pred {
            let operation = boolean(opcode).ok_or_else(|| form.unknown())?;
            let (a, b) = (self.predicate(a)?, self.predicate(b)?);
            let d = self.predicate_destination(d)?;
            self.emit(Action::Compute(Box::new(move |state, mask| {
                let value = operation(state.predicate(a), state.predicate(b));
                state.set_predicate(d, value, mask);
            })));
            return Ok(());
        }
        for_bits!(of, T => match opcode {
            "and" => self.map2(d, a, b, |a: T, b: T| a & b),
            "or" => self.map2(d, a, b, |a: T, b: T| a | b),
            _ => self.map2(d, a, b, |a: T, b: T| a ^ b),
        }, Err(form.unknown()))
    }

    /// Compiles `not` and `cnot`.
    pub(super) fn not(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let [d, a] = form.operands()?;
        if form.opcode == "cnot" {
            return for_bits!(of, T => self.map1(d, a, |a: T| T::from(a == 0)), Err(form.unknown()));
        }
        if of == Type::Pred {
            let a = self.predicate(a)?;
            let d = self.predicate_destination(d)?;
            self.emit(Action::Compute(Box::new(move |state, mask| state.set_predicate(d, !state.predicate(a), mask))));
            return Ok(());
        }
        for_bits!(of, T => self.map1(d, a, |a: T| !a), Err(form.unknown()))
    }

    /// Compiles `shl` and `shr`: amounts beyond the width give what the last bit leaves.
    pub(super) fn shift(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let [d, a, b] = form.operands()?;
        if form.opcode == "shl" {
            return for_bits!(of, T => self.map2(d, a, b, |a: T, b: u32| if b < T::BITS { a << b } else { 0 }), Err(form.unknown()));
        }
        for_integer!(of, T => self.map2(d, a, b, |a: T, b: u32| if b < T::BITS { a >> b } else { a >> (T::BITS - 1) >> 1 }), Err(form.unknown()))
    }

    /// Compiles `shf`, the shift of a pair of words.
    pub(super) fn funnel_shift(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let left = form.require(&["l", "r"])? == "l";
        let clamp = form.require(&["clamp", "wrap"])? == "clamp";
        let [d, a, b, c] = form.operands()?;
        if form.only_type()? != Type::B32 {
            return Err(form.unknown());
        }
        self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| {
            let pair = u64::from(b) << 32 | u64::from(a);
            let amount = if clamp { c.min(32) } else { c & 31 };
            if left { (pair << amount >> 32) as u32 } else { (pair >> amount) as u32 }
        })
    }

    /// Compiles `popc`, `clz`, `brev` and `bfind`.
    pub(super) fn bit_count(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let shift_amount = form.take("shiftamt");
        let [d, a] = form.operands()?;
        let long = match of.bytes() {
            4 => false,
            8 => true,
            _ => return Err(form.unknown()),
        };
        match (form.opcode, long) {
            _ if shift_amount && form.opcode != "bfind" => Err(form.unknown()),
            ("popc", false) => self.map1(d, a, u32::count_ones),
            ("popc", true) => self.map1(d, a, u64::count_ones),
            ("clz", false) => self.map1(d, a, u32::leading_zeros),
            ("clz", true) => self.map1(d, a, u64::leading_zeros),
            ("brev", false) => self.map1(d, a, u32::reverse_bits),
            ("brev", true) => self.map1(d, a, u64::reverse_bits),
            _ => {
                let find = move |zeros: u32, width: u32| match (zeros == width, shift_amount) {
                    (true, _) => u32::MAX,
                    (_, true) => zeros,
                    _ => width - 1 - zeros,
                };
                let flip = |value: i64| if value < 0 { !value } else { value };
                match of {
                    Type::U32 => self.map1(d, a, move |a: u32| find(a.leading_zeros(), 32)),
                    Type::S32 => self.map1(d, a, move |a: i32| find((flip(i64::from(a)) as u32).leading_zeros(), 32)),
                    Type::U64 => self.map1(d, a, move |a: u64| find(a.leading_zeros(), 64)),
                    Type::S64 => self.map1(d, a, move |a: i64| find(flip(a).leading_zeros(), 64)),
                    _ => Err(form.unknown()),
                }
            }
        }
    }

    /// Compiles `bfe` and `bfi`.
    pub(super) fn bit_field(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        if form.opcode == "bfe" {
            let [d, a, b, c] = form.operands()?;
            return match of {
                Type::U32 => self.map3(d, a, b, c, |a: u32, b: u32, c: u32| extract(u64::from(a), b, c, 32) as u32),
                Type::S32 => {
                    self.map3(d, a, b, c, |a: u32, b: u32, c: u32| extract_signed(u64::from(a), b, c, 32) as u32)
                }
                Type::U64 => self.map3(d, a, b, c, |a: u64, b: u32, c: u32| extract(a, b, c, 64)),
                Type::S64 => self.map3(d, a, b, c, |a: u64, b: u32, c: u32| extract_signed(a, b, c, 64)),
                _ => Err(form.unknown()),
            };
        }
        let [f, a, b, c, d] = form.operands()?;
        match of {
            Type::B32 => self
                .map4(f, a, b, c, d, |a: u32, b: u32, c: u32, d: u32| insert(u64::from(a), u64::from(b), c, d) as u32),
            Type::B64 => self.map4(f, a, b, c, d, |a: u64, b: u64, c: u32, d: u32| insert(a, b, c, d)),
            _ => Err(form.unknown()),
        }
    }

    /// Compiles `szext` and `bmsk`.
    pub(super) fn extend(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let clamp = form.require(&["clamp", "wrap"])? == "clamp";
        let [d, a, b] = form.operands()?;
        let length = move |b: u32| if clamp { b.min(32) } else { b & 31 };
        match (form.opcode, of) {
            ("szext", Type::U32) => {
                self.map2(d, a, b, move |a: u32, b: u32| extract(u64::from(a), 0, length(b), 32) as u32)
            }
            ("szext", Type::S32) => {
                self.map2(d, a, b, move |a: u32, b: u32| extract_signed(u64::from(a), 0, length(b), 32) as u32)
            }
            ("bmsk", Type::B32) => {
                self.map2(d, a, b, move |a: u32, b: u32| insert(u64::MAX, 0, length(a), length(b)) as u32)
            }
            _ => Err(form.unknown()),
        }
    }

    /// Compiles `lop3`.
    pub(super) fn three_way(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [d, a, b, c, Operand::Integer(row)] = form.operands()? else { return Err(form.error("table")) };
        if form.only_type()? != Type::B32 {
            return Err(form.unknown());
        }
        let [a, b, c] = [self.source(a, Type::B32)?, self.source(b, Type::B32)?, self.source(c, Type::B32)?];
        let d = self.destination(d, Type::B32)?;
        let rows = *row as u32;
        let action = match rows & 0xff {
            0x80 => map3(d, a, b, c, |a: u32, b: u32, c: u32| a & b & c),
            0xfe => map3(d, a, b, c, |a: u32, b: u32, c: u32| a | b | c),
            0x96 => map3(d, a, b, c, |a: u32, b: u32, c: u32| a ^ b ^ c),
            0xca => map3(d, a, b, c, |a: u32, b: u32, c: u32| a & b | !a & c),
            _ => map3(d, a, b, c, move |a: u32, b: u32, c: u32| table(a, b, c, rows)),
        };
        self.emit(action);
        Ok(())
    }

    /// Compiles `prmt`.
    pub(super) fn byte_permute(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        if form.only_type()? != Type::B32 {
            return Err(form.unknown());
        }
        let mode = form.take_one(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]);
        let [d, a, b, c] = form.operands()?;
        match mode {
            None => self.map3(d, a, b, c, permute),
            Some(mode) => self.map3(d, a, b, c, move |a, b, c: u32| permute(a, b, selectors(mode, c))),
        }
    }
}

/// Boolean operation of masks.
pub(super) fn boolean(name: &str) -> Option<fn(u32, u32) -> u32> {
    Some(match name {
        "and" => |a, b| a & b,
        "or" => |a, b| a | b,
        "xor" => |a, b| a ^ b,
        _ => return None,
    })
}
