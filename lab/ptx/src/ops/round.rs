//! Rounding of exact results.
//!
//! A result is computed in `f64`, and the sign of what its rounding lost is known. [`odd`] puts
//! that into its last bit ("round to odd"), after which rounding it to a format of at most 50 bits
//! gives what rounding of the exact result gives.

/// Rounding mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rn`: to the nearest, ties to even.
    Nearest,
    /// `.rz`: towards zero.
    Zero,
    /// `.rm`: towards negative infinity.
    Down,
    /// `.rp`: towards positive infinity.
    Up,
}

/// Rounds to odd: `value` is the nearest to `value + rest`, of which the sign of `rest` counts.
#[inline]
pub(crate) fn odd(value: f64, rest: f64) -> f64 {
    let bits = value.to_bits();
    // Towards positive infinity the bits grow, unless the value is negative. NaN gives 0.
    let step = i64::from(rest > 0.0) - i64::from(rest < 0.0);
    let step = if value < 0.0 { -step } else { step };
    let even = (bits & 1 ^ 1).wrapping_neg();
    f64::from_bits(bits.wrapping_add(step.cast_unsigned() & even))
}

/// What rounding lost of a sum (two-sum of Knuth).
#[inline]
pub(crate) fn sum_rest(a: f64, b: f64, sum: f64) -> f64 {
    let virtual_b = sum - a;
    let virtual_a = sum - virtual_b;
    (a - virtual_a) + (b - virtual_b)
}

/// `a * b + c` rounded to odd; the product of two `f32` or narrower values is exact.
#[inline]
pub(crate) fn fma_odd(a: f64, b: f64, c: f64) -> f64 {
    let product = a * b;
    let sum = product + c;
    odd(sum, sum_rest(product, c, sum))
}

/// `a + b` rounded to odd.
#[inline]
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    odd(sum, sum_rest(a, b, sum))
}

/// `a / b` rounded to odd, of `f32` values.
pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let quotient = a / b;
    let rest = (-quotient).mul_add(b, a);
    odd(quotient, if b < 0.0 { -rest } else { rest })
}

/// Square root rounded to odd, of an `f32` value.
pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let root = a.sqrt();
    odd(root, (-root).mul_add(root, a))
}

/// Rounds a value that was rounded to odd.
#[inline]
pub(crate) fn to_f32(value: f64, rounding: Rounding) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    match rounding {
        Rounding::Zero if back.abs() > value.abs() && value > 0.0 => nearest.next_down(),
        Rounding::Zero if back.abs() > value.abs() => nearest.next_up(),
        Rounding::Down if back > value => nearest.next_down(),
        Rounding::Up if back < value => nearest.next_up(),
        _ => nearest,
    }
}

/// Rounds a value that is the nearest to `value + rest`. `finite`: the operands are, so that an
/// infinite value is an overflow.
pub(crate) fn to_f64(value: f64, rest: f64, rounding: Rounding, finite: bool) -> f64 {
    let rest = if value.is_infinite() && finite { -value } else { rest };
    match rounding {
        Rounding::Zero if value > 0.0 && rest < 0.0 => value.next_down(),
        Rounding::Zero if value < 0.0 && rest > 0.0 => value.next_up(),
        Rounding::Down if rest < 0.0 => value.next_down(),
        Rounding::Up if rest > 0.0 => value.next_up(),
        _ => value,
    }
}

/// Sum of zeros or of opposites: `.rm` gives -0 where the other modes give +0.
pub(crate) fn zero_sum(sum: f32, a: f32, b: f32, rounding: Rounding) -> f32 {
    if rounding == Rounding::Down && sum == 0.0 && (a.is_sign_negative() || b.is_sign_negative()) { -0.0 } else { sum }
}
