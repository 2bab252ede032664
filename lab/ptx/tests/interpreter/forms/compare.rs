//! Comparisons and selections.

use super::half::Format;
use super::{check, form};

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

#[test]
fn comparisons() {
    check(&[
        form("setp.eq.s32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(a as u32 == b as u32)),
        form("setp.ne.u64 %p, %a64, %b64;", 1, |[a, b, _]| u64::from(a != b)),
        form("setp.lt.s32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from((a as i32) < b as i32)),
        form("setp.lt.u32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from((a as u32) < b as u32)),
        form("setp.lo.u32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from((a as u32) < b as u32)),
        form("setp.hs.u64 %p, %a64, %b64;", 1, |[a, b, _]| u64::from(a >= b)),
        form("setp.ge.s64 %p, %a64, %b64;", 1, |[a, b, _]| u64::from(a as i64 >= b as i64)),
        form("setp.gt.s16 %p, %a16, %b16;", 1, |[a, b, _]| u64::from(a as i16 > b as i16)),
        form("setp.le.u16 %p, %a16, %b16;", 1, |[a, b, _]| u64::from(a as u16 <= b as u16)),
        form("setp.lt.and.s32 %p, %a32, %b32, %s;", 1, |[a, b, c]| u64::from((a as i32) < b as i32) & c >> 31),
        form("setp.lt.or.s32 %p, %a32, %b32, !%s;", 1, |[a, b, c]| u64::from((a as i32) < b as i32) | !(c >> 31)),
        form("setp.lt.s32 %q|%p, %a32, %b32;", 1, |[a, b, _]| u64::from(a as i32 >= b as i32)),
        form("setp.lt.xor.s32 %q|%p, %a32, %b32, %s;", 1, |[a, b, c]| u64::from(a as i32 >= b as i32) ^ c >> 31),
        form("setp.eq.f32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(single(a) == single(b))),
        form("setp.ne.f32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(single(a) < single(b) || single(a) > single(b))),
        form("setp.neu.f32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(single(a) != single(b))),
        form("setp.lt.f32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(single(a) < single(b))),
        form("setp.gtu.f32 %p, %a32, %b32;", 1, |[a, b, _]| {
            u64::from(single(a) > single(b) || single(a).is_nan() || single(b).is_nan())
        }),
        form("setp.leu.f32 %p, %a32, %b32;", 1, |[a, b, _]| {
            u64::from(single(a) <= single(b) || single(a).is_nan() || single(b).is_nan())
        }),
        form("setp.nan.f32 %p, %a32, %b32;", 1, |[a, b, _]| u64::from(single(a).is_nan() || single(b).is_nan())),
        form("setp.num.f64 %p, %a64, %b64;", 1, |[a, b, _]| {
            u64::from(!f64::from_bits(a).is_nan() && !f64::from_bits(b).is_nan())
        }),
        form("setp.ge.f64 %p, %a64, %b64;", 1, |[a, b, _]| u64::from(f64::from_bits(a) >= f64::from_bits(b))),
        form("setp.eq.ftz.f32 %p, %a32, 0f00000000;", 1, |[a, ..]| {
            u64::from(single(a) == 0.0 || single(a).is_subnormal())
        }),
        form("set.lt.u32.s32 %d32, %a32, %b32;", 32, |[a, b, _]| if (a as i32) < b as i32 { u64::MAX } else { 0 }),
        form("set.lt.f32.s32 %d32, %a32, %b32;", 32, |[a, b, _]| if (a as i32) < b as i32 { 0x3f80_0000 } else { 0 }),
        form("testp.finite.f32 %p, %a32;", 1, |[a, ..]| u64::from(single(a).is_finite())),
        form("testp.subnormal.f32 %p, %a32;", 1, |[a, ..]| u64::from(single(a).is_subnormal())),
        form("testp.notanumber.f64 %p, %a64;", 1, |[a, ..]| u64::from(f64::from_bits(a).is_nan())),
    ]);
}

/// Result of a comparison of each half, `truth` where it is true.
fn halves(format: Format, a: u64, b: u64, truth: u64, compare: fn(f64, f64) -> bool) -> u64 {
    let of = |shift: u32| {
        let (a, b) = (format.value(a >> shift & 0xffff), format.value(b >> shift & 0xffff));
        if compare(a, b) { truth << shift } else { 0 }
    };
    of(16) | of(0)
}

fn flushed(value: f64) -> f64 {
    if value.abs() < 2f64.powi(-14) { 0.0 } else { value }
}

#[test]
fn comparisons_of_halves() {
    use Format::{Brain, Half};
    check(&[
        form("set.eq.f16x2.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| halves(Half, a, b, 0x3c00, |a, b| a == b)),
        form("set.eq.f16x2.f16x2 %d32, %a32, %a32;", 32, |[a, ..]| halves(Half, a, a, 0x3c00, |a, b| a == b)),
        form("set.gt.f16x2.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| halves(Half, a, b, 0x3c00, |a, b| a > b)),
        form("set.ltu.f16x2.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| {
            halves(Half, a, b, 0x3c00, |a, b| a < b || a.is_nan() || b.is_nan())
        }),
        form("set.le.ftz.f16x2.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| {
            halves(Half, a, b, 0x3c00, |a, b| flushed(a) <= flushed(b))
        }),
        form("set.leu.u32.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| {
            halves(Half, a, b, 0xffff, |a, b| a <= b || a.is_nan() || b.is_nan())
        }),
        form("set.nan.u32.f16x2 %d32, %a32, %b32;", 32, |[a, b, _]| {
            halves(Half, a, b, 0xffff, |a, b| a.is_nan() || b.is_nan())
        }),
        form("set.ge.s32.bf16x2 %d32, %a32, %b32;", 32, |[a, b, _]| halves(Brain, a, b, 0xffff, |a, b| a >= b)),
        form("set.ne.bf16x2.bf16x2 %d32, %a32, %b32;", 32, |[a, b, _]| {
            halves(Brain, a, b, 0x3f80, |a, b| !a.is_nan() && !b.is_nan() && a != b)
        }),
        form("set.lt.and.f16x2.f16x2 %d32, %a32, %b32, %s;", 32, |[a, b, c]| {
            if c >> 31 & 1 != 0 { halves(Half, a, b, 0x3c00, |a, b| a < b) } else { 0 }
        }),
        form("set.eq.f16.f16 %d16, %a16, %b16;", 16, |[a, b, _]| {
            halves(Half, a & 0xffff, b & 0xffff, 0x3c00, |a, b| a == b)
        }),
        form("set.lt.bf16.bf16 %d16, %a16, %b16;", 16, |[a, b, _]| halves(Brain, a, b, 0x3f80, |a, b| a < b)),
        form("setp.lt.f16x2 %p|%q, %a32, %b32;", 1, |[a, b, _]| halves(Half, a, b, 1, |a, b| a < b) & 1),
        form("setp.lt.f16x2 %q|%p, %a32, %b32;", 1, |[a, b, _]| halves(Half, a, b, 1, |a, b| a < b) >> 16),
        form("setp.gtu.bf16x2 %q|%p, %a32, %b32;", 1, |[a, b, _]| {
            halves(Brain, a, b, 1, |a, b| a > b || a.is_nan() || b.is_nan()) >> 16
        }),
        form("setp.eq.and.f16x2 %q|%p, %a32, %b32, %s;", 1, |[a, b, c]| {
            halves(Half, a, b, 1, |a, b| a == b) >> 16 & c >> 31
        }),
        form("setp.gt.ftz.f16 %p, %a16, %b16;", 1, |[a, b, _]| {
            halves(Half, a & 0xffff, b & 0xffff, 1, |a, b| flushed(a) > flushed(b)) & 1
        }),
    ]);
}

#[test]
fn selections() {
    check(&[
        form("selp.b32 %d32, %a32, %b32, %s;", 32, |[a, b, c]| if c >> 31 & 1 != 0 { a } else { b }),
        form("selp.f64 %d64, %a64, %b64, %s;", 64, |[a, b, c]| if c >> 31 & 1 != 0 { a } else { b }),
        form("selp.b16 %d16, %a16, %b16, !%s;", 16, |[a, b, c]| if c >> 31 & 1 == 0 { a } else { b }),
        form("slct.u32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| if c >> 31 & 1 == 0 { a } else { b }),
        form("slct.f64.f32 %d64, %a64, %b64, %c32;", 64, |[a, b, c]| if single(c) >= 0.0 { a } else { b }),
    ]);
}

#[test]
fn selection_by_sign() {
    fn by_sign(c: f32, [a, b, _]: [u64; 3]) -> u64 {
        if c >= 0.0 { a } else { b }
    }
    check(&[
        form("slct.b16.s32 %d16, %a16, %b16, %c32;", 16, |[a, b, c]| if c & 0x8000_0000 == 0 { a } else { b }),
        form("slct.u32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| if c & 0x8000_0000 == 0 { a } else { b }),
        form("slct.f64.s32 %d64, %a64, %b64, %c32;", 64, |[a, b, c]| if c & 0x8000_0000 == 0 { a } else { b }),
        form("slct.f32.f32 %d32, %a32, %b32, %c32;", 32, |all| by_sign(f32::from_bits(all[2] as u32), all)),
        form("slct.s64.f32 %d64, %a64, %b64, %c32;", 64, |all| by_sign(f32::from_bits(all[2] as u32), all)),
        form("slct.ftz.b32.f32 %d32, %a32, %b32, %c32;", 32, |all| {
            let c = f32::from_bits(all[2] as u32);
            by_sign(if c.is_subnormal() { 0.0 } else { c }, all)
        }),
    ]);
}
