//! Arithmetic of `f32` and `f64`.

use super::{Form, check, float, form};

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn double(bits: u64) -> f64 {
    f64::from_bits(bits)
}

fn bits(value: f32) -> u64 {
    u64::from(value.to_bits())
}

fn flush(value: f32) -> f32 {
    if value.is_subnormal() { 0.0f32.copysign(value) } else { value }
}

fn clamp(value: f32) -> f32 {
    if value.is_nan() || value <= 0.0 { 0.0 } else { value.min(1.0) }
}

/// Rounds towards zero what lies between two neighbours: `nearest` is the nearest to the exact
/// value.
fn towards_zero(nearest: f32, exact: f64) -> f32 {
    if f64::from(nearest).abs() > exact.abs() { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

const SINGLE: &[Form] = &[
    float("add.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(single(a) + single(b))),
    float("add.rn.ftz.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(flush(flush(single(a)) + flush(single(b))))),
    float("sub.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(single(a) - single(b))),
    float("mul.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(single(a) * single(b))),
    float("mul.sat.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(clamp(single(a) * single(b)))),
    float("mul.rz.f32 %d32, %a32, %b32;", 32, |[a, b, _]| {
        bits(towards_zero(single(a) * single(b), f64::from(single(a)) * f64::from(single(b))))
    }),
    float("fma.rn.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| bits(single(a).mul_add(single(b), single(c)))),
    float("mad.rn.f32 %d32, %a32, %b32, 0f3F800000;", 32, |[a, b, _]| bits(single(a).mul_add(single(b), 1.0))),
    float("fma.rn.ftz.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
        bits(flush(flush(single(a)).mul_add(flush(single(b)), flush(single(c)))))
    }),
    float("div.rn.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(single(a) / single(b))),
    float("div.full.f32 %d32, %a32, %b32;", 32, |[a, b, _]| bits(single(a) / single(b))),
    float("rcp.rn.f32 %d32, %a32;", 32, |[a, ..]| bits(1.0 / single(a))),
    float("sqrt.rn.f32 %d32, %a32;", 32, |[a, ..]| bits(single(a).sqrt())),
    float("sqrt.approx.ftz.f32 %d32, %a32;", 32, |[a, ..]| bits(flush(single(a)).sqrt())),
    float("abs.f32 %d32, %a32;", 32, |[a, ..]| bits(single(a).abs())),
    float("neg.ftz.f32 %d32, %a32;", 32, |[a, ..]| bits(-flush(single(a)))),
    float("copysign.f32 %d32, %a32, %b32;", 32, |[a, b, _]| a & 0x8000_0000 | b & 0x7fff_ffff),
    float("min.f32 %d32, %a32, %b32;", 32, |[a, b, _]| {
        let (a, b) = (single(a), single(b));
        bits(if a == b { if a.is_sign_negative() { a } else { b } } else { a.min(b) })
    }),
    float("max.f32 %d32, %a32, %b32;", 32, |[a, b, _]| {
        let (a, b) = (single(a), single(b));
        bits(if a == b { if a.is_sign_positive() { a } else { b } } else { a.max(b) })
    }),
    float("max.NaN.f32 %d32, %a32, %b32;", 32, |[a, b, _]| {
        let (a, b) = (single(a), single(b));
        bits(match (a.is_nan() || b.is_nan(), a == b) {
            (true, _) => f32::NAN,
            (_, true) => {
                if a.is_sign_positive() {
                    a
                } else {
                    b
                }
            }
            _ => a.max(b),
        })
    }),
];

const DOUBLE: &[Form] = &[
    float("add.f64 %d64, %a64, %b64;", 64, |[a, b, _]| (double(a) + double(b)).to_bits()),
    float("sub.rn.f64 %d64, %a64, %b64;", 64, |[a, b, _]| (double(a) - double(b)).to_bits()),
    float("mul.f64 %d64, %a64, %b64;", 64, |[a, b, _]| (double(a) * double(b)).to_bits()),
    float("fma.rn.f64 %d64, %a64, %b64, %c64;", 64, |[a, b, c]| double(a).mul_add(double(b), double(c)).to_bits()),
    float("div.rn.f64 %d64, %a64, %b64;", 64, |[a, b, _]| (double(a) / double(b)).to_bits()),
    float("rcp.rn.f64 %d64, %a64;", 64, |[a, ..]| (1.0 / double(a)).to_bits()),
    float("sqrt.rn.f64 %d64, %a64;", 64, |[a, ..]| double(a).sqrt().to_bits()),
    float("abs.f64 %d64, %a64;", 64, |[a, ..]| double(a).abs().to_bits()),
    float("neg.f64 %d64, %a64;", 64, |[a, ..]| (-double(a)).to_bits()),
    float("max.f64 %d64, %a64, %b64;", 64, |[a, b, _]| {
        let (a, b) = (double(a), double(b));
        (if a == b { if a.is_sign_positive() { a } else { b } } else { a.max(b) }).to_bits()
    }),
];

#[test]
fn singles() {
    check(SINGLE);
}

#[test]
fn doubles() {
    check(DOUBLE);
}

/// Bits of a result, of which NaN is the canonical one.
fn canonical(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { bits(value) }
}

#[test]
fn nan_is_canonical() {
    check(&[
        form("add.f32 %d32, %a32, %b32;", 32, |[a, b, _]| canonical(single(a) + single(b))),
        form("sub.f32 %d32, %a32, %b32;", 32, |[a, b, _]| canonical(single(a) - single(b))),
        form("mul.f32 %d32, %a32, %b32;", 32, |[a, b, _]| canonical(single(a) * single(b))),
        form("fma.rn.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| canonical(single(a).mul_add(single(b), single(c)))),
        form("div.rn.f32 %d32, %a32, %b32;", 32, |[a, b, _]| canonical(single(a) / single(b))),
        form("sqrt.rn.f32 %d32, %a32;", 32, |[a, ..]| canonical(single(a).sqrt())),
        form("min.f32 %d32, %a32, 0f7FC00000;", 32, |[a, ..]| canonical(single(a))),
        form("cvt.rn.f32.f64 %d32, %a64;", 32, |[a, ..]| canonical(f64::from_bits(a) as f32)),
    ]);
}

#[test]
fn fused_results_halfway_between_two_are_rounded_once() {
    // The product is near half a unit in the last place of `c`, above or below it.
    check(&[
        form(
            "and.b32 %c32, %c32, 0x807fffff; or.b32 %c32, %c32, 0x4b000000; and.b32 %b32, %b32, 0x80000003;\n\
              or.b32 %b32, %b32, 0x3f000000; fma.rn.f32 %c32, %b32, 0f3F800001, %c32; @%g mov.b32 %d32, %c32;",
            32,
            |[_, b, c]| {
                let c = single(c & 0x807f_ffff | 0x4b00_0000);
                canonical(single(b & 0x8000_0003 | 0x3f00_0000).mul_add(single(0x3f80_0001), c))
            },
        ),
        form(
            "and.b32 %b32, %b32, 0x80ffffff; fma.rn.f32 %c32, %a32, %b32, %b32; @%g mov.b32 %d32, %c32;",
            32,
            |[a, b, _]| {
                let b = single(b & 0x80ff_ffff);
                canonical(single(a).mul_add(b, b))
            },
        ),
    ]);
}
