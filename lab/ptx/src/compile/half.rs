//! Arithmetic of `f16`, `bf16` and pairs of them.

use super::Compiler;
use super::form::Form;
use super::lanes::Pure;
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::state::Lane;
use crate::ops::approximate;
use crate::ops::float::{max, min, saturate_f64};
use crate::ops::half::{Bf16, F16, Half};
use crate::ops::round::{Rounding, add_odd, fma_odd};
use crate::types::Type;

/// Tells whether a type is of this family.
pub(super) fn is_half(of: Type) -> bool {
    matches!(of, Type::F16 | Type::F16x2 | Type::Bf16 | Type::Bf16x2)
}

impl Compiler<'_> {
    /// Compiles an instruction of halves.
    pub(super) fn half(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        match form.only_type()? {
            Type::F16 | Type::F16x2 => self.half_of::<F16>(form),
            _ => self.half_of::<Bf16>(form),
        }
    }

    fn half_of<H: Half + Lane>(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let pair = of.bytes() == 4;
        let approximate = form.take("approx");
        let rounding = form.rounding().unwrap_or(Rounding::Nearest);
        let ftz = form.take("ftz");
        let saturate = form.take("sat");
        let relu = form.take("relu");
        let propagate = form.take("NaN");
        let brain = matches!(of, Type::Bf16 | Type::Bf16x2);
        if rounding != Rounding::Nearest || ftz && brain && form.opcode != "ex2" {
            return Err(form.unknown());
        }
        let read = move |half: H| {
            let value = half.to_f64();
            if ftz && value.abs() < 6.103_515_625e-5 { 0.0f64.copysign(value) } else { value }
        };
        let write = move |value: f64| {
            let value = if saturate { saturate_f64(value) } else { value };
            let value = if relu && value <= 0.0 { 0.0 } else { value };
            let half = H::nearest(value);
            if ftz && half.bits() & 0x7c00 == 0 { H::from_bits(half.bits() & 0x8000) } else { half }
        };
        let opcode = form.opcode;
        match opcode {
            _ if approximate != matches!(opcode, "tanh" | "ex2") => Err(form.unknown()),
            _ if propagate && !matches!(opcode, "min" | "max") => Err(form.unknown()),
            _ if (relu || saturate) && !matches!(opcode, "fma" | "add" | "sub" | "mul") => Err(form.unknown()),
            "abs" | "neg" | "tanh" | "ex2" => {
                let [d, a] = form.operands()?;
                match opcode {
                    "abs" => self.half1(pair, d, a, |a: H| H::from_bits(a.bits() & 0x7fff)),
                    "neg" => self.half1(pair, d, a, |a: H| H::from_bits(a.bits() ^ 0x8000)),
                    "tanh" => self
                        .half1(pair, d, a, move |a| write(f64::from(approximate::hyperbolic_tangent(read(a) as f32)))),
                    _ => self.half1(pair, d, a, move |a| write(f64::from(approximate::exponential(read(a) as f32)))),
                }
            }
            "fma" => {
                let [d, a, b, c] = form.operands()?;
                self.half3(pair, d, a, b, c, move |a, b, c| write(fma_odd(read(a), read(b), read(c))))
            }
            "min" | "max" => {
                let [d, a, b] = form.operands()?;
                let least = opcode == "min";
                self.half2(pair, d, a, b, move |a, b| {
                    let (a, b) = (read(a) as f32, read(b) as f32);
                    write(f64::from(if least { min(a, b, propagate) } else { max(a, b, propagate) }))
                })
            }
            "add" | "sub" | "mul" => {
                let [d, a, b] = form.operands()?;
                match opcode {
                    "add" => self.half2(pair, d, a, b, move |a, b| write(add_odd(read(a), read(b)))),
                    "sub" => self.half2(pair, d, a, b, move |a, b| write(add_odd(read(a), -read(b)))),
                    _ => self.half2(pair, d, a, b, move |a, b| write(read(a) * read(b))),
                }
            }
            _ => Err(form.unknown()),
        }
    }

    fn half1<H: Half + Lane>(
        &mut self,
        pair: bool,
        d: &Operand,
        a: &Operand,
        function: impl Fn(H) -> H + Pure,
    ) -> Result<(), PtxError> {
        if !pair {
            return self.map1(d, a, function);
        }
        self.map1(d, a, move |a: u32| both(|half| function(half(a))))
    }

    fn half2<H: Half + Lane>(
        &mut self,
        pair: bool,
        d: &Operand,
        a: &Operand,
        b: &Operand,
        function: impl Fn(H, H) -> H + Pure,
    ) -> Result<(), PtxError> {
        if !pair {
            return self.map2(d, a, b, function);
        }
        self.map2(d, a, b, move |a: u32, b: u32| both(|half| function(half(a), half(b))))
    }

    fn half3<H: Half + Lane>(
        &mut self,
        pair: bool,
        d: &Operand,
        a: &Operand,
        b: &Operand,
        c: &Operand,
        function: impl Fn(H, H, H) -> H + Pure,
    ) -> Result<(), PtxError> {
        if !pair {
            return self.map3(d, a, b, c, function);
        }
        self.map3(d, a, b, c, move |a: u32, b: u32, c: u32| both(|half| function(half(a), half(b), half(c))))
    }
}

/// Applies a function to the lower and to the upper halves.
fn both<H: Half>(function: impl Fn(&dyn Fn(u32) -> H) -> H) -> u32 {
    let lower = function(&|word| H::from_bits(word as u16));
    let upper = function(&|word| H::from_bits((word >> 16) as u16));
    u32::from(upper.bits()) << 16 | u32::from(lower.bits())
}
