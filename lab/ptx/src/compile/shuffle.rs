//! Instructions between the lanes of a warp.

use super::Compiler;
use super::form::Form;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::program::{Action, Compute};
use crate::machine::{LANES, lanes};
use crate::types::Type;

impl Compiler<'_> {
    /// Emits work that waits for the members, or does not without `.sync`.
    fn emit_sync(&mut self, members: Option<&Operand>, work: Compute, rendezvous: bool) -> Result<(), PtxError> {
        let action = match members {
            Some(members) => Action::Sync { members: self.source(members, Type::B32)?, work, rendezvous },
            None => Action::Compute(work),
        };
        self.emit(action);
        Ok(())
    }

    /// Emits work on all lanes of the warp.
    pub(super) fn emit_warp_sync(&mut self, work: Compute) -> Result<(), PtxError> {
        self.emit_sync(Some(&Operand::Integer(u64::from(u32::MAX))), work, false)
    }

    /// Splits the member mask off the operands of a `.sync`.
    fn members<'o>(form: &mut Form<'o>) -> Result<(Option<&'o Operand>, &'o [Operand]), PtxError> {
        let sync = form.take("sync");
        let operands = form.operands;
        match operands.split_last() {
            Some((members, operands)) if sync => Ok((Some(members), operands)),
            _ if sync => Err(form.error("number of operands")),
            _ => Ok((None, operands)),
        }
    }

    /// Compiles `shfl`.
    pub(super) fn shuffle(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let (members, operands) = Self::members(form)?;
        let mode = form.require(&["up", "down", "bfly", "idx"])?;
        form.finish()?;
        let ([d, a, b, c], Type::B32) = (operands, form.only_type()?) else { return Err(form.error("operands")) };
        let (d, p) = match d {
            Operand::Pair(d, p) => (d.as_ref(), Some(self.predicate_destination(p)?)),
            d => (d, None),
        };
        let [a, b, c] = [self.source(a, Type::B32)?, self.source(b, Type::B32)?, self.source(c, Type::B32)?];
        let d = self.destination(d, Type::B32)?;
        let work: Compute = Box::new(move |state, mask| {
            let get = |register, lane| state.lane(Type::B32, register, lane) as u32;
            let mut result = [0u32; LANES];
            let mut valid = 0;
            for (lane, result) in result.iter_mut().enumerate() {
                let (offset, control) = (get(b, lane) & 31, get(c, lane));
                let (clamp, segment) = (control & 31, control >> 8 & 31);
                let at = lane as u32;
                let last = at & segment | clamp & !segment;
                let first = at & segment;
                let (source, inside) = match mode {
                    "up" => (at.wrapping_sub(offset), at as i32 - offset as i32 >= last as i32),
                    "down" => (at + offset, at + offset <= last),
                    "bfly" => (at ^ offset, at ^ offset <= last),
                    _ => {
                        let source = first | offset & !segment;
                        (source, source <= last)
                    }
                };
                valid |= u32::from(inside) << lane;
                *result = get(a, if inside { (source & 31) as usize } else { lane });
            }
            for lane in lanes(mask) {
                state.set_lane(Type::B32, d, lane, u64::from(result.get(lane).copied().unwrap_or_default()));
            }
            if let Some(p) = p {
                state.set_predicate(p, valid, mask);
            }
        });
        self.emit_sync(members, work, false)
    }

    /// Compiles `vote`.
    pub(super) fn vote(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let (members, operands) = Self::members(form)?;
        let mode = form.require(&["ballot", "any", "all", "uni"])?;
        form.finish()?;
        let [d, a] = operands else { return Err(form.error("number of operands")) };
        let ballot = mode == "ballot";
        if form.only_type()? != (if ballot { Type::B32 } else { Type::Pred }) {
            return Err(form.unknown());
        }
        let a = self.predicate(a)?;
        let d = if ballot { self.destination(d, Type::B32)? } else { self.predicate_destination(d)? };
        let work: Compute = Box::new(move |state, mask| {
            let votes = state.predicate(a) & mask;
            let truth = match mode {
                "ballot" => {
                    lanes(mask).for_each(|lane| state.set_lane(Type::B32, d, lane, u64::from(votes)));
                    return;
                }
                "any" => votes != 0,
                "all" => votes == mask,
                _ => votes == 0 || votes == mask,
            };
            state.set_predicate(d, if truth { u32::MAX } else { 0 }, mask);
        });
        self.emit_sync(members, work, false)
    }

    /// Compiles `match`.
    pub(super) fn match_values(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let (members, operands) = Self::members(form)?;
        let all = form.require(&["any", "all"])? == "all";
        let of = form.only_type()?;
        form.finish()?;
        let ([d, a], Type::B32 | Type::B64, Some(_)) = (operands, of, members) else { return Err(form.unknown()) };
        let (d, p) = match d {
            Operand::Pair(d, p) if all => (d.as_ref(), Some(self.predicate_destination(p)?)),
            d => (d, None),
        };
        let a = self.source(a, of)?;
        let d = self.destination(d, Type::B32)?;
        let work: Compute = Box::new(move |state, mask| {
            let value = |lane| state.lane(of, a, lane);
            let same = |lane| {
                lanes(mask).filter(|&other| value(other) == value(lane)).fold(0u32, |found, other| found | 1 << other)
            };
            let mut result = [0u32; LANES];
            for (lane, result) in result.iter_mut().enumerate() {
                let found = same(lane);
                *result = if all && found != mask { 0 } else { found };
            }
            let mut truth = 0;
            for lane in lanes(mask) {
                let found = result.get(lane).copied().unwrap_or_default();
                truth |= u32::from(found != 0) << lane;
                state.set_lane(Type::B32, d, lane, u64::from(found));
            }
            if let Some(p) = p {
                state.set_predicate(p, truth, mask);
            }
        });
        self.emit_sync(members, work, false)
    }

    /// Compiles `redux`.
    pub(super) fn reduce(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let (members, operands) = Self::members(form)?;
        let operation = form.require(&["add", "min", "max", "and", "or", "xor"])?;
        let of = form.only_type()?;
        form.finish()?;
        let ([d, a], Some(_)) = (operands, members) else { return Err(form.unknown()) };
        let combine: fn(u32, u32) -> u32 = match (operation, of) {
            ("add", Type::U32 | Type::S32) => u32::wrapping_add,
            ("min", Type::U32) => |a, b| a.min(b),
            ("max", Type::U32) => |a, b| a.max(b),
            ("min", Type::S32) => |a, b| (a as i32).min(b as i32) as u32,
            ("max", Type::S32) => |a, b| (a as i32).max(b as i32) as u32,
            ("and", Type::B32) => |a, b| a & b,
            ("or", Type::B32) => |a, b| a | b,
            ("xor", Type::B32) => |a, b| a ^ b,
            _ => return Err(form.unknown()),
        };
        let a = self.source(a, of)?;
        let d = self.destination(d, of)?;
        let work: Compute = Box::new(move |state, mask| {
            let result = lanes(mask).map(|lane| state.lane(of, a, lane) as u32).reduce(combine).unwrap_or_default();
            lanes(mask).for_each(|lane| state.set_lane(of, d, lane, u64::from(result)));
        });
        self.emit_sync(members, work, false)
    }

    /// Compiles `activemask`.
    pub(super) fn active_mask(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [d] = form.operands()?;
        let d = self.destination(d, form.only_type()?)?;
        self.emit(Action::Compute(Box::new(move |state, mask| {
            lanes(mask).for_each(|lane| state.set_lane(Type::B32, d, lane, u64::from(mask)));
        })));
        Ok(())
    }

    /// Compiles `bar.warp.sync`.
    pub(super) fn warp_barrier(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.take("sync");
        let [members] = form.operands()?;
        self.emit_sync(Some(members), Box::new(|_, _| ()), true)
    }
}
