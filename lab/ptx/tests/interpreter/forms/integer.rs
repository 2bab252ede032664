//! Integer arithmetic.

use super::{check, form};

fn wide(value: i128, shift: u32) -> u64 {
    (value >> shift) as u64
}

#[test]
fn sums_and_products() {
    check(&[
        form("add.s32 %d32, %a32, %b32;", 32, |[a, b, _]| a.wrapping_add(b)),
        form("add.u16 %d16, %a16, %b16;", 16, |[a, b, _]| a.wrapping_add(b)),
        form("add.s64 %d64, %a64, %b64;", 64, |[a, b, _]| a.wrapping_add(b)),
        form("add.s32 %d32, %a32, -7;", 32, |[a, ..]| a.wrapping_sub(7)),
        form("add.s32 %d32, %a32, WARP_SZ;", 32, |[a, ..]| a.wrapping_add(32)),
        form("mad.wide.u32 %d64, %a32, WARP_SZ, -WARP_SZ;", 64, |[a, ..]| (u64::from(a as u32) * 32).wrapping_sub(32)),
        form("add.sat.s32 %d32, %a32, %b32;", 32, |[a, b, _]| (a as i32).saturating_add(b as i32) as u64),
        form("sub.sat.s32 %d32, %a32, %b32;", 32, |[a, b, _]| (a as i32).saturating_sub(b as i32) as u64),
        form("sub.u32 %d32, %a32, %b32;", 32, |[a, b, _]| a.wrapping_sub(b)),
        form("sub.s16 %d16, %a16, %b16;", 16, |[a, b, _]| a.wrapping_sub(b)),
        form("sub.s64 %d64, %a64, %b64;", 64, |[a, b, _]| a.wrapping_sub(b)),
        form("mul.lo.s32 %d32, %a32, %b32;", 32, |[a, b, _]| a.wrapping_mul(b)),
        form("mul.lo.u16 %d16, %a16, %b16;", 16, |[a, b, _]| a.wrapping_mul(b)),
        form("mul.lo.s64 %d64, %a64, %b64;", 64, |[a, b, _]| a.wrapping_mul(b)),
        form("mul.hi.u32 %d32, %a32, %b32;", 32, |[a, b, _]| wide(i128::from(a as u32) * i128::from(b as u32), 32)),
        form("mul.hi.s32 %d32, %a32, %b32;", 32, |[a, b, _]| wide(i128::from(a as i32) * i128::from(b as i32), 32)),
        form("mul.hi.u64 %d64, %a64, %b64;", 64, |[a, b, _]| (u128::from(a) * u128::from(b) >> 64) as u64),
        form("mul.hi.s64 %d64, %a64, %b64;", 64, |[a, b, _]| wide(i128::from(a as i64) * i128::from(b as i64), 64)),
        form("mul.hi.s16 %d16, %a16, %b16;", 16, |[a, b, _]| wide(i128::from(a as i16) * i128::from(b as i16), 16)),
        form("mul.wide.s32 %d64, %a32, %b32;", 64, |[a, b, _]| wide(i128::from(a as i32) * i128::from(b as i32), 0)),
        form("mul.wide.u32 %d64, %a32, %b32;", 64, |[a, b, _]| wide(i128::from(a as u32) * i128::from(b as u32), 0)),
        form("mul.wide.u16 %d32, %a16, %b16;", 32, |[a, b, _]| wide(i128::from(a as u16) * i128::from(b as u16), 0)),
        form("mul.wide.s16 %d32, %a16, %b16;", 32, |[a, b, _]| wide(i128::from(a as i16) * i128::from(b as i16), 0)),
        form("mad.lo.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
        form("mad.lo.s64 %d64, %a64, %b64, %c64;", 64, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
        form("mad.lo.u16 %d16, %a16, %b16, %c16;", 16, |[a, b, c]| a.wrapping_mul(b).wrapping_add(c)),
        form("mad.hi.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            wide(i128::from(a as u32) * i128::from(b as u32), 32).wrapping_add(c)
        }),
        form("mad.hi.sat.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (wide(i128::from(a as i32) * i128::from(b as i32), 32) as i32).saturating_add(c as i32) as u64
        }),
        form("mad.wide.s32 %d64, %a32, %b32, %c64;", 64, |[a, b, c]| {
            wide(i128::from(a as i32) * i128::from(b as i32), 0).wrapping_add(c)
        }),
        form("mad.wide.u32 %d64, %a32, %b32, %c64;", 64, |[a, b, c]| {
            wide(i128::from(a as u32) * i128::from(b as u32), 0).wrapping_add(c)
        }),
        form("mul24.lo.u32 %d32, %a32, %b32;", 32, |[a, b, _]| (a & 0xff_ffff) * (b & 0xff_ffff)),
        form("mul24.hi.s32 %d32, %a32, %b32;", 32, |[a, b, _]| {
            let field = |x: u64| i128::from((x as i32) << 8 >> 8);
            wide(field(a) * field(b), 16)
        }),
        form("mad24.lo.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            let field = |x: u64| i128::from((x as i32) << 8 >> 8);
            wide(field(a) * field(b), 0).wrapping_add(c)
        }),
        form("sad.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            c.wrapping_add(u64::from((a as u32).abs_diff(b as u32)))
        }),
        form("sad.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            c.wrapping_add(u64::from((a as i32).abs_diff(b as i32)))
        }),
    ]);
}

#[test]
fn quotients_and_extrema() {
    check(&[
        form("div.u32 %d32, %a32, %b32;", 32, |[a, b, _]| {
            u64::from((a as u32).checked_div(b as u32).unwrap_or(u32::MAX))
        }),
        form("div.s32 %d32, %a32, %b32;", 32, |[a, b, _]| {
            if b as i32 == 0 { u64::MAX } else { (i64::from(a as i32) / i64::from(b as i32)) as u64 }
        }),
        form("div.u64 %d64, %a64, %b64;", 64, |[a, b, _]| a.checked_div(b).unwrap_or(u64::MAX)),
        form("div.s64 %d64, %a64, %b64;", 64, |[a, b, _]| {
            if b == 0 { u64::MAX } else { (i128::from(a as i64) / i128::from(b as i64)) as u64 }
        }),
        form("div.u16 %d16, %a16, %b16;", 16, |[a, b, _]| {
            u64::from((a as u16).checked_div(b as u16).unwrap_or(u16::MAX))
        }),
        form("rem.u32 %d32, %a32, %b32;", 32, |[a, b, _]| {
            u64::from((a as u32).checked_rem(b as u32).unwrap_or(a as u32))
        }),
        form("rem.s32 %d32, %a32, %b32;", 32, |[a, b, _]| {
            if b as i32 == 0 { a } else { (i64::from(a as i32) % i64::from(b as i32)) as u64 }
        }),
        form("rem.s64 %d64, %a64, %b64;", 64, |[a, b, _]| {
            if b == 0 { a } else { (i128::from(a as i64) % i128::from(b as i64)) as u64 }
        }),
        form("min.s32 %d32, %a32, %b32;", 32, |[a, b, _]| (a as i32).min(b as i32) as u64),
        form("max.s32 %d32, %a32, %b32;", 32, |[a, b, _]| (a as i32).max(b as i32) as u64),
        form("min.u32 %d32, %a32, %b32;", 32, |[a, b, _]| u64::from((a as u32).min(b as u32))),
        form("max.u64 %d64, %a64, %b64;", 64, |[a, b, _]| a.max(b)),
        form("min.s64 %d64, %a64, %b64;", 64, |[a, b, _]| (a as i64).min(b as i64) as u64),
        form("max.s16 %d16, %a16, %b16;", 16, |[a, b, _]| (a as i16).max(b as i16) as u64),
        form("abs.s32 %d32, %a32;", 32, |[a, ..]| (a as i32).wrapping_abs() as u64),
        form("abs.s64 %d64, %a64;", 64, |[a, ..]| (a as i64).wrapping_abs() as u64),
        form("abs.s16 %d16, %a16;", 16, |[a, ..]| (a as i16).wrapping_abs() as u64),
        form("neg.s32 %d32, %a32;", 32, |[a, ..]| a.wrapping_neg()),
        form("neg.s64 %d64, %a64;", 64, |[a, ..]| a.wrapping_neg()),
        form("neg.s16 %d16, %a16;", 16, |[a, ..]| a.wrapping_neg()),
        form("dp4a.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (0..4).fold(c, |sum, i| {
                sum.wrapping_add((i64::from((a >> (8 * i)) as i8) * i64::from((b >> (8 * i)) as i8)) as u64)
            })
        }),
        form("dp4a.u32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (0..4).fold(c, |sum, i| {
                sum.wrapping_add((i64::from((a >> (8 * i)) as u8) * i64::from((b >> (8 * i)) as i8)) as u64)
            })
        }),
        form("dp2a.hi.s32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (0..2).fold(c, |sum, i| {
                sum.wrapping_add((i64::from((a >> (16 * i)) as i16) * i64::from((b >> (16 + 8 * i)) as u8)) as u64)
            })
        }),
    ]);
}

#[test]
fn carries() {
    // The carry goes from one instruction to the next: both are guarded.
    check(&[
        form("add.cc.u32 %d32, %a32, %b32; @%g addc.u32 %d32, %c32, 0;", 32, |[a, b, c]| {
            c.wrapping_add(((a & 0xffff_ffff) + (b & 0xffff_ffff)) >> 32)
        }),
        form("sub.cc.u32 %d32, %a32, %b32; @%g subc.u32 %d32, %c32, 0;", 32, |[a, b, c]| {
            c.wrapping_sub(u64::from((a as u32) < b as u32))
        }),
        // After a subtraction, the flag is a carry: set where nothing was borrowed.
        form("sub.cc.u32 %d32, %a32, %b32; @%g addc.u32 %d32, %c32, 0;", 32, |[a, b, c]| {
            c.wrapping_add(u64::from((a as u32) >= b as u32))
        }),
        form("sub.cc.u64 %d64, %a64, %b64; @%g subc.u64 %d64, %c64, %a64;", 64, |[a, b, c]| {
            c.wrapping_sub(a).wrapping_sub(u64::from(a < b))
        }),
        form("add.cc.u64 %d64, %a64, %b64; @%g addc.u64 %d64, %c64, %c64;", 64, |[a, b, c]| {
            c.wrapping_add(c).wrapping_add(u64::from(a.checked_add(b).is_none()))
        }),
        form("mad.lo.cc.u32 %d32, %a32, %b32, %c32; @%g madc.hi.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            let (a, b, c) = (a & 0xffff_ffff, b & 0xffff_ffff, c & 0xffff_ffff);
            ((a * b & 0xffff_ffff) + c >> 32) + (a * b >> 32) + c
        }),
    ]);
}
