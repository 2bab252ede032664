//! Packing and unpacking of pages; and of units without vector instructions, which is what the vector versions are tested against and what does the last unit
//! of data that end within one.

use std::array;

use crate::{
    UNIT_BYTES,
    format::Width,
    isa::{Isa, Room, Unit},
};

/// Packs at most a page, and says how many bytes that took. None where `out` has no room for it.
pub(crate) fn pack_page(isa: Isa, width: Width, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    let (units, last) = raw.as_chunks();
    let mut written = if let Some(room) = out.first_chunk_mut() {
        isa.pack(width, units, room)
    } else {
        let mut room = [0; size_of::<Room>()];
        let written = isa.pack(width, units, &mut room);
        out.get_mut(..written)?.copy_from_slice(room.get(..written)?);
        written
    };
    if !last.is_empty() {
        written += pack_unit(width, last, out.get_mut(written..)?)?;
    }
    Some(written)
}

/// Unpacks at most a page from the beginning of `payload`; says where it ends. None if it is corrupted.
pub(crate) fn unpack_page(isa: Isa, width: Width, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let (units, last) = out.as_chunks_mut();
    let mut spare = None;
    fill_up(payload, &mut spare);
    let [mut end] = isa.unpack(width, [spare.as_ref().or_else(|| payload.first_chunk())?], [units]);
    // Zeros behind the payload are units too.
    let rest = payload.get(end..)?;
    if !last.is_empty() {
        end += unpack_unit(width, rest, last)?;
    }
    Some(end)
}

/// Where what is left of a payload is less than a page can take, the same with zeros behind it.
pub(crate) fn fill_up(payload: &[u8], spare: &mut Option<Room>) {
    if payload.len() < size_of::<Room>() {
        for (to, from) in spare.insert([0; _]).iter_mut().zip(payload) {
            *to = *from;
        }
    }
}

/// `out` has room for them.
pub(crate) fn pack_units(width: Width, units: &[Unit], out: &mut Room) -> usize {
    units
        .iter()
        .fold(0, |at, unit| at + out.get_mut(at..).and_then(|out| pack_unit(width, unit, out)).unwrap_or_default())
}

/// As many units of each page. Any mask is right for a whole unit.
pub(crate) fn unpack_units<const LANES: usize>(
    width: Width,
    from: [&Room; LANES],
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
