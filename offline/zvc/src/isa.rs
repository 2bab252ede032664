//! Vector instructions, selected at run time. Each version handles at most the whole units of a
//! page, in a buffer of the worst-case size, so that it needs no checks of bounds. Tests compare
//! all versions with the scalar one.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "functions that are valid on some CPUs only"))]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, clippy::needless_pass_by_value, reason = "only the scalar version exists")
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
pub(crate) mod scalar;

use crate::{PAGE_BYTES, UNIT_BYTES, Width};

/// Instructions of this CPU; values with others cannot be constructed.
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

/// Bytes that one mask describes.
pub(crate) type Unit = [u8; UNIT_BYTES];
/// Units of a page.
const PAGE_UNITS: usize = PAGE_BYTES / UNIT_BYTES;
/// Maximum payload of a page: no word is zero, and masks have the largest size.
pub(crate) type PagePayload = [u8; PAGE_UNITS * (UNIT_BYTES + 8)];

impl Isa {
    /// The version for every CPU.
    pub const SCALAR: Self = Self(Kind::Scalar);

    /// The fastest version.
    #[must_use]
    pub fn best() -> Self {
        Self::available().next().unwrap_or(Self::SCALAR)
    }

    /// All versions for this CPU, the fastest first.
    pub fn available() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let vector = [
            // The 16-bit version needs the extensions of Ice Lake and Zen 4; the condition is the
            // same for both word sizes.
            (
                Kind::Avx512,
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vbmi2")
                    && is_x86_feature_detected!("popcnt"),
            ),
            (Kind::Avx2, is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")),
        ];
        #[cfg(not(target_arch = "x86_64"))]
        let vector: [(Kind, bool); 0] = [];
        vector.into_iter().filter(|(_, has)| *has).map(|(kind, _)| Self(kind)).chain([Self::SCALAR])
    }

    /// The vendor's name.
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

    /// Packs the units of a page; returns the bytes written.
    pub(crate) fn pack(self, width: Width, raw: &[Unit], out: &mut PagePayload) -> usize {
        match (self.0, width) {
            (Kind::Scalar, _) => scalar::pack_units(width, raw, out),
            // SAFETY: `available` alone makes this kind, and has detected AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Two) => unsafe { avx2::pack_two(raw, out) },
            // SAFETY: `available` alone makes this kind, and has detected AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Four) => unsafe { avx2::pack_four(raw, out) },
            // SAFETY: `available` alone makes this kind, and has detected its instructions.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Two) => unsafe { avx512::pack_two(raw, out) },
            // SAFETY: `available` alone makes this kind, and has detected its instructions.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Four) => unsafe { avx512::pack_four(raw, out) },
        }
    }

    /// Unpacks equally many units of several pages, interleaved; returns the end of each page in
    /// its payload. Any mask is valid for a whole unit, so that any payload can be unpacked.
    pub(crate) fn unpack<const LANES: usize>(
        self,
        width: Width,
        from: [&PagePayload; LANES],
        out: [&mut [Unit]; LANES],
    ) -> [usize; LANES] {
        match (self.0, width) {
            (Kind::Scalar, _) => scalar::unpack_units(width, from, out),
            // SAFETY: `available` alone makes this kind, and has detected AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Two) => unsafe { avx2::unpack_two(from, out) },
            // SAFETY: `available` alone makes this kind, and has detected AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Four) => unsafe { avx2::unpack_four(from, out) },
            // SAFETY: `available` alone makes this kind, and has detected its instructions.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Two) => unsafe { avx512::unpack_two(from, out) },
            // SAFETY: `available` alone makes this kind, and has detected its instructions.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Four) => unsafe { avx512::unpack_four(from, out) },
        }
    }

    /// Sum of a block for the checksum.
    pub(crate) fn sum(self, block: &[u8]) -> u64 {
        match self.0 {
            Kind::Scalar => scalar::sum(block),
            // SAFETY: `available` alone makes this kind, and has detected AVX2 and POPCNT.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => unsafe { avx2::sum(block) },
            // SAFETY: `available` alone makes this kind, and has detected its instructions.
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => unsafe { avx512::sum(block) },
        }
    }
}
