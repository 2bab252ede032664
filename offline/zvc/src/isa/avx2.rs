//! AVX2 version: eight words at a time. Their mask selects an order from a table, which gathers the
//! words that are not zero, or scatters them again.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_cmpeq_epi16, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_setzero_si128,
    _mm_shuffle_epi8, _mm_storeu_si128, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_loadu_si256,
    _mm256_movemask_ps, _mm256_permutevar8x32_epi32, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256,
};

use super::{PagePayload, Unit};
use crate::UNIT_BYTES;

/// Permutations by mask of eight words: for each place, the word that goes there.
type Orders = [[u8; 8]; 256];

/// Gather: the words that are not zero go to the first places; any words go to the others.
const GATHER: Orders = orders(false);
/// Scatter: the place of a word that is not zero gets the word of its rank; the others get any.
const SCATTER: Orders = orders(true);

static GATHER_FOUR: [[u8; 32]; 256] = as_words(&GATHER);
static SCATTER_FOUR: [[u8; 32]; 256] = as_words(&SCATTER);
static GATHER_TWO: [[u8; 16]; 256] = as_bytes(&GATHER, false);
static SCATTER_TWO: [[u8; 16]; 256] = as_bytes(&SCATTER, true);

/// Both directions for one word size. `$eight` is the bytes of eight words, `$unit_mask` the
/// format's mask of a unit.
macro_rules! width {
    ($pack:ident, $unpack:ident, $word:literal, $unit_mask:ty, $load:ident, $store:ident, $mask:ident, $gather:ident, $scatter:ident, $zero:ident) => {
        #[target_feature(enable = "avx2,popcnt")]
        pub(super) fn $pack(units: &[Unit], out: &mut PagePayload) -> usize {
            const MASK: usize = size_of::<$unit_mask>();
            let mut written = 0;
            for unit in units {
                // Whole vectors are written; the next one overwrites the excess.
                let Some(to) = out.get_mut(written..).and_then(<[u8]>::first_chunk_mut::<{ UNIT_BYTES + MASK }>) else {
                    break;
                };
                let (mask_to, words) = to.split_at_mut(MASK);
                let mut at = 0;
                for (eight, mask_to) in unit.as_chunks::<{ 8 * $word }>().0.iter().zip(mask_to) {
                    let vector = $load(eight);
                    *mask_to = $mask(vector);
                    let Some(to) = words.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { break };
                    $store(to, $gather(*mask_to, vector));
                    at += $word * mask_to.count_ones() as usize;
                }
                written += MASK + at;
            }
            written
        }

        #[target_feature(enable = "avx2,popcnt")]
        pub(super) fn $unpack<const LANES: usize>(
            from: [&PagePayload; LANES],
            mut out: [&mut [Unit]; LANES],
        ) -> [usize; LANES] {
            const MASK: usize = size_of::<$unit_mask>();
            let units = out.iter().map(|units| units.len()).min().unwrap_or(0);
            let mut lanes_at = [0; LANES];
            'units: for unit in 0..units {
                for ((lane_at, from), out) in lanes_at.iter_mut().zip(from).zip(&mut out) {
                    // Whole vectors are read.
                    let Some(from) = from.get(*lane_at..).and_then(<[_]>::first_chunk::<{ UNIT_BYTES + MASK }>) else {
                        break 'units;
                    };
                    let Some((masks, words)) = from.split_first_chunk::<MASK>() else { break 'units };
                    let Some(to) = out.get_mut(unit) else { break 'units };
                    // All loads come before any store, as a load waits for the store before it on
                    // some CPUs.
                    let (mut at, mut vectors) = (0, [$zero(); MASK]);
                    for (vector, mask) in vectors.iter_mut().zip(masks) {
                        let Some(from) = words.get(at..).and_then(<[u8]>::first_chunk) else { break };
                        *vector = $scatter(*mask, $load(from));
                        at += $word * mask.count_ones() as usize;
                    }
                    for (to, vector) in to.as_chunks_mut().0.iter_mut().zip(vectors) {
                        $store(to, vector);
                    }
                    *lane_at += MASK + $word * <$unit_mask>::from_le_bytes(*masks).count_ones() as usize;
                }
            }
            lanes_at
        }
    };
}

width!(
    pack_four,
    unpack_four,
    4,
    u32,
    load_four,
    store_four,
    mask_four,
    gather_four,
    scatter_four,
    _mm256_setzero_si256
);
width!(pack_two, unpack_two, 2, u64, load_two, store_two, mask_two, gather_two, scatter_two, _mm_setzero_si128);

/// The scalar version, compiled for these instructions.
#[target_feature(enable = "avx2")]
pub(super) fn sum(block: &[u8]) -> u64 {
    super::scalar::sum(block)
}

#[target_feature(enable = "avx2")]
fn mask_four(words: __m256i) -> u8 {
    let zeros = _mm256_castsi256_ps(_mm256_cmpeq_epi32(words, _mm256_setzero_si256()));
    !low_byte(_mm256_movemask_ps(zeros))
}

#[target_feature(enable = "avx2")]
fn mask_two(words: __m128i) -> u8 {
    let zeros = _mm_cmpeq_epi16(words, _mm_setzero_si128());
    !low_byte(_mm_movemask_epi8(_mm_packs_epi16(zeros, zeros)))
}

#[target_feature(enable = "avx2")]
fn gather_four(mask: u8, words: __m256i) -> __m256i {
    _mm256_permutevar8x32_epi32(words, load_four(order(&GATHER_FOUR, mask)))
}

#[target_feature(enable = "avx2")]
fn gather_two(mask: u8, words: __m128i) -> __m128i {
    _mm_shuffle_epi8(words, load_two(order(&GATHER_TWO, mask)))
}

#[target_feature(enable = "avx2")]
fn scatter_four(mask: u8, words: __m256i) -> __m256i {
    let scattered = _mm256_permutevar8x32_epi32(words, load_four(order(&SCATTER_FOUR, mask)));
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let nonzero = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(i32::from(mask)), bits), bits);
    _mm256_and_si256(scattered, nonzero)
}

#[target_feature(enable = "avx2")]
fn scatter_two(mask: u8, words: __m128i) -> __m128i {
    _mm_shuffle_epi8(words, load_two(order(&SCATTER_TWO, mask)))
}

#[target_feature(enable = "avx2")]
fn load_four(from: &[u8; 32]) -> __m256i {
    // SAFETY: 32 readable bytes; alignment is not required.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store_four(to: &mut [u8; 32], vector: __m256i) {
    // SAFETY: 32 writable bytes; alignment is not required.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx2")]
fn load_two(from: &[u8; 16]) -> __m128i {
    // SAFETY: 16 readable bytes; alignment is not required.
    unsafe { _mm_loadu_si128(from.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
fn store_two(to: &mut [u8; 16], vector: __m128i) {
    // SAFETY: 16 writable bytes; alignment is not required.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), vector) }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "only eight bits are used")]
fn low_byte(mask: i32) -> u8 {
    mask as u8
}

#[expect(clippy::indexing_slicing, reason = "the table has an entry for every mask")]
fn order<const N: usize>(table: &[[u8; N]; 256], mask: u8) -> &[u8; N] {
    &table[usize::from(mask)]
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn orders(scatter: bool) -> Orders {
    let mut orders = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut word, mut rank) = (0, 0);
        while word < 8 {
            if mask >> word & 1 == 1 {
                if scatter {
                    orders[mask][word as usize] = rank;
                } else {
                    orders[mask][rank as usize] = word;
                }
                rank += 1;
            }
            word += 1;
        }
        mask += 1;
    }
    orders
}

/// Operands of the shuffle of 32-bit words: one little-endian word for each place.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn as_words(orders: &Orders) -> [[u8; 32]; 256] {
    let mut words = [[0; 32]; 256];
    let mut at = 0;
    while at < 256 * 8 {
        words[at / 8][4 * (at % 8)] = orders[at / 8][at % 8];
        at += 1;
    }
    words
}

/// Operands of the shuffle of bytes: two bytes for each place. With `zeros`, the places of zero
/// words have the value that results in zero.
#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn as_bytes(orders: &Orders, zeros: bool) -> [[u8; 16]; 256] {
    const ZERO: u8 = 0x80;
    let mut bytes = [[ZERO; 16]; 256];
    let mut at = 0;
    while at < 256 * 8 {
        let (mask, place) = (at / 8, at % 8);
        if !zeros || mask >> place & 1 == 1 {
            bytes[mask][2 * place] = 2 * orders[mask][place];
            bytes[mask][2 * place + 1] = 2 * orders[mask][place] + 1;
        }
        at += 1;
    }
    bytes
}
