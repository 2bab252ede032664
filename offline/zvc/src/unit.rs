//! Packing and unpacking of pages. Data may end within a unit, which vector instructions do not
//! handle.

use crate::{
    format::Width,
    isa::{
        Isa, PagePayload,
        scalar::{pack_unit, unpack_unit},
    },
};

/// Packs at most a page; returns the bytes written. `None` if `out` is too small.
pub(crate) fn pack_page(isa: Isa, width: Width, raw: &[u8], out: &mut [u8]) -> Option<usize> {
    let (units, last) = raw.as_chunks();
    let mut written = if let Some(page_payload) = out.first_chunk_mut() {
        isa.pack(width, units, page_payload)
    } else {
        let mut page_payload = [0; size_of::<PagePayload>()];
        let written = isa.pack(width, units, &mut page_payload);
        out.get_mut(..written)?.copy_from_slice(page_payload.get(..written)?);
        written
    };
    if !last.is_empty() {
        written += pack_unit(width, last, out.get_mut(written..)?)?;
    }
    Some(written)
}

/// Unpacks at most a page from the beginning of `payload`; returns its end. `None` if it is
/// corrupted.
pub(crate) fn unpack_page(isa: Isa, width: Width, payload: &[u8], out: &mut [u8]) -> Option<usize> {
    let (units, last) = out.as_chunks_mut();
    let mut padded = None;
    pad(payload, &mut padded);
    let [mut end] = isa.unpack(width, [padded.as_ref().or_else(|| payload.first_chunk())?], [units]);
    // Padding zeros behind the payload are valid units, so that the end must be checked.
    let rest = payload.get(end..)?;
    if !last.is_empty() {
        end += unpack_unit(width, rest, last)?;
    }
    Some(end)
}

/// Copies the rest of a payload that is shorter than a page's maximum to `padded`, with zeros
/// behind it.
pub(crate) fn pad(payload: &[u8], padded: &mut Option<PagePayload>) {
    if payload.len() < size_of::<PagePayload>() {
        for (to, from) in padded.insert([0; _]).iter_mut().zip(payload) {
            *to = *from;
        }
    }
}
