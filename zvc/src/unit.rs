//! Packing and unpacking of units without vector instructions: what the vector versions are tested against, and what does the last units of every
//! payload, which those leave.

use std::array;

use crate::{UNIT_BYTES, format::Width, isa::Isa};

/// Packs at most a page, and says how many bytes that took. None where `out` has no room for the worst case.
pub(crate) fn pack_page(isa: Isa, width: Width, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mut read, mut written) = isa.pack(width, raw, out);
    while let Some(rest) = raw.get(read..).filter(|rest| !rest.is_empty()) {
        let unit = rest.get(..UNIT_BYTES).unwrap_or(rest);
        written += pack_unit(width, unit, out.get_mut(written..)?)?;
        read += unit.len();
    }
    Some(written)
}

/// Unpacks `LANES` pieces of data, which fill `out` together and are of one size, from where in `payload` each begins; says where each ends, or which
/// of them is corrupted.
pub(crate) fn unpack_lanes<const LANES: usize>(
    isa: Isa,
    width: Width,
    payload: &[u8],
    begins: [usize; LANES],
    out: &mut [u8],
) -> Result<[usize; LANES], usize> {
    let mut at = begins;
    let part = (out.len() / LANES).max(1);
    let mut parts = out.chunks_mut(part);
    let units = array::from_fn(|_| parts.next().unwrap_or_default().as_chunks_mut().0);
    let written = isa.unpack(width, payload, &mut at, units);
    for (lane, ((at, out), done)) in at.iter_mut().zip(out.chunks_mut(part)).zip(written).enumerate() {
        let rest = out.get_mut(done * UNIT_BYTES..).unwrap_or_default();
        // The others need not stop where one of them had to.
        let mut alone = [*at];
        let [more] = isa.unpack(width, payload, &mut alone, [rest.as_chunks_mut().0]);
        [*at] = alone;
        for unit in rest.chunks_mut(UNIT_BYTES).skip(more) {
            let payload = payload.get(*at..).ok_or(lane)?;
            *at += unpack_last(isa, width, payload, unit).ok_or(lane)?;
        }
    }
    Ok(at)
}

/// Unpacks a unit behind which the payload ends, too early for vectors.
fn unpack_last(isa: Isa, width: Width, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut longer = [0; 2 * UNIT_BYTES];
    let bytes = payload.len().min(longer.len());
    longer.get_mut(..bytes)?.copy_from_slice(payload.get(..bytes)?);
    let mut read = [0];
    if isa.unpack(width, &longer, &mut read, [out.as_chunks_mut().0]) == [1] {
        let [read] = read;
        return (read <= payload.len()).then_some(read);
    }
    unpack_unit(width, payload, out)
}

/// `raw` is a unit, or what is left at the end of the data.
fn pack_unit(width: Width, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    let mut filled = [0; UNIT_BYTES];
    let whole = raw.len().next_multiple_of(width.bytes());
    filled.get_mut(..raw.len())?.copy_from_slice(raw);
    let raw = filled.get(..whole)?;
    let (mask_out, words_out) = out.split_at_mut_checked(width.mask_bytes())?;
    let (mask, words_bytes) = match width {
        Width::Two => pack_words::<2>(raw, words_out)?,
        Width::Four => pack_words::<4>(raw, words_out)?,
    };
    mask_out.copy_from_slice(mask.to_le_bytes().get(..width.mask_bytes())?);
    Some(width.mask_bytes() + words_bytes)
}

/// Every word is written, and the next one over it if it was zero: no branch depends on the data.
fn pack_words<const WORD: usize>(raw: &[u8], out: &mut [u8]) -> Option<(u64, usize)> {
    let (mut mask, mut at) = (0, 0);
    for (bit, word) in raw.as_chunks::<WORD>().0.iter().enumerate() {
        out.get_mut(at..at + WORD)?.copy_from_slice(word);
        let some = *word != [0; WORD];
        mask |= u64::from(some) << bit;
        at += WORD * usize::from(some);
    }
    Some((mask, at))
}

/// `out` is a unit, or what is left at the end of the data.
fn unpack_unit(width: Width, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let (mask_bytes, words) = payload.split_at_checked(width.mask_bytes())?;
    let mut mask = [0; 8];
    mask.get_mut(..mask_bytes.len())?.copy_from_slice(mask_bytes);
    let mask = u64::from_le_bytes(mask);
    let mut filled = [0; UNIT_BYTES];
    let whole = out.len().next_multiple_of(width.bytes());
    // A whole unit of 2-byte words has no bits beyond.
    if mask.checked_shr(u32::try_from(whole / width.bytes()).ok()?).is_some_and(|beyond| beyond != 0) {
        return None;
    }
    let words_bytes = match width {
        Width::Two => unpack_words::<2>(mask, words, filled.get_mut(..whole)?)?,
        Width::Four => unpack_words::<4>(mask, words, filled.get_mut(..whole)?)?,
    };
    let (data, filling) = filled.split_at_checked(out.len())?;
    if filling.iter().any(|&byte| byte != 0) {
        return None;
    }
    out.copy_from_slice(data);
    Some(width.mask_bytes() + words_bytes)
}

/// `out` is zero.
fn unpack_words<const WORD: usize>(mask: u64, words: &[u8], out: &mut [u8]) -> Option<usize> {
    let some = words.as_chunks::<WORD>().0.get(..mask.count_ones() as usize)?;
    let out = out.as_chunks_mut::<WORD>().0;
    let mut left = mask;
    for word in some {
        *out.get_mut(left.trailing_zeros() as usize)? = *word;
        left &= left.wrapping_sub(1);
    }
    Some(some.len() * WORD)
}
