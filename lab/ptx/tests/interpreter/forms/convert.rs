//! Conversions.

use super::half::{half, nearest_half};
use super::{check, float, form};

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Distance of the `tf32` around a number: a mantissa has 10 bits.
fn tf32_unit(value: f32) -> f64 {
    2f64.powi(((value.to_bits() >> 23 & 255) as i32).max(1) - 127 - 10)
}

#[test]
fn integers() {
    check(&[
        form("cvt.u32.u16 %d32, %a16;", 32, |[a, ..]| a & 0xffff),
        form("cvt.s32.s16 %d32, %a16;", 32, |[a, ..]| a as i16 as u64),
        form("cvt.s32.s8 %d32, %a32;", 32, |[a, ..]| a as i8 as u64),
        form("cvt.u32.u8 %d32, %a16;", 32, |[a, ..]| a & 0xff),
        form("cvt.s64.s32 %d64, %a32;", 64, |[a, ..]| a as i32 as u64),
        form("cvt.u64.u32 %d64, %a32;", 64, |[a, ..]| a & 0xffff_ffff),
        form("cvt.s64.s8 %d64, %a32;", 64, |[a, ..]| a as i8 as u64),
        form("cvt.u16.u64 %d16, %a64;", 16, |[a, ..]| a),
        form("cvt.s16.s8 %d16, %a64;", 16, |[a, ..]| a as i8 as u64),
        form("cvt.sat.s8.s32 %d32, %a32;", 32, |[a, ..]| (a as i32).clamp(-128, 127) as u64),
        form("cvt.sat.u16.s64 %d16, %a64;", 16, |[a, ..]| (a as i64).clamp(0, 65_535) as u64),
        form("cvt.sat.u32.s32 %d32, %a32;", 32, |[a, ..]| (a as i32).max(0) as u64),
    ]);
}

#[test]
fn floats() {
    check(&[
        float("cvt.rn.f32.s32 %d32, %a32;", 32, |[a, ..]| u64::from((a as i32 as f32).to_bits())),
        float("cvt.rn.f32.u64 %d32, %a64;", 32, |[a, ..]| u64::from((a as f32).to_bits())),
        float("cvt.rz.f32.u32 %d32, %a32;", 32, |[a, ..]| {
            let value = a as u32;
            let kept =
                if value == 0 { 0 } else { value & (u32::MAX << (32 - value.leading_zeros()).saturating_sub(24)) };
            u64::from((kept as f32).to_bits())
        }),
        float("cvt.rn.f64.s64 %d64, %a64;", 64, |[a, ..]| (a as i64 as f64).to_bits()),
        float("cvt.rn.f64.u32 %d64, %a32;", 64, |[a, ..]| f64::from(a as u32).to_bits()),
        form("cvt.rzi.s32.f32 %d32, %a32;", 32, |[a, ..]| single(a) as i32 as u64),
        form("cvt.rzi.u32.f32 %d32, %a32;", 32, |[a, ..]| u64::from(single(a) as u32)),
        form("cvt.rni.s32.f32 %d32, %a32;", 32, |[a, ..]| single(a).round_ties_even() as i32 as u64),
        form("cvt.rmi.s32.f64 %d32, %a64;", 32, |[a, ..]| {
            let value = f64::from_bits(a);
            if value.is_nan() { 0x8000_0000 } else { value.floor() as i32 as u64 }
        }),
        form("cvt.rpi.u64.f32 %d64, %a32;", 64, |[a, ..]| {
            if single(a).is_nan() { 1 << 63 } else { f64::from(single(a)).ceil() as u64 }
        }),
        form("cvt.rzi.u16.f32 %d16, %a32;", 16, |[a, ..]| u64::from(single(a) as u16)),
        form("cvt.rzi.s8.f32 %d32, %a32;", 32, |[a, ..]| single(a) as i8 as u64),
        float("cvt.f64.f32 %d64, %a32;", 64, |[a, ..]| f64::from(single(a)).to_bits()),
        float("cvt.rn.f32.f64 %d32, %a64;", 32, |[a, ..]| u64::from((f64::from_bits(a) as f32).to_bits())),
        float("cvt.rni.f32.f32 %d32, %a32;", 32, |[a, ..]| u64::from(single(a).round_ties_even().to_bits())),
        float("cvt.rmi.f32.f32 %d32, %a32;", 32, |[a, ..]| u64::from(single(a).floor().to_bits())),
        float("cvt.sat.f32.f32 %d32, %a32;", 32, |[a, ..]| {
            let value = single(a);
            u64::from((if value > 0.0 { value.min(1.0) } else { 0.0 }).to_bits())
        }),
        float("cvt.rzi.f64.f64 %d64, %a64;", 64, |[a, ..]| f64::from_bits(a).trunc().to_bits()),
        float("cvt.f32.f16 %d32, %a16;", 32, |[a, ..]| u64::from((half(a) as f32).to_bits())),
        float("cvt.rn.f16.f32 %d16, %a32;", 16, |[a, ..]| nearest_half(f64::from(single(a)))),
        float("cvt.rn.f16.f64 %d16, %a64;", 16, |[a, ..]| nearest_half(f64::from_bits(a))),
        float("cvt.rn.f16.s32 %d16, %a32;", 16, |[a, ..]| nearest_half(f64::from(a as i32))),
        form("cvt.rzi.s32.f16 %d32, %a16;", 32, |[a, ..]| half(a) as i32 as u64),
        float("cvt.rna.tf32.f32 %d32, %a32;", 32, |[a, ..]| {
            let (value, unit) = (f64::from(single(a)), tf32_unit(single(a)));
            u64::from((((value / unit).round() * unit) as f32).to_bits())
        }),
        float("cvt.rz.tf32.f32 %d32, %a32;", 32, |[a, ..]| {
            let (value, unit) = (f64::from(single(a)), tf32_unit(single(a)));
            u64::from((((value / unit).trunc() * unit) as f32).to_bits())
        }),
        float("cvt.f32.bf16 %d32, %a16;", 32, |[a, ..]| (a & 0xffff) << 16),
        float("cvt.rn.bf16.f32 %d16, %a32;", 16, |[a, ..]| {
            let bits = a & 0xffff_ffff;
            if single(a).is_nan() { 0x7fff } else { (bits + 0x7fff + (bits >> 16 & 1)) >> 16 }
        }),
    ]);
}
