//! Conversions: `cvt`.

use super::Compiler;
use super::form::Form;
use super::lanes::map1;
use super::types::{for_any_integer, for_integer};
use crate::PtxError;
use crate::machine::program::Action;
use crate::machine::state::Lane;
use crate::ops::float::{canonical, flush, saturate, saturate_f64};
use crate::ops::half::{Bf16, F16, Half};
use crate::ops::round::{Rounding, odd, to_f32};
use crate::types::Type;

/// Floating-point type of a conversion.
trait Float: Lane {
    fn wide(self) -> f64;
    /// Rounds a value that is exact or was rounded to odd.
    fn rounded(value: f64, rounding: Rounding) -> Self;
    /// Flushes subnormal numbers, of `f32` alone.
    fn flushed(self) -> Self {
        self
    }
}

impl Float for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn rounded(value: f64, rounding: Rounding) -> Self {
        canonical(to_f32(value, rounding))
    }
    fn flushed(self) -> Self {
        flush(self)
    }
}

impl Float for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn rounded(value: f64, _: Rounding) -> Self {
        value
    }
}

impl Float for F16 {
    fn wide(self) -> f64 {
        Half::to_f64(self)
    }
    fn rounded(value: f64, rounding: Rounding) -> Self {
        Half::round(value, rounding)
    }
}

impl Float for Bf16 {
    fn wide(self) -> f64 {
        Half::to_f64(self)
    }
    fn rounded(value: f64, rounding: Rounding) -> Self {
        Half::round(value, rounding)
    }
}

macro_rules! for_float {
    ($type:expr, $name:ident => $body:expr, $otherwise:expr) => {
        match $type {
            Type::F32 => {
                type $name = f32;
                $body
            }
            Type::F64 => {
                type $name = f64;
                $body
            }
            Type::F16 => {
                type $name = F16;
                $body
            }
            Type::Bf16 => {
                type $name = Bf16;
                $body
            }
            _ => $otherwise,
        }
    };
}

/// Modifiers of a conversion.
#[derive(Clone, Copy)]
struct Mode {
    rounding: Option<Rounding>,
    /// Rounding to a whole number.
    whole: Option<Rounding>,
    saturate: bool,
    ftz: bool,
    relu: bool,
}

impl Compiler<'_> {
    /// Compiles `cvt`.
    pub(super) fn convert(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        if form.take("tf32") {
            return self.convert_tf32(form);
        }
        let [to, from] = form.types()?;
        let mode = Mode {
            rounding: form.rounding(),
            whole: form.take_one(&["rni", "rzi", "rmi", "rpi"]).map(|name| match name {
                "rni" => Rounding::Nearest,
                "rzi" => Rounding::Zero,
                "rmi" => Rounding::Down,
                _ => Rounding::Up,
            }),
            saturate: form.take("sat"),
            ftz: form.take("ftz"),
            relu: form.take("relu"),
        };
        form.finish()?;
        if matches!(to, Type::F16x2 | Type::Bf16x2) {
            return self.convert_pair(form, to, from, mode);
        }
        let [d, a] = form.operands()?;
        let a = self.wide_source(a, from)?;
        let destination = self.wide_destination(d, to)?;
        let d = destination.register;
        let action = match (from.is_integer(), to.is_integer()) {
            (true, true) => integer_to_integer(d, a, to, from, mode),
            (true, false) => integer_to_float(d, a, to, from, mode),
            (false, true) => float_to_integer(d, a, to, from, mode),
            (false, false) => float_to_float(d, a, to, from, mode),
        };
        self.emit(action.ok_or_else(|| form.unknown())?);
        self.widen(&destination);
        Ok(())
    }

    /// Compiles the conversion to `tf32`: `f32` with a mantissa of 10 bits.
    fn convert_tf32(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let rounding = form.require(&["rna", "rn", "rz"])?;
        let relu = form.take("relu");
        let [d, a] = form.operands()?;
        if form.only_type()? != Type::F32 {
            return Err(form.unknown());
        }
        self.map1(d, a, move |a: f32| {
            let bits = if relu && a < 0.0 { 0 } else { canonical(a).to_bits() };
            let half = match rounding {
                // Ties away from zero.
                "rna" => 0x1000,
                "rn" => 0x0fff + (bits >> 13 & 1),
                _ => 0,
            };
            if a.is_finite() { (bits + half) & !0x1fff } else { bits }
        })
    }

    /// Compiles the conversion of two values to a pair of halves, of which the first is the upper
    /// one.
    fn convert_pair(&mut self, form: &Form<'_>, to: Type, from: Type, mode: Mode) -> Result<(), PtxError> {
        let [d, a, b] = form.operands()?;
        let (Type::F32, Some(rounding), None) = (from, mode.rounding, mode.whole) else { return Err(form.unknown()) };
        if mode.ftz || mode.saturate {
            return Err(form.unknown());
        }
        let relu = mode.relu;
        let read = move |value: f32| if relu && value < 0.0 { 0.0 } else { f64::from(value) };
        let round = if to == Type::F16x2 {
            |value, rounding| F16::round_bits(value, rounding)
        } else {
            |value, rounding| Bf16::round_bits(value, rounding)
        };
        self.map2(d, a, b, move |a: f32, b: f32| {
            u32::from(round(read(a), rounding)) << 16 | u32::from(round(read(b), rounding))
        })
    }
}

/// Bits of a rounded half.
trait RoundBits {
    fn round_bits(value: f64, rounding: Rounding) -> u16;
}

impl<H: Half> RoundBits for H {
    fn round_bits(value: f64, rounding: Rounding) -> u16 {
        H::round(value, rounding).bits()
    }
}

fn integer_to_integer(d: usize, a: usize, to: Type, from: Type, mode: Mode) -> Option<Action> {
    if mode.rounding.is_some() || mode.whole.is_some() || mode.ftz || mode.relu {
        return None;
    }
    for_any_integer!(from, S => for_any_integer!(to, D => Some(if mode.saturate {
        map1(d, a, |value: S| i128::from(value).clamp(i128::from(D::MIN), i128::from(D::MAX)) as D)
    } else {
        map1(d, a, |value: S| value as D)
    }), None), None)
}

fn integer_to_float(d: usize, a: usize, to: Type, from: Type, mode: Mode) -> Option<Action> {
    let rounding = mode.rounding?;
    if mode.whole.is_some() || mode.ftz || mode.relu {
        return None;
    }
    let sat = mode.saturate;
    if rounding == Rounding::Nearest && !sat {
        match to {
            Type::F32 => return for_any_integer!(from, S => Some(map1(d, a, |value: S| value as f32)), None),
            Type::F64 => return for_any_integer!(from, S => Some(map1(d, a, |value: S| value as f64)), None),
            _ => {}
        }
    }
    for_any_integer!(from, S => match to {
        Type::F64 => Some(map1(d, a, move |value: S| {
            let nearest = value as f64;
            let exact = crate::ops::round::to_f64(nearest, integer_rest(i128::from(value), nearest), rounding, false);
            if sat { saturate_f64(exact) } else { exact }
        })),
        _ => for_float!(to, D => Some(map1(d, a, move |value: S| {
            let nearest = value as f64;
            let exact = odd(nearest, integer_rest(i128::from(value), nearest));
            D::rounded(if sat { saturate_f64(exact) } else { exact }, rounding)
        })), None),
    }, None)
}

/// What rounding lost of an integer.
fn integer_rest(value: i128, rounded: f64) -> f64 {
    (value - rounded as i128) as f64
}

fn round_whole(value: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    }
}

fn float_to_integer(d: usize, a: usize, to: Type, from: Type, mode: Mode) -> Option<Action> {
    let whole = mode.whole?;
    if mode.rounding.is_some() || mode.relu || mode.ftz && from != Type::F32 {
        return None;
    }
    let ftz = mode.ftz;
    let truncates = whole == Rounding::Zero && from == Type::F32;
    match to {
        Type::S32 if truncates => return Some(map1(d, a, |value: f32| value as i32)),
        Type::U32 if truncates => return Some(map1(d, a, |value: f32| value as u32)),
        _ => {}
    }
    for_float!(from, S => for_any_integer!(to, D => {
        let not_a_number = if from == Type::F64 || D::BITS == 64 { (1u64 << (D::BITS - 1)) as D } else { 0 };
        Some(map1(d, a, move |value: S| {
            let value = if ftz { value.flushed() } else { value }.wide();
            if value.is_nan() { not_a_number } else { round_whole(value, whole) as D }
        }))
    }, None), None)
}

fn float_to_float(d: usize, a: usize, to: Type, from: Type, mode: Mode) -> Option<Action> {
    // A mode is needed where, and only where, the result may be inexact.
    let narrows = matches!(
        (from, to),
        (Type::F64 | Type::F32, Type::F16 | Type::Bf16)
            | (Type::F64, Type::F32)
            | (Type::F16, Type::Bf16)
            | (Type::Bf16, Type::F16)
    );
    if narrows != mode.rounding.is_some()
        || mode.whole.is_some() && from != to
        || mode.ftz && from != Type::F32 && to != Type::F32
    {
        return None;
    }
    let rounding = mode.rounding.unwrap_or(Rounding::Nearest);
    match (from, to) {
        (Type::F32, Type::F64) if !mode.ftz && !mode.saturate => {
            return Some(map1(d, a, |value: f32| f64::from(value)));
        }
        (Type::F64, Type::F32) if rounding == Rounding::Nearest && !mode.ftz && !mode.saturate => {
            return Some(map1(d, a, |value: f64| canonical(value as f32)));
        }
        (Type::F32, Type::F32) => {
            return Some(map1(d, a, move |value: f32| {
                let value = if mode.ftz { flush(value) } else { value };
                let value = mode.whole.map_or(value, |whole| round_whole(f64::from(value), whole) as f32);
                if mode.saturate { saturate(value) } else { canonical(value) }
            }));
        }
        _ => {}
    }
    for_float!(from, S => for_float!(to, D => Some(map1(d, a, move |value: S| {
        let value = if mode.ftz { value.flushed() } else { value }.wide();
        let value = mode.whole.map_or(value, |whole| round_whole(value, whole));
        let value = if mode.saturate { saturate_f64(value) } else { value };
        let value = if mode.relu && value <= 0.0 { 0.0 } else { value };
        let result = D::rounded(value, rounding);
        if mode.ftz { result.flushed() } else { result }
    })), None), None)
}
