//! `fma.rn.f32`, of which most of the work of neural networks consists.
//!
//! It is computed in `f64`: processors of the first x86-64 have no such instruction, and its
//! software is slow. Rounding twice differs from rounding once where the sum in `f64` is halfway
//! between two `f32`, and perhaps where the result is subnormal. Only such lanes are rounded to odd
//! first.

#![expect(clippy::indexing_slicing, reason = "hot loops: the compiler made the registers, and lanes are below 32")]

use crate::machine::LANES;
use crate::machine::program::Registers;
use crate::machine::state::{State, put};
use crate::ops::float::canonical;
use crate::ops::round::fma_odd;

/// Lanes whose results are computed before they are stored.
const CHUNK: usize = 8;

/// `a * b + c` of one lane, for any values.
pub(super) fn fma(a: f32, b: f32, c: f32) -> f32 {
    fma_odd(f64::from(a), f64::from(b), f64::from(c)) as f32
}

/// Performs the instruction on registers: destination, `a`, `b`, `c`.
pub(super) fn fma_lanes(state: &mut State, registers: &Registers, mask: u32) {
    let [destination, a, b, c, _] = registers.map(|register| register as usize);
    for first in (0..LANES).step_by(CHUNK) {
        let of = |register: usize| &state.words[register][first..first + CHUNK];
        let (a, b, c) = (of(a), of(b), of(c));
        let mut results = [0; CHUNK];
        let mut doubt = false;
        for lane in 0..CHUNK {
            let [a, b, c] = [a, b, c].map(|values| f64::from(f32::from_bits(values[lane])));
            let sum = a * b + c;
            doubt |= is_doubtful(sum);
            results[lane] = canonical(sum as f32).to_bits();
        }
        if doubt {
            for lane in 0..CHUNK {
                let [a, b, c] = [a, b, c].map(|values| f32::from_bits(values[lane]));
                results[lane] = canonical(fma(a, b, c)).to_bits();
            }
        }
        put(&mut state.words[destination][first..first + CHUNK], &results, mask >> first);
    }
}

/// Tells whether rounding this to `f32` perhaps differs from rounding the exact sum.
#[inline]
fn is_doubtful(sum: f64) -> bool {
    let bits = sum.to_bits();
    let (upper, lower) = ((bits >> 32) as u32 & 0x7fff_ffff, bits as u32);
    let halfway = lower & 0x1fff_ffff == 0x1000_0000;
    // Below 2^-126, and not zero.
    let subnormal = upper.wrapping_sub(1) < 0x3810_0000 - 1;
    halfway | subnormal
}
