//! Directed rounding, by the sign of what is left of the exact result.

use std::cmp::Ordering;

use super::{Form, check, float};

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Mode: towards zero, negative or positive infinity.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Zero,
    Down,
    Up,
}

/// Rounds an exact value, given the nearest `f32` and how the exact value compares with it.
fn directed(nearest: f32, exact: Option<Ordering>, mode: Mode) -> u64 {
    let up = mode == Mode::Up || mode == Mode::Zero && nearest.is_sign_negative();
    let result = match exact {
        Some(Ordering::Greater) if up => nearest.next_up(),
        Some(Ordering::Less) if !up => nearest.next_down(),
        _ => nearest,
    };
    u64::from(result.to_bits())
}

/// Compares `a + b` with an `f32`, where both are `f64`.
fn compare_sum(a: f64, b: f64, with: f32) -> Option<Ordering> {
    let sum = a + b;
    let rest = {
        let virtual_b = sum - a;
        (a - (sum - virtual_b)) + (b - virtual_b)
    };
    match sum.partial_cmp(&f64::from(with))? {
        Ordering::Equal => rest.partial_cmp(&0.0),
        other => Some(other),
    }
}

/// Sum of zeros and of opposites: negative in mode `Down`, unless both are positive.
fn sum(a: f32, b: f32, mode: Mode) -> u64 {
    let nearest = a + b;
    if nearest == 0.0 && mode == Mode::Down && (a.is_sign_negative() || b.is_sign_negative()) {
        return 0x8000_0000;
    }
    directed(nearest, compare_sum(f64::from(a), f64::from(b), nearest), mode)
}

fn product(a: f32, b: f32, mode: Mode) -> u64 {
    let exact = f64::from(a) * f64::from(b);
    directed(a * b, exact.partial_cmp(&f64::from(a * b)), mode)
}

fn fused(a: f32, b: f32, c: f32, mode: Mode) -> u64 {
    let nearest = a.mul_add(b, c);
    let exact = f64::from(a) * f64::from(b);
    if nearest == 0.0 && exact == -f64::from(c) {
        let negative = exact.is_sign_negative() && c.is_sign_negative()
            || mode == Mode::Down && (exact.is_sign_negative() || c.is_sign_negative());
        return if negative { 0x8000_0000 } else { 0 };
    }
    directed(nearest, compare_sum(exact, f64::from(c), nearest), mode)
}

fn quotient(a: f32, b: f32, mode: Mode) -> u64 {
    let nearest = a / b;
    if a.is_infinite() || b == 0.0 || b.is_infinite() {
        return u64::from(nearest.to_bits());
    }
    // The exact quotient is above, if `a` is above the product with a positive divisor.
    let compared = if nearest.is_infinite() {
        0.0f32.partial_cmp(&nearest)
    } else {
        f64::from(a).partial_cmp(&(f64::from(nearest) * f64::from(b)))
    };
    let compared = if b < 0.0 && nearest.is_finite() { compared.map(Ordering::reverse) } else { compared };
    directed(nearest, compared, mode)
}

fn root(a: f32, mode: Mode) -> u64 {
    let nearest = a.sqrt();
    directed(nearest, f64::from(a).partial_cmp(&(f64::from(nearest) * f64::from(nearest))), mode)
}

const SINGLE: &[Form] = &[
    float("add.rz.f32 %d32, %a32, %b32;", 32, |[a, b, _]| sum(single(a), single(b), Mode::Zero)),
    float("add.rm.f32 %d32, %a32, %b32;", 32, |[a, b, _]| sum(single(a), single(b), Mode::Down)),
    float("add.rp.f32 %d32, %a32, %b32;", 32, |[a, b, _]| sum(single(a), single(b), Mode::Up)),
    float("sub.rm.f32 %d32, %a32, %b32;", 32, |[a, b, _]| sum(single(a), -single(b), Mode::Down)),
    float("mul.rz.f32 %d32, %a32, %b32;", 32, |[a, b, _]| product(single(a), single(b), Mode::Zero)),
    float("mul.rm.f32 %d32, %a32, %b32;", 32, |[a, b, _]| product(single(a), single(b), Mode::Down)),
    float("mul.rp.f32 %d32, %a32, %b32;", 32, |[a, b, _]| product(single(a), single(b), Mode::Up)),
    float("fma.rz.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| fused(single(a), single(b), single(c), Mode::Zero)),
    float("fma.rm.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| fused(single(a), single(b), single(c), Mode::Down)),
    float("fma.rp.f32 %d32, %a32, %b32, %c32;", 32, |[a, b, c]| fused(single(a), single(b), single(c), Mode::Up)),
    float("div.rz.f32 %d32, %a32, %b32;", 32, |[a, b, _]| quotient(single(a), single(b), Mode::Zero)),
    float("div.rm.f32 %d32, %a32, %b32;", 32, |[a, b, _]| quotient(single(a), single(b), Mode::Down)),
    float("div.rp.f32 %d32, %a32, %b32;", 32, |[a, b, _]| quotient(single(a), single(b), Mode::Up)),
    float("rcp.rz.f32 %d32, %a32;", 32, |[a, ..]| quotient(1.0, single(a), Mode::Zero)),
    float("rcp.rm.f32 %d32, %a32;", 32, |[a, ..]| quotient(1.0, single(a), Mode::Down)),
    float("rcp.rp.f32 %d32, %a32;", 32, |[a, ..]| quotient(1.0, single(a), Mode::Up)),
    float("sqrt.rz.f32 %d32, %a32;", 32, |[a, ..]| root(single(a), Mode::Zero)),
    float("sqrt.rm.f32 %d32, %a32;", 32, |[a, ..]| root(single(a), Mode::Down)),
    float("sqrt.rp.f32 %d32, %a32;", 32, |[a, ..]| root(single(a), Mode::Up)),
];

#[test]
fn singles_are_rounded_as_directed() {
    check(SINGLE);
}

/// Known results: instruction, operands, and results in the modes `rn`, `rz`, `rm`, `rp`.
type Known = (&'static str, &'static [f64], [u64; 4]);

const ONE: u64 = 0x3ff0_0000_0000_0000;
const MINUS_ONE: u64 = 0xbff0_0000_0000_0000;
const LARGEST: u64 = 0x7fef_ffff_ffff_ffff;
const INFINITY: u64 = 0x7ff0_0000_0000_0000;
const SIGN: u64 = 1 << 63;
const TINY: f64 = 1.0 / (1u64 << 60) as f64;
const NEXT: f64 = 1.0 + f64::EPSILON;

const DOUBLE: [Known; 22] = [
    ("add", &[1.0, TINY], [ONE, ONE, ONE, ONE + 1]),
    ("add", &[1.0, -TINY], [ONE, ONE - 1, ONE - 1, ONE]),
    ("add", &[-1.0, TINY], [MINUS_ONE, MINUS_ONE - 1, MINUS_ONE, MINUS_ONE - 1]),
    ("sub", &[-1.0, TINY], [MINUS_ONE, MINUS_ONE, MINUS_ONE + 1, MINUS_ONE]),
    ("sub", &[1.0, 1.0], [0, 0, SIGN, 0]),
    ("add", &[-0.0, -0.0], [SIGN; 4]),
    ("add", &[f64::MAX, f64::MAX], [INFINITY, LARGEST, LARGEST, INFINITY]),
    ("sub", &[-f64::MAX, f64::MAX], [SIGN | INFINITY, SIGN | LARGEST, SIGN | INFINITY, SIGN | LARGEST]),
    ("add", &[f64::INFINITY, 1.0], [INFINITY; 4]),
    ("mul", &[NEXT, NEXT], [ONE + 2, ONE + 2, ONE + 2, ONE + 3]),
    ("mul", &[NEXT, -NEXT], [MINUS_ONE + 2, MINUS_ONE + 2, MINUS_ONE + 3, MINUS_ONE + 2]),
    ("mul", &[f64::MAX, 2.0], [INFINITY, LARGEST, LARGEST, INFINITY]),
    ("mul", &[1e-300, 1e-300], [0, 0, 0, 1]),
    ("mul", &[-1e-300, 1e-300], [SIGN, SIGN, SIGN | 1, SIGN]),
    ("fma", &[1e-300, 1e-300, -0.0], [0, 0, 0, 1]),
    ("fma", &[NEXT, NEXT, 0.0], [ONE + 2, ONE + 2, ONE + 2, ONE + 3]),
    ("fma", &[1.0, 1.0, -1.0], [0, 0, SIGN, 0]),
    ("fma", &[TINY, TINY, -1.0], [MINUS_ONE, MINUS_ONE - 1, MINUS_ONE, MINUS_ONE - 1]),
    ("div", &[1.0, 3.0], [0x3fd5_5555_5555_5555, 0x3fd5_5555_5555_5555, 0x3fd5_5555_5555_5555, 0x3fd5_5555_5555_5556]),
    ("div", &[-2.0, 3.0], [0xbfe5_5555_5555_5555, 0xbfe5_5555_5555_5555, 0xbfe5_5555_5555_5556, 0xbfe5_5555_5555_5555]),
    ("rcp", &[-3.0], [0xbfd5_5555_5555_5555, 0xbfd5_5555_5555_5555, 0xbfd5_5555_5555_5556, 0xbfd5_5555_5555_5555]),
    ("sqrt", &[2.0], [0x3ff6_a09e_667f_3bcd, 0x3ff6_a09e_667f_3bcc, 0x3ff6_a09e_667f_3bcc, 0x3ff6_a09e_667f_3bcd]),
];

#[test]
fn doubles_are_rounded_as_directed() {
    let mut text =
        ".version 8.0\n.target sm_75\n.address_size 64\n.entry k(.param .u64 out) { .reg .f64 %d; .reg .b64 %o;\n\
                    ld.param.u64 %o, [out];\n"
            .to_owned();
    let mut expected = Vec::new();
    for (name, operands, results) in DOUBLE {
        let operands: String = operands.iter().map(|value| format!(", 0d{:016x}", value.to_bits())).collect();
        for (mode, result) in ["rn", "rz", "rm", "rp"].iter().zip(results) {
            text += &format!("{name}.{mode}.f64 %d{operands}; st.global.f64 [%o+{}], %d;\n", expected.len() * 8);
            expected.push((format!("{name}.{mode}.f64{operands}"), result));
        }
    }
    text += "ret; }";
    let results = super::run_one(&text, expected.len());
    for ((name, expected), result) in expected.iter().zip(results) {
        assert_eq!(result, *expected, "{name}: {result:#x}, not {expected:#x}");
    }
}
