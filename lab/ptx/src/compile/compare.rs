//! Comparisons and selections.

#![expect(
    clippy::neg_cmp_op_on_partial_ord,
    clippy::double_comparisons,
    reason = "unordered comparisons are what is meant"
)]

use super::Compiler;
use super::bits::boolean;
use super::form::Form;
use super::lanes::{Pure, test1, test2};
use super::types::{for_bits, for_integer};
use crate::PtxError;
use crate::ast::Operand;
use crate::machine::LANES;
use crate::machine::program::Action;
use crate::machine::state::{Lane, State};
use crate::ops::float::flush;
use crate::ops::half::{Bf16, F16, Half};
use crate::types::Type;

/// Comparison of two registers: mask of the lanes for which it is true.
type Test = Box<dyn Fn(&State) -> u32 + Send + Sync>;

const COMPARISONS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

/// Comparison of floats of type `$float`, which `$read` makes of lanes.
macro_rules! float_test {
    ($lane:ty, $comparison:expr, $a:expr, $b:expr, $read:expr) => {
        Some(match $comparison {
            "eq" => float_pair::<$lane, _>($a, $b, $read, |a, b| a == b),
            "ne" => float_pair::<$lane, _>($a, $b, $read, |a, b| a < b || a > b),
            "lt" => float_pair::<$lane, _>($a, $b, $read, |a, b| a < b),
            "le" => float_pair::<$lane, _>($a, $b, $read, |a, b| a <= b),
            "gt" => float_pair::<$lane, _>($a, $b, $read, |a, b| a > b),
            "ge" => float_pair::<$lane, _>($a, $b, $read, |a, b| a >= b),
            "equ" => float_pair::<$lane, _>($a, $b, $read, |a, b| !(a < b || a > b)),
            "neu" => float_pair::<$lane, _>($a, $b, $read, |a, b| a != b),
            "ltu" => float_pair::<$lane, _>($a, $b, $read, |a, b| !(a >= b)),
            "leu" => float_pair::<$lane, _>($a, $b, $read, |a, b| !(a > b)),
            "gtu" => float_pair::<$lane, _>($a, $b, $read, |a, b| !(a <= b)),
            "geu" => float_pair::<$lane, _>($a, $b, $read, |a, b| !(a < b)),
            "num" => float_pair::<$lane, _>($a, $b, $read, |a, b| a == a && b == b),
            "nan" => float_pair::<$lane, _>($a, $b, $read, |a, b| a != a || b != b),
            _ => return None,
        })
    };
}

fn float_pair<A: Lane, F>(
    a: usize,
    b: usize,
    read: impl Fn(A) -> F + Pure,
    compare: impl Fn(F, F) -> bool + Pure,
) -> Test {
    Box::new(test2(a, b, move |a: A, b: A| compare(read(a), read(b))))
}

fn single_test(comparison: &str, a: usize, b: usize, ftz: bool) -> Option<Test> {
    if ftz { float_test!(f32, comparison, a, b, flush) } else { float_test!(f32, comparison, a, b, |a| a) }
}

fn double_test(comparison: &str, a: usize, b: usize) -> Option<Test> {
    float_test!(f64, comparison, a, b, |a| a)
}

fn half_test<H: Half + Lane>(comparison: &str, a: usize, b: usize, ftz: bool) -> Option<Test> {
    float_test!(H, comparison, a, b, move |a: H| flushed(a, ftz))
}

/// Comparison of the upper halves of pairs.
fn upper_test(of: Type, comparison: &str, a: usize, b: usize, ftz: bool) -> Option<Test> {
    let upper = |a: u32| (a >> 16) as u16;
    if of == Type::F16x2 {
        float_test!(u32, comparison, a, b, move |a: u32| flushed(F16::from_bits(upper(a)), ftz))
    } else {
        float_test!(u32, comparison, a, b, move |a: u32| flushed(Bf16::from_bits(upper(a)), ftz))
    }
}

/// Value of a half, a subnormal `f16` as zero where it is to be flushed.
fn flushed<H: Half>(half: H, ftz: bool) -> f32 {
    if ftz && half.bits() & 0x7c00 == 0 { 0.0 } else { half.to_f32() }
}

fn integer_test(of: Type, comparison: &str, a: usize, b: usize) -> Option<Test> {
    // `lo`, `ls`, `hi`, `hs` are for unsigned integers.
    let comparison = match comparison {
        "lo" | "ls" | "hi" | "hs" if of.is_signed() => return None,
        "lo" => "lt",
        "ls" => "le",
        "hi" => "gt",
        "hs" => "ge",
        other => other,
    };
    for_integer!(of, T => Some(match comparison {
        "eq" => Box::new(test2(a, b, |a: T, b: T| a == b)),
        "ne" => Box::new(test2(a, b, |a: T, b: T| a != b)),
        "lt" => Box::new(test2(a, b, |a: T, b: T| a < b)),
        "le" => Box::new(test2(a, b, |a: T, b: T| a <= b)),
        "gt" => Box::new(test2(a, b, |a: T, b: T| a > b)),
        "ge" => Box::new(test2(a, b, |a: T, b: T| a >= b)),
        _ => return None,
    }), None)
}

impl Compiler<'_> {
    fn test(
        &mut self,
        form: &Form<'_>,
        of: Type,
        comparison: &str,
        ftz: bool,
        a: &Operand,
        b: &Operand,
    ) -> Result<Test, PtxError> {
        let (a, b) = (self.source(a, of)?, self.source(b, of)?);
        let test = match of {
            Type::F32 => single_test(comparison, a, b, ftz),
            Type::F64 => double_test(comparison, a, b),
            Type::F16 | Type::F16x2 => half_test::<F16>(comparison, a, b, ftz),
            Type::Bf16 | Type::Bf16x2 if !ftz => half_test::<Bf16>(comparison, a, b, false),
            Type::Bf16 | Type::Bf16x2 => None,
            _ => integer_test(of, comparison, a, b),
        };
        test.ok_or_else(|| form.unknown())
    }

    /// Compiles `setp`.
    pub(super) fn set_predicate(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let comparison = form.require(&COMPARISONS)?;
        let ftz = form.take("ftz");
        let combine = form.take_one(&["and", "or", "xor"]).and_then(boolean);
        form.finish()?;
        let (d, a, b, c) = match (form.operands, combine) {
            ([d, a, b], None) => (d, a, b, (0, false)),
            ([d, a, b, c], Some(_)) => (d, a, b, self.predicate(c)?),
            _ => return Err(form.error("number of operands")),
        };
        let test = self.test(form, of, comparison, ftz, a, b)?;
        let combine = combine.unwrap_or(|a, _| a);
        let (p, q) = match d {
            Operand::Pair(p, q) => (self.predicate_destination(p)?, Some(self.predicate_destination(q)?)),
            d => (self.predicate_destination(d)?, None),
        };
        let upper = match (of, q) {
            (Type::F16x2 | Type::Bf16x2, Some(_)) => {
                let (a, b) = (self.source(a, of)?, self.source(b, of)?);
                Some(upper_test(of, comparison, a, b, ftz).ok_or_else(|| form.unknown())?)
            }
            (Type::F16x2 | Type::Bf16x2, None) => return Err(form.unknown()),
            _ => None,
        };
        self.emit(match (q, upper) {
            (None, _) if c == (0, false) => Action::Compute(Box::new(move |state, mask| {
                let truth = test(state);
                state.set_predicate(p, truth, mask);
            })),
            (q, upper) => Action::Compute(Box::new(move |state, mask| {
                let truth = test(state);
                let second = upper.as_ref().map_or(!truth, |upper| upper(state));
                let other = state.predicate(c);
                state.set_predicate(p, combine(truth, other), mask);
                if let Some(q) = q {
                    state.set_predicate(q, combine(second, other), mask);
                }
            })),
        });
        Ok(())
    }

    /// Compiles `set`.
    pub(super) fn set(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [to, of] = form.types()?;
        let comparison = form.require(&COMPARISONS)?;
        let ftz = form.take("ftz");
        let combine = form.take_one(&["and", "or", "xor"]).and_then(boolean);
        form.finish()?;
        let (d, a, b, c) = match (form.operands, combine) {
            ([d, a, b], None) => (d, a, b, (0, false)),
            ([d, a, b, c], Some(_)) => (d, a, b, self.predicate(c)?),
            _ => return Err(form.error("number of operands")),
        };
        let pair = matches!(of, Type::F16x2 | Type::Bf16x2);
        // Of the lower and of the upper halves of pairs.
        let truths: [u32; 2] = match to {
            Type::U32 | Type::S32 if pair => [0xffff, 0xffff_0000],
            Type::F16x2 if of == to => [0x3c00, 0x3c00_0000],
            Type::Bf16x2 if of == to => [0x3f80, 0x3f80_0000],
            _ if pair => return Err(form.unknown()),
            Type::U32 | Type::S32 => [u32::MAX, 0],
            Type::F32 => [1.0f32.to_bits(), 0],
            Type::U16 | Type::S16 => [0xffff, 0],
            Type::F16 => [0x3c00, 0],
            Type::Bf16 => [0x3f80, 0],
            _ => return Err(form.unknown()),
        };
        let test = self.test(form, of, comparison, ftz, a, b)?;
        let upper = if pair {
            let (a, b) = (self.source(a, of)?, self.source(b, of)?);
            upper_test(of, comparison, a, b, ftz).ok_or_else(|| form.unknown())?
        } else {
            Box::new(|_: &State| 0)
        };
        let combine = combine.unwrap_or(|a, _| a);
        let d = self.destination(d, to)?;
        self.emit(Action::Compute(Box::new(move |state, mask| {
            let other = state.predicate(c);
            let results = [combine(test(state), other), combine(upper(state), other)];
            for lane in crate::machine::lanes(mask) {
                let value = results.iter().zip(truths).filter(|(result, _)| **result >> lane & 1 != 0);
                let value = value.fold(0, |value, (_, truth)| value | truth);
                state.set_lane(to, d, lane, u64::from(value));
            }
        })));
        Ok(())
    }

    /// Compiles `selp`.
    pub(super) fn select(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let [d, a, b, c] = form.operands()?;
        let (a, b) = (self.source(a, of)?, self.source(b, of)?);
        let c = self.predicate(c)?;
        let d = self.destination(d, of)?;
        let action = for_bits!(of, T => select::<T>(d, a, b, c), return Err(form.unknown()));
        self.emit(action);
        Ok(())
    }

    /// Compiles `slct`.
    pub(super) fn select_by_sign(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let [of, by] = form.types()?;
        let ftz = form.take("ftz");
        let [d, a, b, c] = form.operands()?;
        for_bits!(of, T => match by {
            Type::S32 => self.map3(d, a, b, c, |a: T, b: T, c: i32| if c >= 0 { a } else { b }),
            // A subnormal below zero counts as -0 with `.ftz`.
            Type::F32 if ftz => self.map3(d, a, b, c, |a: T, b: T, c: f32| if flush(c) >= 0.0 { a } else { b }),
            Type::F32 => self.map3(d, a, b, c, |a: T, b: T, c: f32| if c >= 0.0 { a } else { b }),
            _ => Err(form.unknown()),
        }, Err(form.unknown()))
    }

    /// Compiles `testp`.
    pub(super) fn test_property(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        let of = form.only_type()?;
        let property = form.require(&["finite", "infinite", "notanumber", "number", "normal", "subnormal"])?;
        let [p, a] = form.operands()?;
        let a = self.source(a, of)?;
        let p = self.predicate_destination(p)?;
        macro_rules! test {
            ($float:ty) => {
                match property {
                    "finite" => Box::new(test1(a, |a: $float| a.is_finite())) as Test,
                    "infinite" => Box::new(test1(a, |a: $float| a.is_infinite())),
                    "notanumber" => Box::new(test1(a, |a: $float| a.is_nan())),
                    "number" => Box::new(test1(a, |a: $float| !a.is_nan())),
                    "normal" => Box::new(test1(a, |a: $float| a.is_normal())),
                    _ => Box::new(test1(a, |a: $float| a.is_subnormal())),
                }
            };
        }
        let test = match of {
            Type::F32 => test!(f32),
            Type::F64 => test!(f64),
            _ => return Err(form.unknown()),
        };
        self.emit(Action::Compute(Box::new(move |state, mask| {
            let truth = test(state);
            state.set_predicate(p, truth, mask);
        })));
        Ok(())
    }
}

fn select<T: Lane>(d: usize, a: usize, b: usize, c: (usize, bool)) -> Action {
    use crate::machine::state::{Word, put};
    Action::Compute(Box::new(move |state, mask| {
        let choice = state.predicate(c);
        let file = T::Word::file(state);
        let (Some(a), Some(b)) = (file.get(a), file.get(b)) else { return };
        let mut result = *b;
        for ((lane, result), a) in (0..LANES).zip(&mut result).zip(a) {
            *result = if choice >> lane & 1 != 0 { *a } else { *result };
        }
        if let Some(d) = T::Word::file_mut(state).get_mut(d) {
            put(d, &result, mask);
        }
    }))
}
