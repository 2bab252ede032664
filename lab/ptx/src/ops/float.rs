//! Floating-point operations that differ from Rust's.

/// Canonical NaN of `f32`.
pub(crate) const NAN: f32 = f32::from_bits(0x7fff_ffff);

/// Replaces NaN by the canonical one.
#[inline]
pub(crate) fn canonical(value: f32) -> f32 {
    // By its bits: comparisons of integers are faster where the processor is emulated.
    if value.to_bits() & 0x7fff_ffff > 0x7f80_0000 { NAN } else { value }
}

/// Flushes a subnormal number to a zero of its sign.
#[inline]
pub(crate) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    if bits & 0x7f80_0000 == 0 { f32::from_bits(bits & 0x8000_0000) } else { value }
}

/// Clamps to 0 and 1; NaN becomes 0.
#[inline]
pub(crate) fn saturate(value: f32) -> f32 {
    if value > 0.0 { if value < 1.0 { value } else { 1.0 } } else { 0.0 }
}

/// Clamps to 0 and 1; NaN becomes 0.
pub(crate) fn saturate_f64(value: f64) -> f64 {
    if value > 0.0 { value.min(1.0) } else { 0.0 }
}

macro_rules! extremum {
    ($min:ident, $max:ident, $float:ty, $nan:expr) => {
        /// Lesser of two, of which -0 is less than +0; a number before NaN, unless `propagate`.
        #[inline]
        pub(crate) fn $min(a: $float, b: $float, propagate: bool) -> $float {
            if a != a || b != b {
                return if propagate || (a != a && b != b) {
                    $nan
                } else if a != a {
                    b
                } else {
                    a
                };
            }
            if a == b {
                <$float>::from_bits(a.to_bits() | b.to_bits())
            } else if a < b {
                a
            } else {
                b
            }
        }

        /// Greater of two, of which +0 is greater than -0; a number before NaN, unless `propagate`.
        #[inline]
        pub(crate) fn $max(a: $float, b: $float, propagate: bool) -> $float {
            if a != a || b != b {
                return if propagate || (a != a && b != b) {
                    $nan
                } else if a != a {
                    b
                } else {
                    a
                };
            }
            if a == b {
                <$float>::from_bits(a.to_bits() & b.to_bits())
            } else if a > b {
                a
            } else {
                b
            }
        }
    };
}

extremum!(min, max, f32, NAN);
extremum!(min_f64, max_f64, f64, f64::from_bits(0x7fff_ffff_ffff_ffff));
