//! Unpacking.

use crate::{
    Error, Isa, PAGE_BYTES, Width,
    checksum::Checksum,
    format::{CHECKSUM_AT, HEADER_BYTES, Header, INDEX_ENTRY_BYTES, pages},
    unit::{pad, unpack_page},
};

/// Pages that are unpacked interleaved, unit by unit. The begin of a unit depends on the mask of
/// the unit before it; other pages fill the wait for that.
const LANES: usize = 4;
/// Maximum size of interleaved unpacking. Larger data lie in memory and not in a cache, where
/// access to several pages at once costs more than the wait.
const INTERLEAVE_MAX_BYTES: usize = 4 << 20;

/// A container with a valid header. The rest is checked when it is unpacked.
#[derive(Debug, Clone, Copy)]
pub struct Packed<'a> {
    header: Header,
    /// The header up to its checksum, which covers this part.
    summed_header: &'a [u8],
    index: &'a [u8],
    payload: &'a [u8],
    raw_bytes: usize,
    isa: Isa,
}

impl<'a> Packed<'a> {
    /// Parses the header of a container that is all of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is no container, or has fewer bytes or more than one.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let have_bytes = bytes.len() as u64;
        let truncated = |needed_bytes| Error::Truncated { needed_bytes, have_bytes };
        let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(truncated(HEADER_BYTES as u64))?;
        let header = Header::parse(head)?;
        let too_large = Error::TooLarge { raw_bytes: header.raw_bytes };
        let needed_bytes = header.container_bytes().ok_or(too_large)?;
        if have_bytes > needed_bytes {
            return Err(Error::Surplus { surplus_bytes: have_bytes - needed_bytes });
        }
        let index_bytes = usize::try_from(header.index_bytes()).map_err(|_| too_large)?;
        let (index, payload) = rest.split_at_checked(index_bytes).ok_or(truncated(needed_bytes))?;
        if have_bytes < needed_bytes {
            return Err(truncated(needed_bytes));
        }
        let raw_bytes = usize::try_from(header.raw_bytes).map_err(|_| too_large)?;
        let summed_header = head.get(..CHECKSUM_AT).unwrap_or_default();
        Ok(Self { header, summed_header, index, payload, raw_bytes, isa: Isa::best() })
    }

    /// Sets the instructions. The result is the same.
    #[must_use]
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Word size.
    #[must_use]
    pub fn width(&self) -> Width {
        self.header.width
    }

    /// Bytes before packing: at most 32 times the container's.
    #[must_use]
    pub fn raw_bytes(&self) -> usize {
        self.raw_bytes
    }

    /// Bytes of masks and words: the container without header and index.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    /// Whether the data are stored unpacked, as packing would not have made them smaller.
    #[must_use]
    pub fn is_stored(&self) -> bool {
        self.header.stored
    }

    /// Pages of 4 KiB; the last one may be shorter.
    #[must_use]
    pub fn pages(&self) -> u64 {
        pages(self.header.raw_bytes)
    }

    /// Payload bytes of a page, by the index.
    ///
    /// # Errors
    /// If there is no such page or no index, or the index is corrupted.
    pub fn page_payload_bytes(&self, page: u64) -> Result<usize, Error> {
        Ok(self.page_payload(page)?.len())
    }

    /// Unpacks all data.
    ///
    /// # Errors
    /// As [`Packed::unpack_into`].
    pub fn unpack(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![0; self.raw_bytes];
        self.unpack_into(&mut out)?;
        Ok(out)
    }

    /// Unpacks all data into a buffer of exactly [`Packed::raw_bytes`].
    ///
    /// # Errors
    /// If the buffer has another size, or the container is corrupted.
    pub fn unpack_into(&self, out: &mut [u8]) -> Result<(), Error> {
        if out.len() != self.raw_bytes {
            return Err(Error::Buffer { needed_bytes: self.header.raw_bytes, have_bytes: out.len() as u64 });
        }
        let mut checksum = Checksum::new(self.header.checksum.is_some(), self.isa);
        if self.header.stored {
            checksum.copy(self.payload, out);
            return self.compare(checksum);
        }
        let lanes = if self.header.index && out.len() <= INTERLEAVE_MAX_BYTES { LANES } else { 1 };
        let mut at = 0;
        for (first, to) in (0..).step_by(lanes).zip(out.chunks_mut(lanes * PAGE_BYTES)) {
            at = match self.unpack_interleaved(first, at, to) {
                Some(end) => end,
                None => self.unpack_pages(first, at, to)?,
            };
            checksum.update(self.payload.get(..at).unwrap_or_default());
        }
        if at < self.payload.len() {
            return Err(Error::Payload { surplus_bytes: (self.payload.len() - at) as u64 });
        }
        self.compare(checksum)
    }

    /// Unpacks one page to the beginning of `out`; returns its bytes. Reads only that page and its
    /// entry in the index, so that it detects neither corruption elsewhere nor a wrong checksum.
    ///
    /// # Errors
    /// If there is no such page or no index, the buffer is smaller than the page, or the page is
    /// corrupted.
    pub fn unpack_page(&self, page: u64, out: &mut [u8]) -> Result<usize, Error> {
        let payload = self.page_payload(page)?;
        let page_bytes = self.page_bytes(page);
        let too_small = Error::Buffer { needed_bytes: page_bytes as u64, have_bytes: out.len() as u64 };
        let out = out.get_mut(..page_bytes).ok_or(too_small)?;
        if self.header.stored {
            out.copy_from_slice(payload);
            return Ok(page_bytes);
        }
        match unpack_page(self.isa, self.header.width, payload, out) {
            Some(end) if end == payload.len() => Ok(page_bytes),
            Some(_) => Err(Error::Index { page }),
            None => Err(Error::Page { page }),
        }
    }

    /// Compares the checksum without unpacking; succeeds if there is none.
    ///
    /// # Errors
    /// If the checksum differs.
    pub fn verify(&self) -> Result<(), Error> {
        self.compare(Checksum::new(self.header.checksum.is_some(), self.isa))
    }

    /// Unpacks the `LANES` pages from `first` on, which begin at `at`; returns their end. `None` if
    /// there are fewer, or if the index contradicts their positions.
    fn unpack_interleaved(&self, first: u64, at: usize, out: &mut [u8]) -> Option<usize> {
        let pages = out.as_chunks_mut::<PAGE_BYTES>().0.first_chunk_mut::<LANES>()?;
        let mut begins = [at; LANES];
        #[expect(clippy::large_stack_arrays, reason = "17 KiB, which the last pages alone touch")]
        let mut padded = [None; LANES];
        for ((page, begin), padded) in (first..).zip(&mut begins).zip(&mut padded) {
            *begin = self.page_at(page).ok()?;
            pad(self.payload.get(*begin..)?, padded);
        }
        let mut from = [&[0; _]; LANES];
        for ((begin, padded), from) in begins.iter().zip(&padded).zip(&mut from) {
            *from = padded.as_ref().or_else(|| self.payload.get(*begin..)?.first_chunk())?;
        }
        let read = self.isa.unpack(self.header.width, from, pages.each_mut().map(|page| page.as_chunks_mut().0));
        let end =
            begins.into_iter().zip(read).try_fold(at, |at, (begin, read)| (begin == at).then_some(begin + read))?;
        (end <= self.payload.len()).then_some(end)
    }

    /// Unpacks pages one by one from `first` on, which begins at `at`; returns their end.
    fn unpack_pages(&self, first: u64, mut at: usize, out: &mut [u8]) -> Result<usize, Error> {
        for (page, to) in (first..).zip(out.chunks_mut(PAGE_BYTES)) {
            if self.header.index && self.page_at(page)? != at {
                return Err(Error::Index { page });
            }
            let payload = self.payload.get(at..).unwrap_or_default();
            at += unpack_page(self.isa, self.header.width, payload, to).ok_or(Error::Page { page })?;
        }
        Ok(at)
    }

    fn compare(&self, checksum: Checksum) -> Result<(), Error> {
        match (self.header.checksum, checksum.finish(self.payload, self.index, self.summed_header)) {
            (Some(stored), Some(computed)) if stored != computed => Err(Error::Checksum { stored, computed }),
            _ => Ok(()),
        }
    }

    /// Bytes of an existing page.
    fn page_bytes(&self, page: u64) -> usize {
        let before = usize::try_from(page).unwrap_or(usize::MAX).saturating_mul(PAGE_BYTES);
        self.raw_bytes.saturating_sub(before).min(PAGE_BYTES)
    }

    fn page_payload(&self, page: u64) -> Result<&'a [u8], Error> {
        let pages = self.pages();
        if page >= pages {
            return Err(Error::NoSuchPage { page, pages });
        }
        let begin = self.page_at(page)?;
        let end = match () {
            () if page + 1 == pages => self.payload.len(),
            () => self.page_at(page + 1)?,
        };
        self.payload.get(begin..end).ok_or(Error::Index { page })
    }

    /// Begin of an existing page in the payload.
    fn page_at(&self, page: u64) -> Result<usize, Error> {
        let corrupted = Error::Index { page };
        let page = usize::try_from(page).map_err(|_| corrupted)?;
        if self.header.stored {
            return page.checked_mul(PAGE_BYTES).ok_or(corrupted);
        }
        let entry = self.index.as_chunks::<INDEX_ENTRY_BYTES>().0.get(page).ok_or(Error::NoIndex)?;
        let words = usize::try_from(u32::from_le_bytes(*entry)).map_err(|_| corrupted)?;
        words.checked_mul(self.header.width.bytes()).ok_or(corrupted)
    }
}
