//! Packing.

use crate::{
    Error, Isa, PAGE_BYTES, Width,
    checksum::Checksum,
    format::{CHECKSUM_AT, HEADER_BYTES, Header, INDEX_ENTRY_BYTES},
    unit::pack_page,
};

/// Packing, with its options.
///
/// ```
/// let raw = [0_u8, 0, 0, 0, 1, 2, 3, 4].repeat(1000);
/// let packed = zvc::Codec::new(zvc::Width::Four).pack(&raw)?;
/// assert!(packed.len() < raw.len() * 6 / 10);
/// assert_eq!(zvc::Packed::parse(&packed)?.unpack()?, raw);
/// # Ok::<(), zvc::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Codec {
    width: Width,
    index: bool,
    checksum: bool,
    isa: Isa,
}

impl Codec {
    /// Codec with an index and a checksum, and with the fastest instructions of the CPU.
    #[must_use]
    pub fn new(width: Width) -> Self {
        Self { width, index: true, checksum: true, isa: Isa::best() }
    }

    /// Omits the index, which takes 4 bytes a page. Pages cannot be unpacked one by one.
    #[must_use]
    pub fn without_index(self) -> Self {
        Self { index: false, ..self }
    }

    /// Omits the checksum and its time. Corrupted data unpack to other data, or to an error.
    #[must_use]
    pub fn without_checksum(self) -> Self {
        Self { checksum: false, ..self }
    }

    /// Sets the instructions. The result is the same.
    #[must_use]
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Maximum size of a container of `raw_bytes`, and the least size of the buffer for
    /// [`Codec::pack_into`].
    ///
    /// # Errors
    /// If there are more bytes than a container can hold: about 16 GiB with an index and words of 4
    /// bytes, 8 GiB with words of 2.
    pub fn bound_bytes(self, raw_bytes: usize) -> Result<usize, Error> {
        let too_large = Error::TooLarge { raw_bytes: raw_bytes as u64 };
        let payload = self.width.payload_bound(raw_bytes as u64).ok_or(too_large)?;
        if self.index && payload / self.width.bytes() as u64 > u64::from(u32::MAX) {
            return Err(too_large);
        }
        let bytes = payload.checked_add((self.index_bytes(raw_bytes) + HEADER_BYTES) as u64).ok_or(too_large)?;
        usize::try_from(bytes).map_err(|_| too_large)
    }

    /// Packs `raw` to a container.
    ///
    /// # Errors
    /// As [`Codec::bound_bytes`].
    pub fn pack(self, raw: &[u8]) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.bound_bytes(raw.len())?];
        let bytes = self.pack_into(raw, &mut out)?;
        out.truncate(bytes);
        out.shrink_to_fit();
        Ok(out)
    }

    /// Writes the container of `raw` to the beginning of `out`; returns its size.
    ///
    /// # Errors
    /// As [`Codec::bound_bytes`], or if `out` is smaller than that.
    pub fn pack_into(self, raw: &[u8], out: &mut [u8]) -> Result<usize, Error> {
        let needed = self.bound_bytes(raw.len())?;
        let too_small = Error::Buffer { needed_bytes: needed as u64, have_bytes: out.len() as u64 };
        let out = out.get_mut(..needed).ok_or(too_small)?;
        let (header_out, rest) = out.split_at_mut_checked(HEADER_BYTES).ok_or(too_small)?;
        let (index, payload) = rest.split_at_mut_checked(self.index_bytes(raw.len())).ok_or(too_small)?;
        let mut checksum = Checksum::new(self.checksum, self.isa);
        let mut entries = index.as_chunks_mut::<INDEX_ENTRY_BYTES>().0.iter_mut();
        let mut at = 0;
        for page in raw.chunks(PAGE_BYTES) {
            if let Some(entry) = entries.next() {
                // `bound_bytes` has checked that the offsets fit.
                *entry = u32::try_from(at / self.width.bytes()).map_or([0xff; 4], u32::to_le_bytes);
            }
            let to = payload.get_mut(at..).ok_or(too_small)?;
            at += pack_page(self.isa, self.width, page, to).ok_or(too_small)?;
            checksum.update(payload.get(..at).unwrap_or_default());
        }
        if index.len() + at >= raw.len() {
            return self.store_into(raw, out).ok_or(too_small);
        }
        let payload = payload.get(..at).unwrap_or_default();
        let mut header = self.header(raw.len(), at, false);
        header.checksum = checksum.finish(payload, index, header.bytes().get(..CHECKSUM_AT).unwrap_or_default());
        header_out.copy_from_slice(&header.bytes());
        Ok(HEADER_BYTES + index.len() + at)
    }

    fn store_into(self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut header = self.header(raw.len(), raw.len(), true);
        let (header_out, payload) = out.split_at_mut_checked(HEADER_BYTES)?;
        let mut checksum = Checksum::new(self.checksum, self.isa);
        checksum.copy(raw, payload.get_mut(..raw.len())?);
        header.checksum = checksum.finish(raw, &[], header.bytes().get(..CHECKSUM_AT)?);
        header_out.copy_from_slice(&header.bytes());
        Some(HEADER_BYTES + raw.len())
    }

    fn header(self, raw_bytes: usize, payload_bytes: usize, stored: bool) -> Header {
        Header {
            width: self.width,
            index: self.index && !stored,
            stored,
            checksum: self.checksum.then_some(0),
            raw_bytes: raw_bytes as u64,
            payload_bytes: payload_bytes as u64,
        }
    }

    fn index_bytes(self, raw_bytes: usize) -> usize {
        if self.index { raw_bytes.div_ceil(PAGE_BYTES) * INDEX_ENTRY_BYTES } else { 0 }
    }
}
