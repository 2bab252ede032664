//! Arithmetic of `f16`, `bf16` and pairs of them, against a search of all their values.

use std::cmp::Ordering;

use super::{Form, check, float};

/// Format of 16 bits.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    Half,
    Brain,
}

impl Format {
    fn mantissa_bits(self) -> u32 {
        match self {
            Self::Half => 10,
            Self::Brain => 7,
        }
    }

    fn infinity(self) -> u64 {
        0x7fff >> self.mantissa_bits() << self.mantissa_bits()
    }

    /// Value of the bits.
    pub(crate) fn value(self, bits: u64) -> f64 {
        let least = match self {
            Self::Half => -14,
            Self::Brain => -126,
        };
        let ones = 1u64 << self.mantissa_bits();
        let (exponent, mantissa) = ((bits & 0x7fff) / ones, (bits & (ones - 1)) as f64 / ones as f64);
        let magnitude = match bits & 0x7fff {
            magnitude if magnitude == self.infinity() => f64::INFINITY,
            magnitude if magnitude > self.infinity() => f64::NAN,
            magnitude if magnitude < ones => mantissa * 2f64.powi(least),
            _ => (1.0 + mantissa) * 2f64.powi(exponent as i32 - 1 + least),
        };
        if bits & 0x8000 != 0 { -magnitude } else { magnitude }
    }

    /// Nearest of the exact value `value + rest`, by bisection of the finite ones.
    fn nearest(self, value: f64, rest: f64) -> u64 {
        if value.is_nan() {
            return 0x7fff;
        }
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let (magnitude, rest) = (value.abs(), if sign == 0 { rest } else { -rest });
        if magnitude.is_infinite() {
            return sign | self.infinity();
        }
        let (mut lower, mut upper) = (0, self.infinity());
        while upper - lower > 1 {
            let middle = u64::midpoint(lower, upper);
            if self.value(middle) <= magnitude { lower = middle } else { upper = middle }
        }
        let (below, next) = (self.value(lower), lower + 1);
        // Beyond the largest one, as if the format went on.
        let above = if next == self.infinity() { 2.0 * below - self.value(lower - 1) } else { self.value(next) };
        let halfway = below / 2.0 + above / 2.0;
        let up = match magnitude.partial_cmp(&halfway) {
            Some(Ordering::Equal) if rest == 0.0 => lower & 1 != 0,
            Some(Ordering::Equal) => rest > 0.0,
            order => order == Some(Ordering::Greater),
        };
        sign | if up { next } else { lower }
    }
}

/// Sum of two `f64`, and what its rounding lost.
fn with_rest(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let virtual_b = sum - a;
    (sum, (a - (sum - virtual_b)) + (b - virtual_b))
}

pub(crate) fn sum(format: Format, a: u64, b: u64) -> u64 {
    let (sum, rest) = with_rest(format.value(a & 0xffff), format.value(b & 0xffff));
    format.nearest(sum, rest)
}

fn product(format: Format, a: u64, b: u64) -> u64 {
    format.nearest(format.value(a & 0xffff) * format.value(b & 0xffff), 0.0)
}

fn fused(format: Format, a: u64, b: u64, c: u64) -> u64 {
    let product = format.value(a & 0xffff) * format.value(b & 0xffff);
    let (sum, rest) = with_rest(product, format.value(c & 0xffff));
    format.nearest(sum, rest)
}

fn lesser(format: Format, a: u64, b: u64) -> u64 {
    let (a, b) = (a & 0xffff, b & 0xffff);
    match (format.value(a), format.value(b)) {
        (x, y) if x.is_nan() && y.is_nan() => 0x7fff,
        (x, _) if x.is_nan() => b,
        (_, y) if y.is_nan() => a,
        (x, y) if x == y => a | b,
        (x, y) => {
            if x < y {
                a
            } else {
                b
            }
        }
    }
}

fn greater(format: Format, a: u64, b: u64) -> u64 {
    let least = lesser(format, a ^ 0x8000, b ^ 0x8000);
    if least == 0x7fff { least } else { least ^ 0x8000 }
}

/// Value of an `f16`.
pub(crate) fn half(bits: u64) -> f64 {
    Format::Half.value(bits & 0xffff)
}

/// Nearest `f16` of an exact value.
pub(crate) fn nearest_half(value: f64) -> u64 {
    Format::Half.nearest(value, 0.0)
}

/// Applies a function to the upper and to the lower halves.
fn pair(operands: [u64; 3], function: impl Fn([u64; 3]) -> u64) -> u64 {
    function(operands.map(|word| word >> 16 & 0xffff)) << 16 | function(operands.map(|word| word & 0xffff))
}

fn relu(format: Format, bits: u64) -> u64 {
    if format.value(bits) < 0.0 || bits == 0x8000 { 0 } else { bits }
}

macro_rules! forms {
    ($format:expr, $name:literal, $pair:literal) => {
        [
            float(concat!("add.", $name, " %d16, %a16, %b16;"), 16, |[a, b, _]| sum($format, a, b)),
            float(concat!("sub.", $name, " %d16, %a16, %b16;"), 16, |[a, b, _]| sum($format, a, b ^ 0x8000)),
            float(concat!("mul.", $name, " %d16, %a16, %b16;"), 16, |[a, b, _]| product($format, a, b)),
            float(concat!("fma.rn.", $name, " %d16, %a16, %b16, %c16;"), 16, |[a, b, c]| fused($format, a, b, c)),
            float(concat!("fma.rn.relu.", $name, " %d16, %a16, %b16, %c16;"), 16, |[a, b, c]| {
                match fused($format, a, b, c) {
                    nan if $format.value(nan).is_nan() => 0x7fff,
                    number => relu($format, number),
                }
            }),
            float(concat!("neg.", $name, " %d16, %a16;"), 16, |[a, ..]| a ^ 0x8000),
            float(concat!("abs.", $name, " %d16, %a16;"), 16, |[a, ..]| a & 0x7fff),
            float(concat!("min.", $name, " %d16, %a16, %b16;"), 16, |[a, b, _]| lesser($format, a, b)),
            float(concat!("max.", $name, " %d16, %a16, %b16;"), 16, |[a, b, _]| greater($format, a, b)),
            pairs(concat!("add.", $pair, " %d32, %a32, %b32;"), |all| pair(all, |[a, b, _]| sum($format, a, b))),
            pairs(concat!("sub.", $pair, " %d32, %a32, %b32;"), |all| {
                pair(all, |[a, b, _]| sum($format, a, b ^ 0x8000))
            }),
            pairs(concat!("mul.", $pair, " %d32, %a32, %b32;"), |all| pair(all, |[a, b, _]| product($format, a, b))),
            pairs(concat!("fma.rn.", $pair, " %d32, %a32, %b32, %c32;"), |all| {
                pair(all, |[a, b, c]| fused($format, a, b, c))
            }),
            pairs(concat!("min.", $pair, " %d32, %a32, %b32;"), |all| pair(all, |[a, b, _]| lesser($format, a, b))),
            pairs(concat!("max.", $pair, " %d32, %a32, %b32;"), |all| pair(all, |[a, b, _]| greater($format, a, b))),
            super::form(concat!("neg.", $pair, " %d32, %a32;"), 32, |[a, ..]| a ^ 0x8000_8000),
            super::form(concat!("abs.", $pair, " %d32, %a32;"), 32, |[a, ..]| a & 0x7fff_7fff),
        ]
    };
}

/// Pairs: NaN is canonical, but for its sign.
fn pairs(text: &'static str, reference: fn([u64; 3]) -> u64) -> Form {
    super::form(text, 32, reference)
}

#[test]
fn halves() {
    check(&forms!(Format::Half, "f16", "f16x2"));
}

#[test]
fn brain_floats() {
    check(&forms!(Format::Brain, "bf16", "bf16x2"));
}
