//! Arithmetic of halves, against a search of all halves.

use crate::{check, float};

/// Value of an `f16`.
pub(crate) fn half(bits: u64) -> f64 {
    let (exponent, mantissa) = ((bits >> 10 & 31) as i32, (bits & 1023) as f64);
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + mantissa / 1024.0) * 2f64.powi(exponent - 15),
    };
    if bits & 0x8000 != 0 { -magnitude } else { magnitude }
}

/// Nearest `f16` of an exact value: by bisection of the finite ones.
pub(crate) fn nearest_half(value: f64) -> u64 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if value.is_nan() {
        return 0x7fff;
    }
    if magnitude >= 65_520.0 {
        return sign | 0x7c00;
    }
    let lower = (0..0x7c00u64).collect::<Vec<_>>().partition_point(|&bits| half(bits) <= magnitude) as u64 - 1;
    let (below, above) = (half(lower), if lower + 1 == 0x7c00 { 65_536.0 } else { half(lower + 1) });
    let up = magnitude - below > above - magnitude || (magnitude - below == above - magnitude && lower & 1 != 0);
    sign | if up { lower + 1 } else { lower }
}

#[test]
fn halves() {
    check(&[
        float("add.f16 %d16, %a16, %b16;", 16, |[a, b, _]| nearest_half(half(a) + half(b))),
        float("sub.f16 %d16, %a16, %b16;", 16, |[a, b, _]| nearest_half(half(a) - half(b))),
        float("mul.f16 %d16, %a16, %b16;", 16, |[a, b, _]| nearest_half(half(a) * half(b))),
        float("fma.rn.f16 %d16, %a16, %b16, %c16;", 16, |[a, b, c]| nearest_half(half(a).mul_add(half(b), half(c)))),
        float("neg.f16 %d16, %a16;", 16, |[a, ..]| a ^ 0x8000),
        float("abs.f16 %d16, %a16;", 16, |[a, ..]| a & 0x7fff),
        float("mul.bf16 %d16, %a16, %b16;", 16, |[a, b, _]| {
            let brain = |bits: u64| f32::from_bits((bits as u32) << 16);
            // The product of two brain floats is exact in f32, unless it is subnormal.
            let product = brain(a) * brain(b);
            let bits = u64::from(product.to_bits());
            match product {
                _ if product.is_nan() => 0x7fff,
                _ if product.abs() < 1e-37 => nearest_brain(f64::from(brain(a)) * f64::from(brain(b))),
                _ => (bits + 0x7fff + (bits >> 16 & 1)) >> 16,
            }
        }),
    ]);
}

/// Nearest `bf16` of a small value: a multiple of its least subnormal number.
fn nearest_brain(value: f64) -> u64 {
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let exponent = value.abs().log2().floor().max(-126.0) as i32;
    let units = (value.abs() * 2f64.powi(7 - exponent)).round_ties_even() as u64;
    sign | (((exponent + 126) as u64) << 7) + units
}
