//! Logic, shifts and bit fields.

use super::{check, form};

#[test]
fn logic() {
    check(&[
        form("and.b32 %d32, %a32, %b32;", 32, |[a, b, _]| a & b),
        form("or.b16 %d16, %a16, %b16;", 16, |[a, b, _]| a | b),
        form("xor.b64 %d64, %a64, %b64;", 64, |[a, b, _]| a ^ b),
        form("not.b32 %d32, %a32;", 32, |[a, ..]| !a),
        form("not.b64 %d64, %a64;", 64, |[a, ..]| !a),
        form("cnot.b32 %d32, %a32;", 32, |[a, ..]| u64::from(a as u32 == 0)),
        form("and.pred %p, %s, %q;", 1, |[_, _, c]| c >> 31),
        form("xor.pred %p, !%s, %q;", 1, |[_, _, c]| c >> 31),
        form("not.pred %p, %s;", 1, |[_, _, c]| !(c >> 31)),
        form("mov.pred %p, %s;", 1, |[_, _, c]| c >> 31),
        form("lop3.b32 %d32, %a32, %b32, %c32, 0xe4;", 32, |[a, b, c]| (c & a) | (!c & b)),
        form("lop3.b32 %d32, %a32, %b32, %c32, 0x96;", 32, |[a, b, c]| a ^ b ^ c),
        form("lop3.b32 %d32, %a32, %b32, %c32, 0xca;", 32, |[a, b, c]| (a & b) | (!a & c)),
        form("lop3.b32 %d32, %a32, %b32, %c32, 0x1b;", 32, |[a, b, c]| {
            (0..32).fold(0, |word, i| word | (0x1b >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1) << i)
        }),
    ]);
}

#[test]
fn shifts() {
    check(&[
        form("shl.b32 %d32, %a32, %b32;", 32, |[a, b, _]| if b as u32 > 31 { 0 } else { a << (b as u32) }),
        form("shl.b64 %d64, %a64, %b32;", 64, |[a, b, _]| if b as u32 > 63 { 0 } else { a << (b as u32) }),
        form("shl.b16 %d16, %a16, %b32;", 16, |[a, b, _]| if b as u32 > 15 { 0 } else { a << (b as u32) }),
        form(
            "shr.u32 %d32, %a32, %b32;",
            32,
            |[a, b, _]| if b as u32 > 31 { 0 } else { u64::from(a as u32 >> (b as u32)) },
        ),
        form("shr.s32 %d32, %a32, %b32;", 32, |[a, b, _]| (a as i32 >> (b as u32).min(31)) as u64),
        form("shr.s64 %d64, %a64, %b32;", 64, |[a, b, _]| (a as i64 >> (b as u32).min(63)) as u64),
        form("shr.u64 %d64, %a64, 7;", 64, |[a, ..]| a >> 7),
        form("shr.s16 %d16, %a16, %b32;", 16, |[a, b, _]| (a as i16 >> (b as u32).min(15)) as u64),
        form("shf.l.wrap.b32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| (b << 32 | a & 0xffff_ffff) << (c & 31) >> 32),
        form("shf.r.wrap.b32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| (b << 32 | a & 0xffff_ffff) >> (c & 31)),
        form("shf.l.clamp.b32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (b << 32 | a & 0xffff_ffff) << (c as u32).min(32) >> 32
        }),
        form("shf.r.clamp.b32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (b << 32 | a & 0xffff_ffff) >> (c as u32).min(32)
        }),
    ]);
}

fn field(value: u64, at: u64, length: u64, width: u64, signed: bool) -> u64 {
    let (at, length) = (at & 255, length & 255);
    let bit = |index: u64| if index < width { value >> index & 1 } else { 0 };
    let sign = if signed && length > 0 { value >> (at + length - 1).min(width - 1) & 1 } else { 0 };
    (0..width).fold(0, |word, i| word | (if i < length && at + i < width { bit(at + i) } else { sign }) << i)
}

#[test]
fn fields() {
    check(&[
        form("bfe.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| field(a, b, c, 32, false)),
        form("bfe.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| field(a, b, c, 32, true)),
        form("bfe.u64 %d64, %a64, %b32, %c32;", 64, |[a, b, c]| field(a, b, c, 64, false)),
        form("bfe.s64 %d64, %a64, %b32, %c32;", 64, |[a, b, c]| field(a, b, c, 64, true)),
        form("bfe.u32 %d32, %a32, 5, 9;", 32, |[a, ..]| a >> 5 & 0x1ff),
        form("bfi.b32 %d32, %a32, %b32, %c32, 7;", 32, |[a, b, c]| {
            (0..32).fold(b, |word, i| {
                let at = i + (c & 255);
                if i < 7 && at < 32 { word & !(1 << at) | (a >> i & 1) << at } else { word }
            })
        }),
        form("bfi.b64 %d64, %a64, %b64, %c32, 40;", 64, |[a, b, c]| {
            (0..64).fold(b, |word, i| {
                let at = i + (c & 255);
                if i < 40 && at < 64 { word & !(1 << at) | (a >> i & 1) << at } else { word }
            })
        }),
        form("popc.b32 %d32, %a32;", 32, |[a, ..]| u64::from((a as u32).count_ones())),
        form("popc.b64 %d32, %a64;", 32, |[a, ..]| u64::from(a.count_ones())),
        form("clz.b32 %d32, %a32;", 32, |[a, ..]| u64::from((a as u32).leading_zeros())),
        form("clz.b64 %d32, %a64;", 32, |[a, ..]| u64::from(a.leading_zeros())),
        form("brev.b32 %d32, %a32;", 32, |[a, ..]| (0..32).fold(0, |word, i| word | (a >> i & 1) << (31 - i))),
        form("brev.b64 %d64, %a64;", 64, |[a, ..]| (0..64).fold(0, |word, i| word | (a >> i & 1) << (63 - i))),
        form("bfind.u32 %d32, %a32;", 32, |[a, ..]| (0..32).rev().find(|i| a >> i & 1 != 0).unwrap_or(u64::MAX)),
        form("bfind.s32 %d32, %a32;", 32, |[a, ..]| {
            (0..32).rev().find(|i| a >> i & 1 != a >> 31 & 1).unwrap_or(u64::MAX)
        }),
        form("bfind.shiftamt.u64 %d32, %a64;", 32, |[a, ..]| {
            (0..64).rev().find(|i| a >> i & 1 != 0).map_or(u64::MAX, |i| 63 - i)
        }),
        form("szext.wrap.s32 %d32, %a32, %b32;", 32, |[a, b, _]| field(a, 0, b & 31, 32, true)),
        form("szext.clamp.u32 %d32, %a32, %b32;", 32, |[a, b, _]| field(a, 0, (b & 0xffff_ffff).min(32), 32, false)),
        form("prmt.b32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (0..4).fold(0, |word, i| {
                let select = c >> (4 * i) & 15;
                let from = if select & 4 == 0 { a } else { b };
                let byte = from >> (8 * (select & 3)) & 255;
                word | (if select & 8 != 0 { (byte >> 7) * 255 } else { byte }) << (8 * i)
            })
        }),
        form("prmt.b32 %d32, %a32, %b32, 0x5410;", 32, |[a, b, _]| b << 16 | a & 0xffff),
        form("prmt.b32.rc8 %d32, %a32, %b32, %c32;", 32, |[a, _, c]| (a >> (8 * (c & 3)) & 255) * 0x0101_0101),
        form("mov.b64 %d64, {%a32, %b32};", 64, |[a, b, _]| b << 32 | a & 0xffff_ffff),
        form("mov.b32 %d32, {%a16, %b16};", 32, |[a, b, _]| b << 16 | a & 0xffff),
        form("mov.b64 {%d32, _}, %a64;", 32, |[a, ..]| a),
        form("mov.b64 {_, %d32}, %a64;", 32, |[a, ..]| a >> 32),
        form("mov.b32 {_, %d16}, %a32;", 16, |[a, ..]| a >> 16),
    ]);
}
