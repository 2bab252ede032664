//! Arithmetic of products.

use super::super::lanes::Pure;
use super::fragment::{Element, Fragment, Shape};
use crate::machine::program::Compute;
use crate::machine::state::State;
use crate::ops::float::canonical;
use crate::ops::half::{Bf16, F16, Half};

/// Bits of `f32` that `tf32` has.
const TF32_BITS: u32 = !0x1fff;

/// Work of a product on the fragments `A`, `B`, `C` and `D`; none for types that do not go
/// together. A `finite` one ends at the least and the largest integer.
pub(super) fn work(shape: Shape, fragments: [Fragment; 4], finite: bool) -> Option<Compute> {
    use Element::{Bf16, F16, F32, F64, S8, S32, Tf32, U8};
    match (fragments.each_ref().map(|fragment| fragment.element), finite) {
        ([S8 | U8, S8 | U8, S32, S32], _) => Some(integers(shape, fragments, finite)),
        ([F64, F64, F64, F64], false) => Some(floats(shape, fragments, |sum, a, b| a.mul_add(b, sum))),
        ([F16, F16, F16 | F32, F16 | F32] | [Bf16, Bf16, F32, F32] | [Tf32, Tf32, F32, F32], false) => {
            Some(floats(shape, fragments, |sum, a, b| sum + a * b))
        }
        _ => None,
    }
}

fn integers(shape: Shape, [a, b, c, d]: [Fragment; 4], finite: bool) -> Compute {
    Box::new(move |state, _| {
        let [a, b, c] = [&a, &b, &c].map(|fragment| gather(state, fragment, integer));
        let product = sums(shape, &a, &b, c, |sum, a, b| sum + a * b);
        scatter(state, &d, &product, |sum: i64| {
            let sum = if finite { sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) } else { sum };
            u64::from(sum as u32)
        });
    })
}

fn floats(shape: Shape, [a, b, c, d]: [Fragment; 4], add: impl Fn(f64, f64, f64) -> f64 + Pure) -> Compute {
    let element = d.element;
    Box::new(move |state, _| {
        let [a, b, c] = [&a, &b, &c].map(|fragment| gather(state, fragment, float));
        let product = sums(shape, &a, &b, c, add);
        scatter(state, &d, &product, |sum: f64| match element {
            Element::F16 => u64::from(F16::nearest(sum).bits()),
            Element::F64 => sum.to_bits(),
            _ => u64::from(canonical(sum as f32).to_bits()),
        });
    })
}

/// Adds the products of rows of `A` and columns of `B` to `C`.
fn sums<T: Copy>(shape: Shape, a: &[T], b: &[T], mut c: Vec<T>, add: impl Fn(T, T, T) -> T) -> Vec<T> {
    let rows = c.chunks_exact_mut(shape.n).zip(a.chunks_exact(shape.k));
    for (sums, row) in rows {
        for (&a, row) in row.iter().zip(b.chunks_exact(shape.n)) {
            for (sum, &b) in sums.iter_mut().zip(row) {
                *sum = add(*sum, a, b);
            }
        }
    }
    c
}

/// Matrix by rows of a fragment.
fn gather<T: Copy + Default>(state: &State, fragment: &Fragment, read: impl Fn(Element, u64) -> T) -> Vec<T> {
    let of = fragment.element.register();
    let mut matrix = vec![T::default(); fragment.len()];
    for (lane, register, bit, at) in fragment.elements() {
        if let Some(element) = matrix.get_mut(at) {
            *element = read(fragment.element, state.lane(of, register, lane) >> bit);
        }
    }
    matrix
}

/// Sets the registers of a fragment.
fn scatter<T: Copy>(state: &mut State, fragment: &Fragment, matrix: &[T], write: impl Fn(T) -> u64) {
    let of = fragment.element.register();
    for (lane, register, bit, at) in fragment.elements() {
        let Some(&element) = matrix.get(at) else { continue };
        // The element in the lowest bits comes first, and clears the others.
        let before = if bit == 0 { 0 } else { state.lane(of, register, lane) };
        state.set_lane(of, register, lane, before | write(element) << bit);
    }
}

fn integer(element: Element, bits: u64) -> i64 {
    match element {
        Element::S8 => i64::from(bits as u8 as i8),
        Element::U8 => i64::from(bits as u8),
        _ => i64::from(bits as u32 as i32),
    }
}

fn float(element: Element, bits: u64) -> f64 {
    match element {
        Element::F16 => F16::from_bits(bits as u16).to_f64(),
        Element::Bf16 => Bf16::from_bits(bits as u16).to_f64(),
        Element::Tf32 => f64::from(f32::from_bits(bits as u32 & TF32_BITS)),
        Element::F64 => f64::from_bits(bits),
        _ => f64::from(f32::from_bits(bits as u32)),
    }
}
