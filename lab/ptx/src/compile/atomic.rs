//! Atomics: `atom` and `red`.

use super::Compiler;
use super::form::Form;
use super::memory::{HINTS, space};
use crate::PtxError;
use crate::machine::program::Action;
use crate::ops::float::{canonical, max, min};
use crate::ops::half::{Bf16, F16, Half};
use crate::ops::round::add_odd;
use crate::types::Type;

/// New value, of the old one and two operands, in the lowest bits.
type Change = fn(u64, u64, u64) -> u64;

impl Compiler<'_> {
    /// Compiles `atom` and `red`.
    pub(super) fn atomic(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let space = space(form);
        let operation = form.require(&["add", "exch", "cas", "min", "max", "and", "or", "xor", "inc", "dec"])?;
        form.ignore(&HINTS);
        form.finish()?;
        let change = change(operation, of).ok_or_else(|| form.unknown())?;
        let returns = form.opcode == "atom";
        let (d, operands) = match form.operands.split_first() {
            Some((d, operands)) if returns => (Some(d), operands),
            _ => (None, form.operands),
        };
        let (address, b, c) = match (operands, operation) {
            ([address, b, c], "cas") => (address, b, c),
            ([_, _], "cas") => return Err(form.error("number of operands")),
            ([address, b], _) => (address, b, b),
            _ => return Err(form.error("number of operands")),
        };
        let (space, address) = self.address(address, space)?;
        let (b, c) = (self.source(b, of)?, self.source(c, of)?);
        let d = d.map(|d| self.destination(d, of)).transpose()?;
        let bytes = of.bytes() as usize;
        let mask_of = u64::MAX >> (64 - 8 * bytes);
        self.emit(Action::Memory(Box::new(move |machine, mask| {
            address.set(machine, mask);
            machine.update(
                space,
                mask,
                bytes,
                |state, lane, old| {
                    change(old, state.lane(of, b, lane) & mask_of, state.lane(of, c, lane) & mask_of) & mask_of
                },
                |state, lane, old| {
                    if let Some(d) = d {
                        state.set_lane(of, d, lane, old);
                    }
                },
            )
        })));
        Ok(())
    }
}

fn change(operation: &str, of: Type) -> Option<Change> {
    let integer = matches!(of, Type::U32 | Type::S32 | Type::U64 | Type::S64);
    let bits = matches!(of, Type::B32 | Type::B64);
    Some(match (operation, of) {
        ("exch", _) if bits => |_, b, _| b,
        ("cas", _) if bits || of == Type::B16 => |old, b, c| if old == b { c } else { old },
        ("and", _) if bits => |old, b, _| old & b,
        ("or", _) if bits => |old, b, _| old | b,
        ("xor", _) if bits => |old, b, _| old ^ b,
        ("inc", Type::U32) => |old, b, _| if old >= b { 0 } else { old + 1 },
        ("dec", Type::U32) => |old, b, _| if old == 0 || old > b { b } else { old - 1 },
        ("add", _) if integer => |old, b, _| old.wrapping_add(b),
        ("min", Type::U32 | Type::U64) => |old, b, _| old.min(b),
        ("max", Type::U32 | Type::U64) => |old, b, _| old.max(b),
        ("min", Type::S32) => |old, b, _| u64::from((old as i32).min(b as i32).cast_unsigned()),
        ("max", Type::S32) => |old, b, _| u64::from((old as i32).max(b as i32).cast_unsigned()),
        ("min", Type::S64) => |old, b, _| (old as i64).min(b as i64) as u64,
        ("max", Type::S64) => |old, b, _| (old as i64).max(b as i64) as u64,
        ("add", Type::F32) => |old, b, _| single(old, b, |old, b| old + b),
        ("min", Type::F32) => |old, b, _| single(old, b, |old, b| min(old, b, false)),
        ("max", Type::F32) => |old, b, _| single(old, b, |old, b| max(old, b, false)),
        ("add", Type::F64) => |old, b, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits(),
        ("add", Type::F16) => |old, b, _| add_half::<F16>(old, b),
        ("add", Type::Bf16) => |old, b, _| add_half::<Bf16>(old, b),
        ("add", Type::F16x2) => |old, b, _| add_half::<F16>(old >> 16, b >> 16) << 16 | add_half::<F16>(old, b),
        ("add", Type::Bf16x2) => |old, b, _| add_half::<Bf16>(old >> 16, b >> 16) << 16 | add_half::<Bf16>(old, b),
        _ => return None,
    })
}

fn single(old: u64, b: u64, function: impl Fn(f32, f32) -> f32) -> u64 {
    u64::from(canonical(function(f32::from_bits(old as u32), f32::from_bits(b as u32))).to_bits())
}

fn add_half<H: Half>(old: u64, b: u64) -> u64 {
    let read = |bits: u64| H::from_bits(bits as u16).to_f64();
    u64::from(H::nearest(add_odd(read(old), read(b))).bits())
}
