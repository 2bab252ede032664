//! `fma.rn.f32`, of which most of the work of neural networks consists.

#![expect(unsafe_code, reason = "an instruction that not every processor has")]
#![expect(clippy::indexing_slicing, reason = "hot loops: the compiler made the registers, and lanes are below 32")]

use super::lanes::{CHUNK, chunks};
use crate::machine::program::{LaneWork, Registers};
use crate::machine::state::{State, put};
use crate::ops::float::canonical;

/// Work on registers: destination, `a`, `b`, `c`.
pub(super) fn fma_work() -> LaneWork {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("fma") {
        // SAFETY: The processor has the instruction.
        return |state, registers, mask| unsafe { by_instruction(state, registers, mask) };
    }
    lanes
}

/// The first x86-64 has no such instruction, and its software is slow, above all where the
/// processor is emulated.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn by_instruction(state: &mut State, registers: &Registers, mask: u32) {
    lanes(state, registers, mask);
}

#[expect(clippy::inline_always, reason = "to be compiled with the instructions of its caller")]
#[inline(always)]
fn lanes(state: &mut State, registers: &Registers, mask: u32) {
    let [destination, a, b, c, _] = registers.map(|register| register as usize);
    for first in chunks(mask) {
        let of = |register: usize| &state.words[register][first..first + CHUNK];
        let (a, b, c) = (of(a), of(b), of(c));
        let mut results = [0; CHUNK];
        for lane in 0..CHUNK {
            let sum = f32::from_bits(a[lane]).mul_add(f32::from_bits(b[lane]), f32::from_bits(c[lane]));
            results[lane] = canonical(sum).to_bits();
        }
        put(&mut state.words[destination][first..first + CHUNK], &results, mask >> first);
    }
}
