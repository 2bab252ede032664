//! Floating-point formats of 16 bits.

use super::round::Rounding;

/// `f16`: its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct F16(pub(crate) u16);

/// `bf16`: its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bf16(pub(crate) u16);

/// Floating-point format of 16 bits.
pub(crate) trait Half: Copy + Send + Sync + 'static {
    /// Canonical NaN.
    const NAN: u16 = 0x7fff;
    fn bits(self) -> u16;
    fn from_bits(bits: u16) -> Self;
    fn to_f32(self) -> f32;
    /// Rounds a value that is exact or was rounded to odd.
    fn round(value: f64, rounding: Rounding) -> Self;

    /// Rounds to the nearest.
    fn nearest(value: f64) -> Self {
        Self::round(value, Rounding::Nearest)
    }

    fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }
}

impl Half for F16 {
    fn bits(self) -> u16 {
        self.0
    }

    fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let exponent = u32::from(self.0 >> 10 & 0x1f);
        let mantissa = u32::from(self.0 & 0x3ff);
        let magnitude = match exponent {
            // Subnormal: a multiple of 2^-24.
            0 => (mantissa as f32 * (1.0 / 16_777_216.0)).to_bits(),
            31 if mantissa != 0 => 0x7fff_ffff,
            31 => 0x7f80_0000,
            _ => (exponent + 112) << 23 | mantissa << 13,
        };
        f32::from_bits(sign | magnitude)
    }

    fn round(value: f64, rounding: Rounding) -> Self {
        Self(round_bits(value, rounding, 10, -14, 0x7c00))
    }
}

impl Half for Bf16 {
    fn bits(self) -> u16 {
        self.0
    }

    fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    fn round(value: f64, rounding: Rounding) -> Self {
        Self(round_bits(value, rounding, 7, -126, 0x7f80))
    }
}

/// Bits of a rounded value, in a format with so many bits of mantissa, this smallest exponent of
/// normal numbers, and these bits of infinity.
fn round_bits(value: f64, rounding: Rounding, mantissa_bits: i32, least_exponent: i32, infinity: u16) -> u16 {
    if value.is_nan() {
        return F16::NAN;
    }
    let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = value.abs();
    if magnitude.is_infinite() {
        return sign | infinity;
    }
    let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).clamp(least_exponent, 200);
    // Whole units in the last place; the scaling is by a power of two, and exact.
    let scaled = magnitude * power_of_two(mantissa_bits - exponent);
    let away = match rounding {
        Rounding::Nearest => scaled.round_ties_even(),
        Rounding::Zero => scaled.floor(),
        Rounding::Down if sign == 0 => scaled.floor(),
        Rounding::Up if sign != 0 => scaled.floor(),
        Rounding::Down | Rounding::Up => scaled.ceil(),
    };
    let bits = (((exponent - least_exponent) as u32) << mantissa_bits).saturating_add(away as u32);
    if bits < u32::from(infinity) {
        return sign | bits as u16;
    }
    let to_largest = match rounding {
        Rounding::Nearest => false,
        Rounding::Zero => true,
        Rounding::Down => sign == 0,
        Rounding::Up => sign != 0,
    };
    sign | if to_largest { infinity - 1 } else { infinity }
}

/// 2 to a power between -1022 and 1023.
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}
