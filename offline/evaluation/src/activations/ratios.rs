//! Packed sizes of the same bytes in three formats, each page of 4 KiB separately, and without
//! headers.

use std::{fmt, io::Write, ops::AddAssign};

use flate2::{Compression, write::ZlibEncoder};
use zvc::{Codec, PAGE_BYTES, Packed, Width, density, rle};

/// Sizes in bytes.
#[derive(Default)]
pub(crate) struct Sizes {
    raw: usize,
    /// Bytes of words that are not zero.
    nonzero: f64,
    zvc: usize,
    rle: usize,
    zlib: usize,
}

impl Sizes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let packed = Codec::new(Width::Four).pack(bytes).expect("less than 16 GiB");
        let packed = Packed::parse(&packed).expect("what was packed");
        assert!(packed.unpack().is_ok_and(|unpacked| unpacked == bytes), "no bit is lost");
        Self {
            raw: bytes.len(),
            nonzero: density(bytes, Width::Four, 1).unwrap_or(0.0) * bytes.len() as f64,
            zvc: packed.payload_bytes(),
            rle: bytes.chunks(PAGE_BYTES).map(|page| rle::pack(page, Width::Four).len()).sum(),
            zlib: bytes.chunks(PAGE_BYTES).map(zlib).sum(),
        }
    }
}

fn zlib(page: &[u8]) -> usize {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    encoder.write_all(page).and_then(|()| encoder.finish()).expect("memory").len()
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, other: Self) {
        let Self { raw, nonzero, zvc, rle, zlib } = other;
        self.raw += raw;
        self.nonzero += nonzero;
        self.zvc += zvc;
        self.rle += rle;
        self.zlib += zlib;
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.raw as f64;
        let [zvc, rle, zlib] = [self.zvc, self.rle, self.zlib].map(|bytes| raw / bytes as f64);
        write!(f, "{} | {:.3} | {zvc:.2} | {rle:.2} | {zlib:.2}", self.raw / 1024, self.nonzero / raw)
    }
}
