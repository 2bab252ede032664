//! Registers of a warp, and the values of its lanes.

use super::LANES;
use crate::ops::half::{Bf16, F16};
use crate::types::Type;

/// Registers and local memory of a warp.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Registers of up to 32 bits. The upper bits of a narrower register mean nothing.
    pub(crate) words: Vec<[u32; LANES]>,
    /// Registers of 64 bits.
    pub(crate) longs: Vec<[u64; LANES]>,
    /// Predicates: one bit per lane.
    pub(crate) predicates: Vec<u32>,
    /// Carry flags: one bit per lane. After a subtraction, set where nothing was borrowed: hardware adds the complement, and
    /// NVIDIA's code for 128-bit division reads that flag with `addc`.
    pub(crate) carry: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// Local memory, lane after lane.
    pub(crate) local: Vec<u8>,
    /// Local memory of a lane.
    pub(crate) local_bytes: usize,
    /// Offset of the running function's frame in local memory.
    pub(crate) frame_bytes: u64,
}

/// Contents of a register: `u32` or `u64`.
pub(crate) trait Word: Copy + Default + Send + Sync + 'static {
    fn file(state: &State) -> &[[Self; LANES]];
    fn file_mut(state: &mut State) -> &mut [[Self; LANES]];
}

impl Word for u32 {
    #[inline]
    fn file(state: &State) -> &[[Self; LANES]] {
        &state.words
    }

    #[inline]
    fn file_mut(state: &mut State) -> &mut [[Self; LANES]] {
        &mut state.words
    }
}

impl Word for u64 {
    #[inline]
    fn file(state: &State) -> &[[Self; LANES]] {
        &state.longs
    }

    #[inline]
    fn file_mut(state: &mut State) -> &mut [[Self; LANES]] {
        &mut state.longs
    }
}

/// Value of a lane, in a register of its word.
pub(crate) trait Lane: Copy + Send + Sync + 'static {
    type Word: Word;
    /// Type of the register's contents.
    const TYPE: Type;
    fn from_word(word: Self::Word) -> Self;
    fn into_word(self) -> Self::Word;
}

macro_rules! lane {
    ($($value:ty, $word:ty, $type:ident, |$from:ident| $read:expr, |$into:ident| $write:expr;)*) => {
        $(impl Lane for $value {
            type Word = $word;
            const TYPE: Type = Type::$type;
            #[inline]
            fn from_word($from: $word) -> Self {
                $read
            }
            #[inline]
            fn into_word(self) -> $word {
                let $into = self;
                $write
            }
        })*
    };
}

lane! {
    u8, u32, U8, |word| word as u8, |value| u32::from(value);
    i8, u32, S8, |word| word as u8 as i8, |value| i32::from(value) as u32;
    u16, u32, U16, |word| word as u16, |value| u32::from(value);
    i16, u32, S16, |word| word as u16 as i16, |value| i32::from(value) as u32;
    u32, u32, U32, |word| word, |value| value;
    i32, u32, S32, |word| word as i32, |value| value as u32;
    u64, u64, U64, |word| word, |value| value;
    i64, u64, S64, |word| word as i64, |value| value as u64;
    f32, u32, F32, |word| f32::from_bits(word), |value| value.to_bits();
    f64, u64, F64, |word| f64::from_bits(word), |value| value.to_bits();
    F16, u32, F16, |word| F16(word as u16), |value| u32::from(value.0);
    Bf16, u32, Bf16, |word| Bf16(word as u16), |value| u32::from(value.0);
}

/// Stores the active lanes of a result; the mask's lowest bit is about the first.
#[inline]
pub(crate) fn put<W: Word, const N: usize>(register: &mut [W], result: &[W; N], mask: u32) {
    let all = u32::MAX >> (LANES - N);
    if mask & all == all {
        register.copy_from_slice(result);
    } else {
        for (lane, (old, new)) in register.iter_mut().zip(result).enumerate() {
            *old = if mask >> lane & 1 != 0 { *new } else { *old };
        }
    }
}

impl State {
    /// Mask of a predicate, which may be negated.
    #[inline]
    pub(crate) fn predicate(&self, (predicate, negated): (usize, bool)) -> u32 {
        let mask = self.predicates.get(predicate).copied().unwrap_or_default();
        if negated { !mask } else { mask }
    }

    /// Sets the lanes of a mask.
    #[inline]
    pub(crate) fn set_predicate(&mut self, predicate: usize, value: u32, mask: u32) {
        if let Some(old) = self.predicates.get_mut(predicate) {
            *old = *old & !mask | value & mask;
        }
    }

    /// Contents of a register in one lane, for what is not worth closures of its own.
    #[inline]
    pub(crate) fn lane(&self, of: Type, register: usize, lane: usize) -> u64 {
        if of.bytes() == 8 {
            self.longs.get(register).and_then(|values| values.get(lane)).copied().unwrap_or_default()
        } else {
            self.words.get(register).and_then(|values| values.get(lane)).map_or(0, |&value| u64::from(value))
        }
    }

    /// Sets a register in one lane.
    #[inline]
    pub(crate) fn set_lane(&mut self, of: Type, register: usize, lane: usize, value: u64) {
        if of.bytes() == 8 {
            if let Some(place) = self.longs.get_mut(register).and_then(|values| values.get_mut(lane)) {
                *place = value;
            }
        } else if let Some(place) = self.words.get_mut(register).and_then(|values| values.get_mut(lane)) {
            *place = value as u32;
        }
    }
}
