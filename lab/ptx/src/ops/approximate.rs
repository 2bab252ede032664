//! Approximations of transcendental functions, of IEEE additions, multiplications, divisions and
//! square roots alone: the results are the same on every host.
//!
//! They are computed in `f64`, to about 2^-32, and rounded to `f32`.

use std::f64::consts::{FRAC_2_PI, LN_2, LOG2_E, SQRT_2};

/// Adding and subtracting it rounds to a whole number.
const WHOLE: f64 = 6_755_399_441_055_744.0;

/// Evaluates a polynomial, highest coefficient first.
#[inline]
fn polynomial<const N: usize>(x: f64, coefficients: [f64; N]) -> f64 {
    coefficients.iter().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// 2 to the power of `x`, which is clamped to what `f64` holds.
#[inline]
fn power_of_two(x: f64) -> f64 {
    let x = if x < -1000.0 { -1000.0 } else { x };
    let x = if x > 1000.0 { 1000.0 } else { x };
    let shifted = x + WHOLE;
    let whole = shifted - WHOLE;
    let rest = (x - whole) * LN_2;
    let series = polynomial(
        rest,
        [
            1.0 / 39_916_800.0,
            1.0 / 3_628_800.0,
            1.0 / 362_880.0,
            1.0 / 40_320.0,
            1.0 / 5_040.0,
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0,
        ],
    );
    // The lowest bits of `shifted` are the whole number.
    f64::from_bits(series.to_bits().wrapping_add(shifted.to_bits() << 52))
}

/// `ex2.approx`
#[inline]
pub(crate) fn exponential(x: f32) -> f32 {
    power_of_two(f64::from(x)) as f32
}

/// `lg2.approx`
#[inline]
pub(crate) fn logarithm(x: f32) -> f32 {
    let wide = f64::from(x);
    let bits = wide.to_bits();
    let exponent = ((bits >> 52) as i64 - 1023) as f64;
    let mantissa = f64::from_bits(bits & 0x000f_ffff_ffff_ffff | 0x3ff0_0000_0000_0000);
    let high = mantissa > SQRT_2;
    let (mantissa, exponent) = if high { (mantissa * 0.5, exponent + 1.0) } else { (mantissa, exponent) };
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let series = polynomial(s * s, [1.0 / 15.0, 1.0 / 13.0, 1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 0.2, 1.0 / 3.0, 1.0]);
    let result = (exponent + 2.0 * LOG2_E * s * series) as f32;
    if x > 0.0 && x < f32::INFINITY {
        result
    } else if x == 0.0 {
        f32::NEG_INFINITY
    } else if x > 0.0 {
        x
    } else {
        super::float::NAN
    }
}

/// Quadrant and rest of an angle: `x = quadrant · π/2 + rest`.
#[inline]
fn reduce(x: f32) -> (u64, f64) {
    /// π/2 in three parts, of which the first two have 33 bits.
    const PARTS: [f64; 3] = [1.570_796_326_734_125_6, 6.077_100_506_303_966e-11, 2.022_266_248_795_950_6e-21];
    let x = f64::from(x);
    // Beyond, the hardware's error has no bound either.
    let x = if x.abs() > 1_048_576.0 { x % std::f64::consts::TAU } else { x };
    let shifted = x * FRAC_2_PI + WHOLE;
    let whole = shifted - WHOLE;
    (shifted.to_bits(), ((x - whole * PARTS[0]) - whole * PARTS[1]) - whole * PARTS[2])
}

#[inline]
fn circular(quadrant: u64, rest: f64) -> f32 {
    let square = rest * rest;
    let sine =
        rest * polynomial(square, [-1.0 / 39_916_800.0, 1.0 / 362_880.0, -1.0 / 5_040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0]);
    let cosine = polynomial(
        square,
        [1.0 / 479_001_600.0, -1.0 / 3_628_800.0, 1.0 / 40_320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0],
    );
    let magnitude = if quadrant & 1 == 0 { sine } else { cosine };
    (if quadrant & 2 == 0 { magnitude } else { -magnitude }) as f32
}

/// `sin.approx`
#[inline]
pub(crate) fn sine(x: f32) -> f32 {
    let (quadrant, rest) = reduce(x);
    if x == 0.0 { x } else { circular(quadrant, rest) }
}

/// `cos.approx`
#[inline]
pub(crate) fn cosine(x: f32) -> f32 {
    let (quadrant, rest) = reduce(x);
    circular(quadrant.wrapping_add(1), rest)
}

/// `tanh.approx`
#[inline]
pub(crate) fn hyperbolic_tangent(x: f32) -> f32 {
    let wide = f64::from(x);
    let square = wide * wide;
    let small = wide * polynomial(square, [-17.0 / 315.0, 2.0 / 15.0, -1.0 / 3.0, 1.0]);
    let power = power_of_two(if wide.abs() > 20.0 { 20.0f64.copysign(wide) } else { wide } * 2.0 * LOG2_E);
    let large = (power - 1.0) / (power + 1.0);
    if x.is_nan() { super::float::NAN } else { (if wide.abs() < 0.02 { small } else { large }) as f32 }
}

/// `rsqrt.approx`
#[inline]
pub(crate) fn reciprocal_root(x: f32) -> f32 {
    (1.0 / f64::from(x).sqrt()) as f32
}

/// `div.approx`: by divisors beyond 2^126 it gives zero, as the ISA says.
#[inline]
pub(crate) fn divide(a: f32, b: f32) -> f32 {
    let large = b.abs() > f32::from_bits(0x7e80_0000) && b.abs() < f32::INFINITY;
    if large { a * 0.0f32.copysign(b) } else { a / b }
}

/// Upper 32 bits of a value, as the approximations of `f64` take and give it; subnormal numbers are
/// flushed.
pub(crate) fn coarse(x: f64) -> f64 {
    let bits = x.to_bits();
    if bits & 0x7ff0_0000_0000_0000 == 0 {
        f64::from_bits(bits & 1 << 63)
    } else if x.is_nan() {
        x
    } else {
        f64::from_bits(bits & 0xffff_ffff_0000_0000)
    }
}
