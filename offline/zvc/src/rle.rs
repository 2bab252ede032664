//! Run-length encoding of zero words, the alternative codec for the paper's engine. Only for
//! comparison with zero-value compression.
//!
//! Each run has a token of one byte: the highest bit is set for zeros, the others are the length
//! less one. The words of other runs follow the token. Runs consist of whole words; an incomplete
//! last word follows unchanged.

use crate::{Error, Width};

const ZEROS: u8 = 0x80;
const LONGEST: usize = 128;

/// Encodes `raw`.
#[must_use]
pub fn pack(raw: &[u8], width: Width) -> Vec<u8> {
    let mut out = Vec::new();
    let words = raw.chunks_exact(width.bytes());
    let rest = words.remainder();
    let words: Vec<&[u8]> = words.collect();
    let zero = |word: &&[u8]| word.iter().all(|&byte| byte == 0);
    for run in words.chunk_by(|one, next| zero(one) == zero(next)) {
        let zeros = run.first().is_some_and(zero);
        for run in run.chunks(LONGEST) {
            let length = u8::try_from(run.len() - 1).unwrap_or(!ZEROS);
            out.push(length | if zeros { ZEROS } else { 0 });
            if !zeros {
                out.extend(run.iter().copied().flatten());
            }
        }
    }
    out.extend(rest);
    out
}

/// Decodes the `raw_bytes` that [`pack`] encoded.
///
/// # Errors
/// If `packed` holds another number of bytes.
pub fn unpack(mut packed: &[u8], width: Width, raw_bytes: usize) -> Result<Vec<u8>, Error> {
    let whole = raw_bytes - raw_bytes % width.bytes();
    let have_bytes = packed.len() as u64;
    let truncated = Error::Truncated { needed_bytes: have_bytes + 1, have_bytes };
    let mut out = Vec::new();
    while out.len() < whole {
        let (&token, rest) = packed.split_first().ok_or(truncated)?;
        let run_bytes = (usize::from(token & !ZEROS) + 1) * width.bytes();
        if run_bytes > whole - out.len() {
            return Err(Error::Surplus { surplus_bytes: (run_bytes - (whole - out.len())) as u64 });
        }
        packed = rest;
        if token & ZEROS == 0 {
            let (words, rest) = packed.split_at_checked(run_bytes).ok_or(truncated)?;
            out.extend(words);
            packed = rest;
        } else {
            out.resize(out.len() + run_bytes, 0);
        }
    }
    let (rest, surplus) = packed.split_at_checked(raw_bytes - whole).ok_or(truncated)?;
    if !surplus.is_empty() {
        return Err(Error::Surplus { surplus_bytes: surplus.len() as u64 });
    }
    out.extend(rest);
    Ok(out)
}
