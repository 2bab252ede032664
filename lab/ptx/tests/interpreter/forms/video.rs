//! Instructions on the bytes and half words of a register.

use super::{check, form};

/// Applies a function to the unsigned bytes of `a` and `b`, and keeps the lowest byte of each result.
fn bytes(a: u64, b: u64, function: fn(i64, i64) -> i64) -> u64 {
    let parts = (a as u32).to_le_bytes().into_iter().zip((b as u32).to_le_bytes());
    let results: Vec<u8> = parts.map(|(a, b)| function(i64::from(a), i64::from(b)) as u8).collect();
    u64::from(u32::from_le_bytes(results.try_into().expect("four")))
}

/// The same of signed bytes.
fn signed_bytes(a: u64, b: u64, function: fn(i64, i64) -> i64) -> u64 {
    let parts = (a as u32).to_le_bytes().into_iter().zip((b as u32).to_le_bytes());
    let results: Vec<u8> = parts.map(|(a, b)| function(i64::from(a as i8), i64::from(b as i8)) as u8).collect();
    u64::from(u32::from_le_bytes(results.try_into().expect("four")))
}

/// The same of half words: unsigned, or signed.
fn halves(a: u64, b: u64, signed: bool, function: fn(i64, i64) -> i64) -> u64 {
    let part = |word: u64| if signed { i64::from(word as i16) } else { i64::from(word as u16) };
    u64::from(function(part(a >> 16), part(b >> 16)) as u16) << 16 | u64::from(function(part(a), part(b)) as u16)
}

/// Half of a sum, rounded away from zero.
fn average(a: i64, b: i64) -> i64 {
    ((a + b) as f64 / 2.0).round() as i64
}

#[test]
fn bytes_of_a_register() {
    check(&[
        form("vadd4.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| a + b)),
        form("vadd4.u32.u32.u32.sat %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| (a + b).min(255))),
        form("vadd4.s32.s32.s32.sat %d32, %a32, %b32, %c32;", 32, |[a, b, _]| {
            signed_bytes(a, b, |a, b| (a + b).clamp(-128, 127))
        }),
        form("vsub4.s32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| a - b)),
        form("vsub4.u32.u32.u32.sat %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| (a - b).max(0))),
        form("vavrg4.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, average)),
        form("vavrg4.s32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| signed_bytes(a, b, average)),
        form("vabsdiff4.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| (a - b).abs())),
        form("vabsdiff4.u32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| signed_bytes(a, b, |a, b| (a - b).abs())),
        form("vabsdiff4.u32.u32.u32.add %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            let parts = bytes(a, b, |a, b| (a - b).abs());
            (c & 0xffff_ffff) + (parts as u32).to_le_bytes().into_iter().map(u64::from).sum::<u64>()
        }),
        form("vmin4.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, i64::min)),
        form("vmin4.s32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| signed_bytes(a, b, i64::min)),
        form("vmax4.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, i64::max)),
        form("vmax4.s32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| signed_bytes(a, b, i64::max)),
        form("vset4.u32.u32.eq %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| i64::from(a == b))),
        form("vset4.u32.u32.gt %d32, %a32, %b32, %c32;", 32, |[a, b, _]| bytes(a, b, |a, b| i64::from(a > b))),
        form("vset4.s32.s32.le %d32, %a32, %b32, %c32;", 32, |[a, b, _]| signed_bytes(a, b, |a, b| i64::from(a <= b))),
        form("vset4.s32.s32.lt.add %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            (c & 0xffff_ffff) + u64::from(signed_bytes(a, b, |a, b| i64::from(a < b)).count_ones())
        }),
    ]);
}

#[test]
fn half_words_of_a_register() {
    check(&[
        form("vadd2.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| halves(a, b, false, |a, b| a + b)),
        form("vsub2.s32.s32.s32.sat %d32, %a32, %b32, %c32;", 32, |[a, b, _]| {
            halves(a, b, true, |a, b| (a - b).clamp(-32_768, 32_767))
        }),
        form("vavrg2.s32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| halves(a, b, true, average)),
        form("vabsdiff2.u32.u32.u32.add %d32, %a32, %b32, %c32;", 32, |[a, b, c]| {
            let parts = halves(a, b, false, |a, b| (a - b).abs());
            (c & 0xffff_ffff) + (parts >> 16) + (parts & 0xffff)
        }),
        form("vmin2.s32.s32.s32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| halves(a, b, true, i64::min)),
        form("vmax2.u32.u32.u32 %d32, %a32, %b32, %c32;", 32, |[a, b, _]| halves(a, b, false, i64::max)),
        form("vset2.u32.u32.ne %d32, %a32, %b32, %c32;", 32, |[a, b, _]| halves(a, b, false, |a, b| i64::from(a != b))),
    ]);
}
