//! Scalar version: the reference for tests of the vector versions, and the code for a last unit
//! that is incomplete.

use std::array;

use super::{PagePayload, Unit};
use crate::{UNIT_BYTES, Width};

/// Packs units into `out`, which is large enough.
pub(crate) fn pack_units(width: Width, units: &[Unit], out: &mut PagePayload) -> usize {
    units
        .iter()
        .fold(0, |at, unit| at + out.get_mut(at..).and_then(|out| pack_unit(width, unit, out)).unwrap_or_default())
}

/// Unpacks equally many units of each page. Any mask is valid for a whole unit.
pub(crate) fn unpack_units<const LANES: usize>(
    width: Width,
    from: [&PagePayload; LANES],
    mut out: [&mut [Unit]; LANES],
) -> [usize; LANES] {
    array::from_fn(|lane| {
        let (from, units) = (from.get(lane), out.get_mut(lane).map_or(&mut [][..], |units| units));
        units.iter_mut().fold(0, |at, unit| {
            let payload = from.and_then(|from| from.get(at..)).unwrap_or_default();
            at + unpack_unit(width, payload, unit).unwrap_or_default()
        })
    })
}

/// Packs a unit, or the incomplete one at the end of the data.
pub(crate) fn pack_unit(width: Width, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut padded = [0; UNIT_BYTES];
    let whole = raw.len().next_multiple_of(width.bytes());
    padded.get_mut(..raw.len())?.copy_from_slice(raw);
    let raw = padded.get(..whole)?;
    let (mask_out, words_out) = out.split_at_mut_checked(width.mask_bytes())?;
    let (mask, words_bytes) = match width {
        Width::Two => pack_words::<2>(raw, words_out)?,
        Width::Four => pack_words::<4>(raw, words_out)?,
    };
    mask_out.copy_from_slice(mask.to_le_bytes().get(..width.mask_bytes())?);
    Some(width.mask_bytes() + words_bytes)
}

/// Writes every word, and the next one over it if it was zero: no branch depends on the data.
fn pack_words<const WORD: usize>(raw: &[u8], out: &mut [u8]) -> Option<(u64, usize)> {
    let (mut mask, mut at) = (0, 0);
    for (bit, word) in raw.as_chunks::<WORD>().0.iter().enumerate() {
        out.get_mut(at..at + WORD)?.copy_from_slice(word);
        let nonzero = *word != [0; WORD];
        mask |= u64::from(nonzero) << bit;
        at += WORD * usize::from(nonzero);
    }
    Some((mask, at))
}

/// Unpacks a unit, or the incomplete one at the end of the data.
pub(crate) fn unpack_unit(width: Width, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mask_bytes, words) = payload.split_at_checked(width.mask_bytes())?;
    let mut mask = [0; 8];
    mask.get_mut(..mask_bytes.len())?.copy_from_slice(mask_bytes);
    let mask = u64::from_le_bytes(mask);
    let mut padded = [0; UNIT_BYTES];
    let whole = out.len().next_multiple_of(width.bytes());
    // A whole unit of 2-byte words has no bits beyond.
    if mask.checked_shr(u32::try_from(whole / width.bytes()).ok()?).is_some_and(|beyond| beyond != 0) {
        return None;
    }
    let words_bytes = match width {
        Width::Two => unpack_words::<2>(mask, words, padded.get_mut(..whole)?)?,
        Width::Four => unpack_words::<4>(mask, words, padded.get_mut(..whole)?)?,
    };
    let (data, padding) = padded.split_at_checked(out.len())?;
    if padding.iter().any(|&byte| byte != 0) {
        return None;
    }
    out.copy_from_slice(data);
    Some(width.mask_bytes() + words_bytes)
}

/// Scatters words into `out`, which is zero.
fn unpack_words<const WORD: usize>(mask: u64, words: &[u8], out: &mut [u8]) -> Option<usize> {
    let nonzero = words.as_chunks::<WORD>().0.get(..mask.count_ones() as usize)?;
    let out = out.as_chunks_mut::<WORD>().0;
    let mut left = mask;
    for word in nonzero {
        *out.get_mut(left.trailing_zeros() as usize)? = *word;
        left &= left.wrapping_sub(1);
    }
    Some(nonzero.len() * WORD)
}

/// Bytes of one sum: as many keys are needed, and the keys fit the L1 cache with the block.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Two keys for every 8 bytes of a block.
pub(crate) static KEYS: Keys = Keys(keys());

/// Aligned, so that the keys occupy the fewest cache lines.
#[repr(align(64))]
pub(crate) struct Keys(pub(crate) [u64; BLOCK_BYTES / 8]);

/// Sum of words of 4 bytes times their keys, of a block or of the beginning of one that is padded
/// with zeros. This plain loop becomes vector instructions; a closure would be compiled for the
/// baseline instructions first.
#[expect(clippy::inline_always, reason = "compiled for the instructions of its caller")]
#[inline(always)]
pub(crate) fn sum(block: &[u8]) -> u64 {
    let (pairs, rest) = block.as_chunks();
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    let mut sum = KEYS.0.get(pairs.len()).map_or(0, |keys| product(last, *keys));
    for (words, keys) in pairs.iter().zip(&KEYS.0) {
        sum = sum.wrapping_add(product(*words, *keys));
    }
    sum
}

/// Sum of two words times their keys.
#[expect(clippy::inline_always, reason = "as for sum")]
#[inline(always)]
fn product(words: [u8; 8], keys: u64) -> u64 {
    let words = u64::from_le_bytes(words);
    let low = (words & u64::from(u32::MAX)) * (keys & u64::from(u32::MAX));
    low.wrapping_add((words >> 32) * (keys >> 32))
}

#[expect(clippy::indexing_slicing, reason = "evaluated at compile time")]
const fn keys() -> [u64; BLOCK_BYTES / 8] {
    let mut keys = [0; BLOCK_BYTES / 8];
    let mut at = 0;
    while at < keys.len() {
        keys[at] = splitmix(at as u64) | 1 << 32 | 1;
        at += 1;
    }
    keys
}

/// Number `at`, from 0, of `SplitMix64` with the seed 0.
pub(crate) const fn splitmix(at: u64) -> u64 {
    let state = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
