//! Atomics on global, shared and generic addresses: old and new values.

use super::half::{Format, sum};
use super::{Form, check, float};

/// Instruction, as `.scopes/operation.type b`, its bits, and the new value of the old one, `b` and
/// `c`.
type Row = (&'static str, u32, fn([u64; 3]) -> u64);

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

const ROWS: [Row; 35] = [
    ("add.u32", 32, |[a, b, _]| a.wrapping_add(b)),
    ("add.s32", 32, |[a, b, _]| a.wrapping_add(b)),
    ("add.u64", 64, |[a, b, _]| a.wrapping_add(b)),
    ("add.f32", 32, |[a, b, _]| u64::from((single(a) + single(b)).to_bits())),
    ("add.f64", 64, |[a, b, _]| (f64::from_bits(a) + f64::from_bits(b)).to_bits()),
    ("add.noftz.f16", 16, |[a, b, _]| sum(Format::Half, a, b)),
    ("add.noftz.bf16", 16, |[a, b, _]| sum(Format::Brain, a, b)),
    ("add.noftz.f16x2", 32, |[a, b, _]| sum(Format::Half, a >> 16, b >> 16) << 16 | sum(Format::Half, a, b)),
    ("add.noftz.bf16x2", 32, |[a, b, _]| sum(Format::Brain, a >> 16, b >> 16) << 16 | sum(Format::Brain, a, b)),
    ("exch.b32", 32, |[_, b, _]| b),
    ("exch.b64", 64, |[_, b, _]| b),
    ("cas.b16", 16, |[a, b, c]| if a as u16 == b as u16 { c } else { a }),
    ("cas.b32", 32, |[a, b, c]| if a as u32 == b as u32 { c } else { a }),
    ("cas.b64", 64, |[a, b, c]| if a == b { c } else { a }),
    ("min.u32", 32, |[a, b, _]| low(a).min(low(b))),
    ("max.u32", 32, |[a, b, _]| low(a).max(low(b))),
    ("min.s32", 32, |[a, b, _]| (a as i32).min(b as i32) as u64),
    ("max.s32", 32, |[a, b, _]| (a as i32).max(b as i32) as u64),
    ("min.u64", 64, |[a, b, _]| a.min(b)),
    ("max.u64", 64, |[a, b, _]| a.max(b)),
    ("min.s64", 64, |[a, b, _]| (a as i64).min(b as i64) as u64),
    ("max.s64", 64, |[a, b, _]| (a as i64).max(b as i64) as u64),
    ("and.b32", 32, |[a, b, _]| a & b),
    ("or.b32", 32, |[a, b, _]| a | b),
    ("xor.b32", 32, |[a, b, _]| a ^ b),
    ("and.b64", 64, |[a, b, _]| a & b),
    ("or.b64", 64, |[a, b, _]| a | b),
    ("xor.b64", 64, |[a, b, _]| a ^ b),
    ("inc.u32", 32, |[a, b, _]| if low(a) >= low(b) { 0 } else { a + 1 }),
    ("dec.u32", 32, |[a, b, _]| if low(a) == 0 || low(a) > low(b) { b } else { a - 1 }),
    (".relaxed.gpu/add.u32", 32, |[a, b, _]| a.wrapping_add(b)),
    (".acq_rel.sys/cas.b32", 32, |[a, b, c]| if a as u32 == b as u32 { c } else { a }),
    (".cta/or.b32", 32, |[a, b, _]| a | b),
    ("cas.b32 0", 32, |[a, _, c]| if a as u32 == 0 { c } else { a }),
    ("cas.b64 0", 64, |[a, _, c]| if a == 0 { c } else { a }),
];

/// Forms of all rows in a state space, for old or for new values.
fn forms(space: &str, address: &str, new: bool) -> Vec<Form> {
    ROWS.iter()
        .map(|&(instruction, bits, reference)| {
            let (instruction, b) = match instruction.split_once(' ') {
                Some((instruction, b)) => (instruction, b.to_owned()),
                None => (instruction, format!("%b{bits}")),
            };
            let (scopes, name) = instruction.split_once('/').unwrap_or(("", instruction));
            let operands = if name.starts_with("cas") { format!("{b}, %c{bits}") } else { b };
            let old = format!("atom{scopes}{space}.{name} %{}, [%x], {operands};", if bits == 64 { "i" } else { "v" });
            let (atomic, result) = match bits {
                64 => (old, "@%g mov.b64 %d64, %i;"),
                32 => (old, "@%g mov.b32 %d32, %v;"),
                _ => (old.replace("%v", "%h"), "@%g mov.b16 %d16, %h;"),
            };
            let reload = match bits {
                64 => format!("ld{space}.b64 %i, [%x];"),
                32 => format!("ld{space}.b32 %v, [%x];"),
                _ => format!("ld{space}.b16 %h, [%x];"),
            };
            let text = format!(
                "mov.u32 %t, %t; {{ .reg .b32 %v; .reg .b16 %h; .shared .align 8 .b64 s[64]; {address} st{space}.b64 [%x], %a64;\n\
                 {atomic} {} {result} }}",
                if new { &reload } else { "" }
            );
            // As the old value, `a` itself.
            float(text.leak(), bits, if new { reference } else { |[a, ..]| a })
        })
        .collect()
}

const SHARED: &str = "mov.u64 %x, s; mul.wide.u32 %i, %t, 8; add.u64 %x, %x, %i;";
const GENERIC: &str = "cvta.shared.u64 %x, s; mul.wide.u32 %i, %t, 8; add.u64 %x, %x, %i;";

#[test]
fn atomics_on_global_memory() {
    check(&forms(".global", "mov.u64 %x, %y;", false));
    check(&forms(".global", "mov.u64 %x, %y;", true));
}

#[test]
fn atomics_on_shared_memory() {
    check(&forms(".shared", SHARED, false));
    check(&forms(".shared", SHARED, true));
}

#[test]
fn atomics_on_generic_addresses() {
    check(&forms("", "mov.u64 %x, %y;", true));
    check(&forms("", GENERIC, true));
}
