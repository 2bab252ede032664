//! Arithmetic of `f32` and `f64`.

use super::Compiler;
use super::fma::fma_work;
use super::form::Form;
use super::lanes::Pure;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::program::Action;
use crate::ops::approximate;
use crate::ops::float::{canonical, flush, max, max_f64, min, min_f64, saturate};
use crate::ops::round::{Rounding, add_odd, div_odd, fma_odd, sqrt_odd, sum_rest, to_f32, to_f64, zero_sum};
use crate::types::Type;

/// `.ftz` and `.sat` of an instruction of `f32`.
#[derive(Clone, Copy)]
struct Flags {
    ftz: bool,
    sat: bool,
}

impl Form<'_> {
    fn flags(&mut self) -> Flags {
        Flags { ftz: self.take("ftz"), sat: self.take("sat") }
    }

    /// Takes the rounding mode.
    pub(super) fn rounding(&mut self) -> Option<Rounding> {
        Some(match self.take_one(&["rn", "rz", "rm", "rp"])? {
            "rn" => Rounding::Nearest,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            _ => Rounding::Up,
        })
    }
}

macro_rules! single {
    ($single:ident, $map:ident, $($value:ident),*) => {
        /// Emits an instruction of `f32`, all of which give the canonical NaN.
        fn $single(
            &mut self, flags: Flags, d: &Operand, $($value: &Operand,)* function: impl Fn($(single!(@f32 $value)),*) -> f32 + Pure,
        ) -> Result<(), PtxError> {
            match (flags.ftz, flags.sat) {
                (false, false) => self.$map(d, $($value,)* move |$($value: f32),*| canonical(function($($value),*))),
                (true, false) => self.$map(d, $($value,)* move |$($value: f32),*| {
                    canonical(flush(function($(flush($value)),*)))
                }),
                (false, true) => self.$map(d, $($value,)* move |$($value: f32),*| saturate(function($($value),*))),
                (true, true) => self.$map(d, $($value,)* move |$($value: f32),*| {
                    flush(saturate(function($(flush($value)),*)))
                }),
            }
        }
    };
    (@f32 $value:ident) => { f32 };
}

impl Compiler<'_> {
    single!(single1, map1, a);
    single!(single2, map2, a, b);
    single!(single3, map3, a, b, c);

    /// Compiles `add`, `sub` and `mul`.
    pub(super) fn float_binary(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let rounding = form.rounding().unwrap_or(Rounding::Nearest);
        let flags = form.flags();
        let opcode = form.opcode;
        let [d, a, b] = form.operands()?;
        let nearest = rounding == Rounding::Nearest;
        match (of, opcode) {
            (Type::F32, "add") if nearest => self.single2(flags, d, a, b, |a, b| a + b),
            (Type::F32, "sub") if nearest => self.single2(flags, d, a, b, |a, b| a - b),
            (Type::F32, "mul") if nearest => self.single2(flags, d, a, b, |a, b| a * b),
            (Type::F32, "add") => self.single2(flags, d, a, b, move |a, b| add_rounded(a, b, rounding)),
            (Type::F32, "sub") => self.single2(flags, d, a, b, move |a, b| add_rounded(a, -b, rounding)),
            (Type::F32, _) => self.single2(flags, d, a, b, move |a, b| to_f32(f64::from(a) * f64::from(b), rounding)),
            _ if flags.ftz || flags.sat => Err(form.unknown()),
            (_, "add") if nearest => self.map2(d, a, b, |a: f64, b: f64| a + b),
            (_, "sub") if nearest => self.map2(d, a, b, |a: f64, b: f64| a - b),
            (_, "mul") if nearest => self.map2(d, a, b, |a: f64, b: f64| a * b),
            (_, "mul") => self.map2(d, a, b, move |a: f64, b: f64| {
                let product = a * b;
                if product == 0.0 && a != 0.0 && b != 0.0 {
                    return to_f64(product, f64::MIN_POSITIVE.copysign(product), rounding, false);
                }
                to_f64(product, a.mul_add(b, -product), rounding, a.is_finite() && b.is_finite())
            }),
            (_, opcode) => {
                let subtract = opcode == "sub";
                self.map2(d, a, b, move |a: f64, b: f64| {
                    let b = if subtract { -b } else { b };
                    let sum = a + b;
                    if sum == 0.0 {
                        return f64::from(zero_sum(sum as f32, sign(a), sign(b), rounding));
                    }
                    to_f64(sum, sum_rest(a, b, sum), rounding, a.is_finite() && b.is_finite())
                })
            }
        }
    }

    /// Compiles `fma` and `mad`.
    pub(super) fn float_fma(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let rounding = form.rounding().unwrap_or(Rounding::Nearest);
        let flags = form.flags();
        let [d, a, b, c] = form.operands()?;
        if of == Type::F32 {
            return if rounding == Rounding::Nearest {
                if flags.ftz || flags.sat {
                    return self.single3(flags, d, a, b, c, |a, b, c| {
                        fma_odd(f64::from(a), f64::from(b), f64::from(c)) as f32
                    });
                }
                let [a, b, c] = [self.source(a, of)?, self.source(b, of)?, self.source(c, of)?];
                let registers = [self.destination(d, of)?, a, b, c, 0].map(|register| register as u32);
                self.emit(Action::Lanes { work: fma_work(), registers });
                Ok(())
            } else {
                self.single3(flags, d, a, b, c, move |a, b, c| {
                    let sum = fma_odd(f64::from(a), f64::from(b), f64::from(c));
                    let result = to_f32(sum, rounding);
                    // Not where it is zero by underflow.
                    if sum == 0.0 { zero_sum(result, sign(f64::from(a) * f64::from(b)), c, rounding) } else { result }
                })
            };
        }
        if flags.ftz || flags.sat {
            return Err(form.unknown());
        }
        if rounding == Rounding::Nearest {
            return self.map3(d, a, b, c, |a: f64, b: f64, c: f64| a.mul_add(b, c));
        }
        self.map3(d, a, b, c, move |a: f64, b: f64, c: f64| {
            let result = a.mul_add(b, c);
            let product = a * b;
            if result == 0.0 && c == 0.0 && a != 0.0 && b != 0.0 {
                // The product is less than any number.
                return to_f64(result, f64::MIN_POSITIVE.copysign(product), rounding, false);
            }
            if result == 0.0 {
                return f64::from(zero_sum(result as f32, sign(product), sign(c), rounding));
            }
            let product_rest = a.mul_add(b, -product);
            let sum = product + c;
            let rest = (sum - result) + (sum_rest(product, c, sum) + product_rest);
            to_f64(result, rest, rounding, a.is_finite() && b.is_finite() && c.is_finite())
        })
    }

    /// Compiles `div`.
    pub(super) fn float_divide(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let kind = form.take_one(&["approx", "full"]);
        let rounding = form.rounding();
        let flags = form.flags();
        let [d, a, b] = form.operands()?;
        match (of, kind, rounding) {
            (Type::F32, Some("approx"), None) => self.single2(flags, d, a, b, approximate::divide),
            (Type::F32, Some(_), None) | (Type::F32, None, Some(Rounding::Nearest)) => {
                self.single2(flags, d, a, b, |a, b| a / b)
            }
            (Type::F32, None, Some(rounding)) => {
                self.single2(flags, d, a, b, move |a, b| to_f32(div_odd(f64::from(a), f64::from(b)), rounding))
            }
            (Type::F64, None, Some(rounding)) if !flags.ftz => self.map2(d, a, b, move |a: f64, b: f64| {
                let quotient = a / b;
                if rounding == Rounding::Nearest {
                    return quotient;
                }
                let rest = (-quotient).mul_add(b, a);
                let rest = if b < 0.0 { -rest } else { rest };
                to_f64(quotient, rest, rounding, a.is_finite() && b.is_finite() && b != 0.0)
            }),
            _ => Err(form.unknown()),
        }
    }

    /// Compiles `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2` and `tanh`.
    pub(super) fn float_function(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let approximate = form.take("approx");
        let rounding = form.rounding();
        let flags = form.flags();
        let [d, a] = form.operands()?;
        let single = of == Type::F32;
        match (form.opcode, approximate, rounding) {
            ("rcp", true, None) | ("rcp", false, Some(Rounding::Nearest)) if single => {
                self.single1(flags, d, a, |a| 1.0 / a)
            }
            ("sqrt", true, None) | ("sqrt", false, Some(Rounding::Nearest)) if single => {
                self.single1(flags, d, a, f32::sqrt)
            }
            ("rcp", false, Some(mode)) if single => {
                self.single1(flags, d, a, move |a| to_f32(div_odd(1.0, f64::from(a)), mode))
            }
            ("sqrt", false, Some(mode)) if single => {
                self.single1(flags, d, a, move |a| to_f32(sqrt_odd(f64::from(a)), mode))
            }
            ("rsqrt", true, None) if single => self.single1(flags, d, a, approximate::reciprocal_root),
            ("sin", true, None) if single => self.single1(flags, d, a, approximate::sine),
            ("cos", true, None) if single => self.single1(flags, d, a, approximate::cosine),
            ("lg2", true, None) if single => self.single1(flags, d, a, approximate::logarithm),
            ("ex2", true, None) if single => self.single1(flags, d, a, approximate::exponential),
            ("tanh", true, None) if single => self.single1(flags, d, a, approximate::hyperbolic_tangent),
            // With .ftz only: an approximation whose lower 32 bits are zero.
            ("rcp", true, None) if flags.ftz => {
                self.map1(d, a, |a: f64| approximate::coarse(1.0 / approximate::coarse(a)))
            }
            ("rsqrt", true, None) if flags.ftz => {
                self.map1(d, a, |a: f64| approximate::coarse(1.0 / approximate::coarse(a).sqrt()))
            }
            _ if single || flags.ftz => Err(form.unknown()),
            ("rsqrt", true, None) => self.map1(d, a, |a: f64| 1.0 / a.sqrt()),
            ("rcp", false, Some(mode)) => self.map1(d, a, move |a: f64| {
                let quotient = 1.0 / a;
                if mode == Rounding::Nearest {
                    return quotient;
                }
                let rest = (-quotient).mul_add(a, 1.0);
                to_f64(quotient, if a < 0.0 { -rest } else { rest }, mode, a.is_finite() && a != 0.0)
            }),
            ("sqrt", false, Some(mode)) => self.map1(d, a, move |a: f64| {
                let root = a.sqrt();
                if mode == Rounding::Nearest { root } else { to_f64(root, (-root).mul_add(root, a), mode, false) }
            }),
            _ => Err(form.unknown()),
        }
    }

    /// Compiles `abs` and `neg`.
    pub(super) fn float_unary(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let flags = Flags { ftz: form.take("ftz"), sat: false };
        let [d, a] = form.operands()?;
        match (form.opcode, of) {
            ("abs", Type::F32) => self.single1(flags, d, a, f32::abs),
            ("neg", Type::F32) => self.single1(flags, d, a, |a| -a),
            _ if flags.ftz => Err(form.unknown()),
            ("abs", _) => self.map1(d, a, f64::abs),
            _ => self.map1(d, a, |a: f64| -a),
        }
    }

    /// Compiles `min` and `max`.
    pub(super) fn float_extremum(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let flags = Flags { ftz: form.take("ftz"), sat: false };
        let propagate = form.take("NaN");
        let exclusive = form.take("xorsign");
        if exclusive && !form.take("abs") {
            return Err(form.unknown());
        }
        let [d, a, b] = form.operands()?;
        let least = form.opcode == "min";
        match of {
            Type::F32 if exclusive => self.single2(flags, d, a, b, move |a, b| {
                let magnitude = if least { min(a.abs(), b.abs(), propagate) } else { max(a.abs(), b.abs(), propagate) };
                let sign = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
                if magnitude.is_nan() { magnitude } else { f32::from_bits(magnitude.to_bits() | sign) }
            }),
            Type::F32 if propagate && least => self.single2(flags, d, a, b, |a, b| min(a, b, true)),
            Type::F32 if propagate => self.single2(flags, d, a, b, |a, b| max(a, b, true)),
            Type::F32 if least => self.single2(flags, d, a, b, |a, b| min(a, b, false)),
            Type::F32 => self.single2(flags, d, a, b, |a, b| max(a, b, false)),
            _ if flags.ftz || propagate || exclusive => Err(form.unknown()),
            _ if least => self.map2(d, a, b, |a, b| min_f64(a, b, false)),
            _ => self.map2(d, a, b, |a, b| max_f64(a, b, false)),
        }
    }

    /// Compiles `copysign`: the first operand's sign, the second one's magnitude.
    pub(super) fn copy_sign(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [d, a, b] = form.operands()?;
        match form.only_type()? {
            Type::F32 => self.map2(d, a, b, |a: f32, b: f32| b.copysign(a)),
            Type::F64 => self.map2(d, a, b, |a: f64, b: f64| b.copysign(a)),
            _ => Err(form.unknown()),
        }
    }
}

fn add_rounded(a: f32, b: f32, rounding: Rounding) -> f32 {
    zero_sum(to_f32(add_odd(f64::from(a), f64::from(b)), rounding), a, b, rounding)
}

/// Number of the same sign: zero for zero.
fn sign(value: f64) -> f32 {
    if value == 0.0 { 0.0f32.copysign(value as f32) } else { 1.0f32.copysign(value as f32) }
}
