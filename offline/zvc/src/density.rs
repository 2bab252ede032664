//! Density: share of words that are not zero, and the ratio of packing.

use crate::{UNIT_BYTES, Width};

/// Share of words that are not zero, in every `every`-th unit of 128 bytes; 1 reads all units.
/// `None` if the data have no whole word.
#[must_use]
pub fn density(raw: &[u8], width: Width, every: usize) -> Option<f64> {
    let (mut words, mut nonzero) = (0_usize, 0_usize);
    for unit in raw.chunks(UNIT_BYTES).step_by(every.max(1)) {
        for word in unit.chunks_exact(width.bytes()) {
            words += 1;
            nonzero += usize::from(word.iter().any(|&byte| byte != 0));
        }
    }
    (words > 0).then(|| nonzero as f64 / words as f64)
}

/// Bytes before packing by payload bytes, at a density: 32 words of 4 bytes become 1 + 32 d.
#[must_use]
pub fn ratio_at(density: f64, width: Width) -> f64 {
    let (unit, words) = (UNIT_BYTES as f64, width.unit_words() as f64);
    unit / (width.mask_bytes() as f64 + words * density * width.bytes() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Codec, Packed};

    #[test]
    fn the_ratio_follows_from_the_density_as_in_the_paper() {
        for (density, ratio) in [(1.0, 0.97), (0.5, 1.88), (0.35, 2.62), (0.0412, 13.8), (0.0, 32.0)] {
            assert!((ratio_at(density, Width::Four) - ratio).abs() < 0.01, "{density}");
        }
        assert!((ratio_at(0.5, Width::Two) - 16.0 / 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_payload_has_the_ratio_of_its_density() {
        let raw: Vec<u8> = (0_u32..4096).flat_map(|n| if n % 3 == 0 { n + 1 } else { 0 }.to_le_bytes()).collect();
        let packed = Codec::new(Width::Four).pack(&raw).unwrap();
        let ratio = raw.len() as f64 / Packed::parse(&packed).unwrap().payload_bytes() as f64;
        let density = density(&raw, Width::Four, 1).unwrap();
        assert!((ratio - ratio_at(density, Width::Four)).abs() < 1e-9);
    }

    #[test]
    fn a_sample_looks_at_some_units() {
        let mut raw = vec![0; 64 * UNIT_BYTES];
        raw[..UNIT_BYTES].fill(1);
        assert_eq!(density(&raw, Width::Four, 1), Some(1.0 / 64.0));
        assert_eq!(density(&raw, Width::Four, 64), Some(1.0));
        assert_eq!(density(&[1, 2, 3], Width::Four, 1), None);
    }
}
