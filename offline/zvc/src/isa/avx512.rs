//! AVX-512 version: a vector is half a unit, and the instructions compress and expand do the work
//! under a mask. They use registers: with a memory operand, some CPUs take a hundred cycles for
//! each.

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_compress_epi16, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi16,
    _mm512_maskz_expand_epi32, _mm512_setzero_si512, _mm512_storeu_si512, _mm512_test_epi16_mask,
    _mm512_test_epi32_mask,
};

use super::{PAGE_UNITS, PagePayload, Unit};
use crate::UNIT_BYTES;

const HALF: usize = UNIT_BYTES / 2;

/// Both directions for one word size. `$mask` is the instructions' mask of half a unit,
/// `$unit_mask` the format's mask of a unit.
macro_rules! width {
    ($pack:ident, $put:ident, $unpack:ident, $word:literal, $mask:ty, $unit_mask:ty, $test:ident, $compress:ident, $expand:ident) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $pack(units: &[Unit], out: &mut PagePayload) -> usize {
            let mut next = out.as_mut_ptr();
            let units = units.get(..PAGE_UNITS).unwrap_or(units);
            let (groups, rest) = units.as_chunks::<4>();
            // Four units are loaded before one is stored, as a load right behind a store may wait
            // for it.
            for [first, second, third, fourth] in groups {
                for unit in [halves(first), halves(second), halves(third), halves(fourth)] {
                    // SAFETY: each unit before took at most a mask and its bytes, and `out` has
                    // these for all units of a page.
                    next = unsafe { $put(unit, next) };
                }
            }
            for unit in rest {
                // SAFETY: `groups` and `rest` are at most the units of a page, each of which took at most
                // a mask and its bytes: `out` has room for one more.
                next = unsafe { $put(halves(unit), next) };
            }
            next.addr() - out.as_ptr().addr()
        }

        /// Writes a unit's mask and words; returns their end.
        ///
        /// # Safety
        /// `to` must be writable for a mask and a unit's bytes.
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        unsafe fn $put([low, high]: [__m512i; 2], to: *mut u8) -> *mut u8 {
            const MASK: usize = size_of::<$unit_mask>();
            const { assert!(PAGE_UNITS * (MASK + UNIT_BYTES) <= size_of::<PagePayload>()) };
            let (low_mask, high_mask) = ($test(low, low), $test(high, high));
            let mask = <$unit_mask>::from(low_mask) | <$unit_mask>::from(high_mask) << <$mask>::BITS;
            // SAFETY: the caller guarantees this memory.
            unsafe { to.cast::<$unit_mask>().write_unaligned(mask.to_le()) };
            let words = to.wrapping_add(MASK);
            // Whole vectors are written; the next one overwrites the excess.
            // SAFETY: the first half of the unit's bytes.
            unsafe { _mm512_storeu_si512(words.cast(), $compress(low_mask, low)) };
            let high_to = words.wrapping_add($word * low_mask.count_ones() as usize);
            // SAFETY: the second half, or closer to the mask.
            unsafe { _mm512_storeu_si512(high_to.cast(), $compress(high_mask, high)) };
            words.wrapping_add($word * mask.count_ones() as usize)
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $unpack<const LANES: usize>(
            from: [&PagePayload; LANES],
            mut out: [&mut [Unit]; LANES],
        ) -> [usize; LANES] {
            const MASK: usize = size_of::<$unit_mask>();
            let units = out.iter().map(|units| units.len()).min().unwrap_or(0).min(PAGE_UNITS);
            let mut next = [std::ptr::null::<u8>(); LANES];
            for (next, from) in next.iter_mut().zip(from) {
                *next = from.as_ptr();
            }
            for unit in 0..units {
                for (next, out) in next.iter_mut().zip(&mut out) {
                    // SAFETY: each unit before took at most a mask and its bytes, and `from` has
                    // these for all units of a page: the mask and 128 more bytes are readable.
                    let mask = <$unit_mask>::from_le(unsafe { next.cast::<$unit_mask>().read_unaligned() });
                    #[expect(clippy::cast_possible_truncation, reason = "the halves of the mask")]
                    let (low_mask, high_mask) = (mask as $mask, (mask >> <$mask>::BITS) as $mask);
                    let words = next.wrapping_add(MASK);
                    // SAFETY: the first 64 of those bytes.
                    let low = unsafe { load(&*words.cast()) };
                    // SAFETY: 64 of those bytes, at most 64 after the first.
                    let high = unsafe { load(&*words.wrapping_add($word * low_mask.count_ones() as usize).cast()) };
                    // SAFETY: every lane has at least `units` units.
                    let to = unsafe { out.get_unchecked_mut(unit) };
                    let ([low_to, high_to], _) = to.as_chunks_mut::<HALF>() else { break };
                    // Both loads come before either store: a load right behind a store waits for it
                    // if their addresses look alike.
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

/// The scalar version, compiled for these instructions.
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
    // SAFETY: 64 readable bytes; alignment is not required.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn store(to: &mut [u8; HALF], vector: __m512i) {
    // SAFETY: 64 writable bytes; alignment is not required.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) }
}
