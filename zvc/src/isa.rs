//! The vector instructions, chosen at run time. Each version does whole units as long as the worst of them would fit, and leaves the rest to
//! the scalar version, which is what they are tested against.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "functions that are right on some CPUs alone"))]
#![cfg_attr(
    not(target_arch = "x86_64"),
    expect(unused_variables, clippy::needless_pass_by_value, reason = "there is the scalar version alone")
)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::{UNIT_BYTES, Width};

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

/// Bytes read and bytes written.
pub(crate) type Progress = (usize, usize);
/// What one mask describes.
pub(crate) type Unit = [u8; UNIT_BYTES];
/// Units written in each of the lanes that take turns.
pub(crate) type Written<const LANES: usize> = [usize; LANES];

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

    /// Packs whole units of `raw`, perhaps not all of them.
    pub(crate) fn pack(self, width: Width, raw: &[u8], out: &mut [u8]) -> Progress {
        match (self.0, width) {
            (Kind::Scalar, _) => (0, 0),
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

    /// Unpacks whole units to each part of `out`, which are of one size, from where in `payload` each begins: in turns, one unit at a time, perhaps not
    /// all. Moves `at` behind what was unpacked. Any mask is right for a whole unit, so that nothing can be wrong with `payload`.
    pub(crate) fn unpack<const LANES: usize>(
        self,
        width: Width,
        payload: &[u8],
        at: &mut [usize; LANES],
        out: [&mut [Unit]; LANES],
    ) -> Written<LANES> {
        match (self.0, width) {
            (Kind::Scalar, _) => [0; LANES],
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Two) => unsafe { avx2::unpack_two(payload, at, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx2, Width::Four) => unsafe { avx2::unpack_four(payload, at, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Two) => unsafe { avx512::unpack_two(payload, at, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            (Kind::Avx512, Width::Four) => unsafe { avx512::unpack_four(payload, at, out) },
        }
    }
}

/// `units` in each lane, and one more in those before the one that could not go on.
#[cfg(target_arch = "x86_64")]
fn written<const LANES: usize>(units: usize, ahead: usize) -> Written<LANES> {
    std::array::from_fn(|lane| units + usize::from(lane < ahead))
}
