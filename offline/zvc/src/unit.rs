//! Packing and unpacking of pages. Data may end within a unit, which no vector instructions do.

use crate::{
    format::Width,
    isa::{
        Isa, Room,
        scalar::{pack_unit, unpack_unit},
    },
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
