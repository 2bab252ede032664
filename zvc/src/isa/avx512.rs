//! A vector is half a unit; the instructions that gather the words under a mask, and scatter them, do the work. They go through registers: with
//! memory as the target, some CPUs take a hundred cycles for each.

use std::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_maskz_compress_epi16, _mm512_maskz_compress_epi32, _mm512_maskz_expand_epi16,
    _mm512_maskz_expand_epi32, _mm512_storeu_si512, _mm512_test_epi16_mask, _mm512_test_epi32_mask,
};

use super::{Progress, Unit, Written, written};
use crate::UNIT_BYTES;

const HALF: usize = UNIT_BYTES / 2;

/// Both directions for one width. `$mask` is what an instruction takes for half a unit, `$whole` what the format has for a unit.
macro_rules! width {
    ($pack:ident, $unpack:ident, $word:literal, $mask:ty, $whole:ty, $test:ident, $compress:ident, $expand:ident) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $pack(raw: &[u8], out: &mut [u8]) -> Progress {
            const MASK: usize = size_of::<$whole>();
            let (mut read, mut written) = (0, 0);
            for unit in raw.as_chunks::<UNIT_BYTES>().0 {
                // Room for the worst case: whole vectors are written, and what is too much of one is written over by the next.
                let Some(to) = out.get_mut(written..).and_then(<[u8]>::first_chunk_mut::<{ UNIT_BYTES + MASK }>) else {
                    break;
                };
                let ([low, high], _) = unit.as_chunks::<HALF>() else { break };
                let (low, high) = (load(low), load(high));
                let (low_mask, high_mask) = ($test(low, low), $test(high, high));
                let mask = <$whole>::from(low_mask) | <$whole>::from(high_mask) << <$mask>::BITS;
                let low_bytes = $word * low_mask.count_ones() as usize;
                let (mask_to, words) = to.split_at_mut(MASK);
                mask_to.copy_from_slice(&mask.to_le_bytes());
                let Some(low_to) = words.first_chunk_mut() else { break };
                store(low_to, $compress(low_mask, low));
                let Some(high_to) = words.get_mut(low_bytes..).and_then(<[u8]>::first_chunk_mut) else { break };
                store(high_to, $compress(high_mask, high));
                read += UNIT_BYTES;
                written += MASK + $word * mask.count_ones() as usize;
            }
            (read, written)
        }

        #[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,popcnt")]
        pub(super) fn $unpack<const LANES: usize>(
            payload: &[u8],
            lanes: &mut [usize; LANES],
            mut out: [&mut [Unit]; LANES],
        ) -> Written<LANES> {
            const MASK: usize = size_of::<$whole>() / $word;
            let words = payload.as_chunks::<$word>().0;
            // In words, not bytes: the next mask is waited for, and this spares a shift on the way there.
            let mut at = lanes.map(|at| at / $word);
            let units = out.iter().map(|units| units.len()).min().unwrap_or(0);
            let (mut unit, mut ahead) = (0, 0);
            'units: while unit < units {
                for (lane, (at, out)) in at.iter_mut().zip(&mut out).enumerate() {
                    ahead = lane;
                    // The worst case again: whole vectors are read.
                    let Some(from) = words.get(*at..).and_then(<[_]>::first_chunk::<{ UNIT_BYTES / $word + MASK }>)
                    else {
                        break 'units;
                    };
                    let Some((mask, words)) = from.split_first_chunk::<MASK>() else { break 'units };
                    let Some(mask) = mask.as_flattened().first_chunk() else { break 'units };
                    let mask = <$whole>::from_le_bytes(*mask);
                    #[expect(clippy::cast_possible_truncation, reason = "the halves of the mask")]
                    let (low_mask, high_mask) = (mask as $mask, (mask >> <$mask>::BITS) as $mask);
                    let Some(low) = words.as_flattened().first_chunk() else { break 'units };
                    let Some(high) = words.get(low_mask.count_ones() as usize..) else { break 'units };
                    let Some(high) = high.as_flattened().first_chunk() else { break 'units };
                    let Some(to) = out.get_mut(unit) else { break 'units };
                    let ([low_to, high_to], _) = to.as_chunks_mut::<HALF>() else { break 'units };
                    // Both are read before either is written: a load right behind a store waits for it where their addresses look alike.
                    let (low, high) = ($expand(low_mask, load(low)), $expand(high_mask, load(high)));
                    store(low_to, low);
                    store(high_to, high);
                    *at = *at + MASK + mask.count_ones() as usize;
                }
                ahead = 0;
                unit += 1;
            }
            *lanes = at.map(|at| at * $word);
            written(unit, ahead)
        }
    };
}

width!(
    pack_four,
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
    unpack_two,
    2,
    u32,
    u64,
    _mm512_test_epi16_mask,
    _mm512_maskz_compress_epi16,
    _mm512_maskz_expand_epi16
);

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
