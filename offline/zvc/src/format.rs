//! Format of the container. Little-endian:
//!
//! | bytes | contents |
//! | --- | --- |
//! | 0-3 | `ZVC2` |
//! | 4 | bytes of a word: 4 or 2 |
//! | 5 | flags: 1 index, 2 stored unpacked, 4 checksum |
//! | 6-7 | zero |
//! | 8-15 | bytes before packing, which determine units and pages |
//! | 16-23 | bytes of payload |
//! | 24-31 | checksum of payload, index and header before it, in this order (below); zero without one |
//! | then | the index, if any: 4 bytes for each page of 4 KiB, its offset in the payload in words |
//! | then | the payload: for each unit of 128 bytes its mask, with a bit per word from the lowest on, and its nonzero words |
//!
//! The mask has as many bits as a unit has words. The last unit may be short: its mask has no bits
//! beyond its words, and its last word is padded with zeros. Data that packing would not make
//! smaller are stored unpacked, without an index.
//!
//! The checksum: each of the three parts is divided into blocks of 4096 bytes, the last of them
//! padded with zeros. A block's words of 4 bytes are multiplied by their keys and summed modulo
//! 2^64. The keys of words 2n and 2n + 1 are the low and the high half of number n, from 0, of
//! `SplitMix64` with the seed 0, both made odd. The halves of these sums, the high one first, are
//! the coefficients of a polynomial modulo 2^61 - 1, from the highest power on. It is evaluated at
//! number 4096 of that generator, modulo the same.

use crate::Error;

/// Bytes that one mask describes.
pub const UNIT_BYTES: usize = 128;
/// Bytes that can be unpacked separately by means of the index.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 32;
/// Bytes of the index per page.
pub const INDEX_ENTRY_BYTES: usize = 4;
/// Offset of the checksum; it covers the header before this offset.
pub(crate) const CHECKSUM_AT: usize = 24;

const MAGIC: [u8; 4] = *b"ZVC2";
const INDEX: u8 = 1;
const STORED: u8 = 2;
const CHECKSUM: u8 = 4;

/// Word size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Width {
    /// 16 bits, for half-precision data; 64 words and a mask of 8 bytes a unit. Not in the paper.
    Two,
    /// 32 bits, as in the paper: 32 words and a mask of 4 bytes a unit.
    Four,
}

/// Header that is consistent in itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) width: Width,
    pub(crate) index: bool,
    pub(crate) stored: bool,
    pub(crate) checksum: Option<u64>,
    pub(crate) raw_bytes: u64,
    pub(crate) payload_bytes: u64,
}

impl Width {
    /// Both word sizes.
    pub const ALL: [Self; 2] = [Self::Two, Self::Four];

    /// Bytes of a word.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Two => 2,
            Self::Four => 4,
        }
    }

    /// Words of a whole unit.
    #[must_use]
    pub const fn unit_words(self) -> usize {
        UNIT_BYTES / self.bytes()
    }

    /// Bytes of a unit's mask.
    #[must_use]
    pub const fn mask_bytes(self) -> usize {
        self.unit_words() / 8
    }

    /// Maximum payload of `raw_bytes`: no word is zero.
    #[must_use]
    pub(crate) const fn payload_bound(self, raw_bytes: u64) -> Option<u64> {
        match raw_bytes.checked_next_multiple_of(self.bytes() as u64) {
            Some(words) => words.checked_add(self.masks_bytes(raw_bytes)),
            None => None,
        }
    }

    /// Bytes of the masks: the minimum payload of `raw_bytes`.
    pub(crate) const fn masks_bytes(self, raw_bytes: u64) -> u64 {
        raw_bytes.div_ceil(UNIT_BYTES as u64) * self.mask_bytes() as u64
    }
}

impl Header {
    pub(crate) fn index_bytes(&self) -> u64 {
        if self.index { pages(self.raw_bytes) * INDEX_ENTRY_BYTES as u64 } else { 0 }
    }

    /// Bytes of the container; `None` on overflow.
    pub(crate) fn container_bytes(&self) -> Option<u64> {
        self.payload_bytes.checked_add(self.index_bytes())?.checked_add(HEADER_BYTES as u64)
    }

    pub(crate) fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut flags = 0;
        for (set, flag) in [(self.index, INDEX), (self.stored, STORED), (self.checksum.is_some(), CHECKSUM)] {
            flags |= if set { flag } else { 0 };
        }
        let mut bytes = [0; HEADER_BYTES];
        let width = if self.width == Width::Two { 2 } else { 4 };
        let fields: [(usize, &[u8]); 5] = [
            (0, &MAGIC),
            (4, &[width, flags]),
            (8, &self.raw_bytes.to_le_bytes()),
            (16, &self.payload_bytes.to_le_bytes()),
            (CHECKSUM_AT, &self.checksum.unwrap_or(0).to_le_bytes()),
        ];
        for (at, field) in fields {
            for (to, from) in bytes.iter_mut().skip(at).zip(field) {
                *to = *from;
            }
        }
        bytes
    }

    pub(crate) fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Error> {
        let [m0, m1, m2, m3, width, flags, zero @ ..] = *bytes;
        let [z0, z1, r0, r1, r2, r3, r4, r5, r6, r7, p0, p1, p2, p3, p4, p5, p6, p7, checksum @ ..] = zero;
        let found = [m0, m1, m2, m3];
        if found != MAGIC {
            return Err(Error::Magic { found });
        }
        let width = match width {
            2 => Width::Two,
            4 => Width::Four,
            _ => return Err(Error::Header("words of neither 2 nor 4 bytes")),
        };
        if flags & !(INDEX | STORED | CHECKSUM) != 0 || [z0, z1] != [0, 0] {
            return Err(Error::Header("unknown flags"));
        }
        let checksum = u64::from_le_bytes(checksum);
        if flags & CHECKSUM == 0 && checksum != 0 {
            return Err(Error::Header("a checksum without its flag"));
        }
        let header = Self {
            width,
            index: flags & INDEX != 0,
            stored: flags & STORED != 0,
            checksum: (flags & CHECKSUM != 0).then_some(checksum),
            raw_bytes: u64::from_le_bytes([r0, r1, r2, r3, r4, r5, r6, r7]),
            payload_bytes: u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]),
        };
        header.check()?;
        Ok(header)
    }

    /// Checks that the sizes agree. This limits the unpacked bytes to 32 times the container's.
    fn check(&self) -> Result<(), Error> {
        let (raw, payload) = (self.raw_bytes, self.payload_bytes);
        if self.stored {
            return match () {
                () if self.index => Err(Error::Header("an index of data stored unpacked")),
                () if raw != payload => Err(Error::Header("data stored unpacked with another size")),
                () => Ok(()),
            };
        }
        let bound = self.width.payload_bound(raw).ok_or(Error::TooLarge { raw_bytes: raw })?;
        if payload < self.width.masks_bytes(raw) || payload > bound {
            return Err(Error::Header("a payload size that does not match the raw size"));
        }
        Ok(())
    }
}

/// Number of pages of `raw_bytes`.
pub(crate) fn pages(raw_bytes: u64) -> u64 {
    raw_bytes.div_ceil(PAGE_BYTES as u64)
}
