//! The vector instructions, chosen at run time. Each version does the whole units of a page at most, in memory that has room for the worst of pages: it need not
//! ask how much is left. The scalar version is what they are tested against.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "functions that are right on some CPUs alone"))]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, clippy::needless_pass_by_value, reason = "there is the scalar version alone")
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod scalar;

use crate::{PAGE_BYTES, UNIT_BYTES, Width};

/// Instructions that this CPU has: no other value can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// What one mask describes.
pub(crate) type Unit = [u8; UNIT_BYTES];
/// Units of a page.
const PAGE_UNITS: usize = PAGE_BYTES / UNIT_BYTES;
/// What a page takes at most: no word of it is zero, and masks are as large as they get.
pub(crate) type Room = [u8; PAGE_UNITS * (UNIT_BYTES + 8)];

impl Isa {
    /// What every CPU has.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// The fastest one.
    #[must_use]
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self::SCALAR)
    }

    /// All that this CPU has, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vector = [
            // The 16-bit version needs what came with Ice Lake and Zen 4; one condition for both widths.
            (Kind::Avx512, is_x86_feature_detected!("avx512vbmi2") && is_x86_feature_detected!("avx512bw")),
            (Kind::Avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let vector: [(Kind, bool); 0] = [];
        vector.into_iter().filter(|(_, has)| *has).map(|(kind, _)| Self(kind)).chain([Self::SCALAR])
    }

    /// How its makers call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "AVX-512",
        }
    }

    /// Packs the units of a page; says how many bytes that took.
    pub(crate) fn pack(self, width: Width, raw: &[Unit], out: &mut Room) -> usize {
        match (self.0, width) {
            (Kind::Scalar, _) => scalar::pack_units(width, raw, out),
            // SAFETY: `available` is where the value comes from, and it found the instructions there.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Two) => unsafe { avx2::pack_two(raw, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Four) => unsafe { avx2::pack_four(raw, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Two) => unsafe { avx512::pack_two(raw, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Four) => unsafe { avx512::pack_four(raw, out) },
        }
    }

    /// Unpacks the units of pages, as many of each, in turns; says where in its memory each ends. Any mask is right for a whole unit, so that nothing can be
    /// wrong with that memory.
    pub(crate) fn unpack<const LANES: usize>(
        self,
        width: Width,
        from: [&Room; LANES],
        out: [&mut [Unit]; LANES],
    ) -> [usize; LANES] {
        match (self.0, width) {
            (Kind::Scalar, _) => scalar::unpack_units(width, from, out),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Two) => unsafe { avx2::unpack_two(from, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Four) => unsafe { avx2::unpack_four(from, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Two) => unsafe { avx512::unpack_two(from, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Four) => unsafe { avx512::unpack_four(from, out) },
        }
    }

    /// What a block adds to a checksum.
    pub(crate) fn sum(self, block: &[u8]) -> u64 {
        match self.0 {
            Kind::Scalar => scalar::sum(block),
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::sum(block) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::sum(block) },
        }
    }
}
