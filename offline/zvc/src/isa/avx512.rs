//! A vector is half a unit; the instructions that gather the words under a mask, and scatter them, do the work. They go through registers: with
//! memory as the target, some CPUs take a hundred cycles for each.

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_compress_epi16, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi16,
    _mm512_maskz_expand_epi32, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_test_epi16_mask,
    _mm512_test_epi32_mask,
};

use super::{PAGE_UNITS, Room, Unit};
use crate::UNIT_BYTES;

const HALF: usize = UNIT_BYTES / 2;

/// Both directions for one width. `$mask` is what an instruction takes for half a unit, `$whole` what the format has for a unit.
macro_rules! width {
    ($pack:ident, $put:ident, $unpack:ident, $word:literal, $mask:ty, $whole:ty, $test:ident, $compress:ident, $expand:ident) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $pack(units: &[Unit], out: &mut Room) -> usize {
            let mut next = out.as_mut_ptr();
            let units = units.get(..PAGE_UNITS).unwrap_or(units);
            let (groups, rest) = units.as_chunks::<4>();
            // As a load right behind a store may wait for it, four units are read before one is written.
            for [first, second, third, fourth] in groups {
                for unit in [halves(first), halves(second), halves(third), halves(fourth)] {
                    // SAFETY: each unit before took at most a mask and its bytes, and there is room for a page of such.
                    next = unsafe { $put(unit, next) };
                }
            }
            for unit in rest {
                // SAFETY: as above.
                next = unsafe { $put(halves(unit), next) };
            }
            next.addr() - out.as_ptr().addr()
        }

        /// Writes a unit's mask and words, and returns where they end.
        ///
        /// # Safety
        /// There is memory for a mask and a unit's bytes.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        unsafe fn $put([low, high]: [__m512i; 2], to: *mut u8) -> *mut u8 {
            const MASK: usize = size_of::<$whole>();
            const { assert!(PAGE_UNITS * (MASK + UNIT_BYTES) <= size_of::<Room>()) };
            let (low_mask, high_mask) = ($test(low, low), $test(high, high));
            let mask = <$whole>::from(low_mask) | <$whole>::from(high_mask) << <$mask>::BITS;
            // SAFETY: the caller has room for it.
            unsafe { to.cast::<$whole>().write_unaligned(mask.to_le()) };
            let words = to.wrapping_add(MASK);
            // Whole vectors are written, and what is too much of one is written over by the next.
            // SAFETY: the first half of the unit's bytes.
            unsafe { _mm512_storeu_si512(words.cast(), $compress(low_mask, low)) };
            let high_to = words.wrapping_add($word * low_mask.count_ones() as usize);
            // SAFETY: the second half, or closer to the mask.
            unsafe { _mm512_storeu_si512(high_to.cast(), $compress(high_mask, high)) };
            words.wrapping_add($word * mask.count_ones() as usize)
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $unpack<const LANES: usize>(
            from: [&Room; LANES],
            mut out: [&mut [Unit]; LANES],
        ) -> [usize; LANES] {
            const MASK: usize = size_of::<$whole>();
            let units = out.iter().map(|units| units.len()).min().unwrap_or(0).min(PAGE_UNITS);
            let mut next = [std::ptr::null::<u8>(); LANES];
            for (next, from) in next.iter_mut().zip(from) {
                *next = from.as_ptr();
            }
            for unit in 0..units {
                for (next, out) in next.iter_mut().zip(&mut out) {
                    // SAFETY: each unit before took at most a mask and its bytes, and there is room for a page of such: for the mask and 128 bytes more.
                    let mask = <$whole>::from_le(unsafe { next.cast::<$whole>().read_unaligned() });
                    #[expect(clippy::cast_possible_truncation, reason = "the halves of the mask")]
                    let (low_mask, high_mask) = (mask as $mask, (mask >> <$mask>::BITS) as $mask);
                    let words = next.wrapping_add(MASK);
                    // SAFETY: the first 64 of those bytes.
                    let low = unsafe { load(&*words.cast()) };
                    // SAFETY: 64 of those bytes, from the first 64 on at the latest.
                    let high = unsafe { load(&*words.wrapping_add($word * low_mask.count_ones() as usize).cast()) };
                    // SAFETY: there are as many in each.
                    let to = unsafe { out.get_unchecked_mut(unit) };
                    let ([low_to, high_to], _) = to.as_chunks_mut::<HALF>() else { break };
                    // Both are read before either is written: a load right behind a store waits for it where their addresses look alike.
                    let (low, high) = ($expand(low_mask, low), $expand(high_mask, high));
                    store(low_to, low);
                    store(high_to, high);
                    *next = words.wrapping_add($word * mask.count_ones() as usize);
                }
            }
            let mut ends = [0; LANES];
            for ((end, next), from) in ends.iter_mut().zip(next).zip(from) {
                *end = next.addr() - from.as_ptr().addr();
            }
            ends
        }
    };
}

width!(
    pack_four,
    put_four,
    unpack_four,
    4,
    u16,
    u32,
    _mm512_test_epi32_mask,
    _mm512_maskz_compress_epi32,
    _mm512_maskz_expand_epi32
);
width!(
    pack_two,
    put_two,
    unpack_two,
    2,
    u32,
    u64,
    _mm512_test_epi16_mask,
    _mm512_maskz_compress_epi16,
    _mm512_maskz_expand_epi16
);

/// The plain version, built for these instructions.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum(block: &[u8]) -> u64 {
    super::scalar::sum(block)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn halves(unit: &Unit) -> [__m512i; 2] {
    unit.as_chunks().0.first_chunk().map_or([_mm512_setzero_si512(); 2], |[low, high]| [load(low), load(high)])
}

#[target_feature(enable = "avx512f")]
fn load(from: &[u8; HALF]) -> __m512i {
    // SAFETY: 64 bytes that can be read; they need not be aligned.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(to: &mut [u8; HALF], vector: __m512i) {
    // SAFETY: 64 bytes that can be written; they need not be aligned.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
}
