//! CRC-32C of a container, taken as it comes into being.

use crc_fast::{CrcAlgorithm, Digest};

/// Whole blocks of this many bytes are what the CRC is quick with; few at a time, so that they are still in the first cache.
const BLOCK_BYTES: usize = 8192;

/// Follows a payload that grows, or nothing at all.
pub(crate) struct Checksum {
    digest: Option<Digest>,
    followed_bytes: usize,
}

impl Checksum {
    pub(crate) fn new(wanted: bool) -> Self {
        Self { digest: wanted.then(|| Digest::new(CrcAlgorithm::Crc32Iscsi)), followed_bytes: 0 }
    }

    /// `payload` is what there is of it by now.
    pub(crate) fn follow(&mut self, payload: &[u8]) {
        let Some(digest) = &mut self.digest else { return };
        let more = payload.get(self.followed_bytes..).unwrap_or_default();
        let whole = more.len() - more.len() % BLOCK_BYTES;
        if whole > 0 {
            digest.update(more.get(..whole).unwrap_or_default());
            self.followed_bytes += whole;
        }
    }

    /// Copies a payload to a buffer of its size, following it.
    pub(crate) fn copy(&mut self, payload: &[u8], out: &mut [u8]) {
        let mut copied = 0;
        for (from, to) in payload.chunks(BLOCK_BYTES).zip(out.chunks_mut(BLOCK_BYTES)) {
            to.copy_from_slice(from);
            copied += from.len();
            self.follow(payload.get(..copied).unwrap_or_default());
        }
    }

    /// The checksum of all of `payload`, then `index`, then `header`.
    pub(crate) fn finish(self, payload: &[u8], index: &[u8], header: &[u8]) -> Option<u32> {
        let mut digest = self.digest?;
        digest.update(payload.get(self.followed_bytes..).unwrap_or_default());
        digest.update(index);
        digest.update(header);
        // The upper half is zero: the algorithm has 32 bits.
        u32::try_from(digest.finalize()).ok()
    }
}
