//! Checksum of a container, computed along with packing. Each block of 4 KiB has a sum of words
//! times keys (multilinear hashing: Carter and Wegman 1979, Lemire and Kaser 2014), which is faster
//! with vector instructions than any cyclic redundancy check. These sums are the coefficients of a
//! polynomial modulo a prime.
//!
//! Keys are odd, distinct and fixed, so that the checksum detects errors, not manipulation by
//! somebody who knows the keys. With random keys, two containers of one size would have the same
//! checksum with a probability of at most 2^-30: 2^-31 by the sums, 2^-37 by a polynomial of 16
//! GiB. A wrong word, or two wrong bits in a block, always change the sum: the product of a key and
//! the difference of two words is less than 2^64 and not zero.

use crate::isa::{
    Isa,
    scalar::{BLOCK_BYTES, splitmix},
};

/// Modulus: a prime.
const MODULUS: u64 = (1 << 61) - 1;
/// Point at which the polynomial is evaluated.
const POINT: u64 = splitmix(BLOCK_BYTES as u64) % MODULUS;
/// Checksum of a payload that grows; no-op if disabled.
pub(crate) struct Checksum {
    isa: Isa,
    enabled: bool,
    value: u64,
    summed_bytes: usize,
}

impl Checksum {
    pub(crate) fn new(enabled: bool, isa: Isa) -> Self {
        Self { isa, enabled, value: 0, summed_bytes: 0 }
    }

    /// Adds the complete new blocks of `payload`, which is the whole payload so far.
    pub(crate) fn update(&mut self, payload: &[u8]) {
        if self.enabled {
            let more = payload.get(self.summed_bytes..).unwrap_or_default();
            for block in more.chunks_exact(BLOCK_BYTES) {
                self.add(self.isa.sum(block));
                self.summed_bytes += BLOCK_BYTES;
            }
        }
    }

    /// Copies a payload to a buffer of its size, and adds it.
    pub(crate) fn copy(&mut self, payload: &[u8], out: &mut [u8]) {
        let mut copied = 0;
        for (from, to) in payload.chunks(BLOCK_BYTES).zip(out.chunks_mut(BLOCK_BYTES)) {
            to.copy_from_slice(from);
            copied += from.len();
            self.update(payload.get(..copied).unwrap_or_default());
        }
    }

    /// The checksum of all of `payload`, then `index`, then `header`, each in its own blocks.
    pub(crate) fn finish(mut self, payload: &[u8], index: &[u8], header: &[u8]) -> Option<u64> {
        if !self.enabled {
            return None;
        }
        self.update(payload);
        let rest = payload.get(self.summed_bytes..).unwrap_or_default();
        for part in [rest, index, header] {
            for block in part.chunks(BLOCK_BYTES) {
                self.add(self.isa.sum(block));
            }
        }
        Some(self.value)
    }

    fn add(&mut self, sum: u64) {
        for half in [sum >> 32, sum & u64::from(u32::MAX)] {
            let value = u128::from(self.value) * u128::from(POINT) + u128::from(half);
            // 2^61 is 1 modulo the prime.
            let folded = low(value) & MODULUS;
            let folded = folded + low(value >> 61);
            self.value = if folded >= MODULUS { folded - MODULUS } else { folded };
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is intended")]
fn low(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::{KEYS, sum};

    /// A block of the lowest bytes of numbers.
    fn block(of: impl Fn(usize) -> usize) -> [u8; BLOCK_BYTES] {
        std::array::from_fn(|at| of(at).to_le_bytes()[0])
    }

    #[test]
    fn keys_are_odd_and_no_two_alike() {
        let mut keys: Vec<_> = KEYS.0.iter().flat_map(|keys| [keys & u64::from(u32::MAX), keys >> 32]).collect();
        keys.sort_unstable();
        assert!(keys.iter().all(|key| key % 2 == 1));
        assert!(keys.windows(2).all(|two| two[0] != two[1]));
    }

    #[test]
    fn the_sum_is_of_words_times_keys() {
        let two = block(|at| [3, 0, 0, 0, 0, 1, 0, 0].get(at).copied().unwrap_or(0));
        let keys = splitmix(0) | 1 << 32 | 1;
        assert_eq!(splitmix(0), 0xe220_a839_7b1d_cdaf, "as in its author's version");
        assert_eq!(sum(&two), 3 * (keys & 0xffff_ffff) + 256 * (keys >> 32));
        assert_eq!(sum(&block(|_| 0)), 0);
        assert_eq!(sum(&two[..6]), sum(&two), "missing bytes are zero");
    }

    #[test]
    fn all_instructions_sum_alike() {
        let block = block(|at| at * at / 8);
        for isa in Isa::available() {
            assert_eq!(isa.sum(&block), sum(&block), "{}", isa.name());
        }
    }

    #[test]
    fn one_bit_or_two_always_change_the_sum() {
        let before = block(|at| at * 7 / 4);
        let flipped = |bits: &[usize]| {
            let mut after = before;
            for bit in bits {
                after[bit / 8] ^= 1 << (bit % 8);
            }
            sum(&after)
        };
        for bit in 0..8 * BLOCK_BYTES {
            assert_ne!(flipped(&[bit]), sum(&before), "{bit}");
        }
        for bit in 0..4000 {
            let other = (bit * 7919 + 31) % (8 * BLOCK_BYTES);
            assert!(bit == other || flipped(&[bit, other]) != sum(&before), "{bit} {other}");
        }
    }

    #[test]
    fn the_polynomial_is_that_of_the_sums_halves() {
        let mut checksum = Checksum::new(true, Isa::SCALAR);
        let sums = [u64::MAX, 0, 1 << 32, 0x1234_5678_9abc_def0];
        let mut expected = 0_u128;
        for sum in sums {
            checksum.add(sum);
            for half in [sum >> 32, sum & 0xffff_ffff] {
                expected = (expected * u128::from(POINT) + u128::from(half)) % u128::from(MODULUS);
            }
            assert_eq!(u128::from(checksum.value), expected);
        }
    }

    #[test]
    fn blocks_and_parts_that_change_places_change_the_checksum() {
        let of = |payload: &[u8], index: &[u8]| Checksum::new(true, Isa::best()).finish(payload, index, b"header");
        let (one, two) = (block(|at| at), block(|at| at / 3));
        assert_ne!(of(&[one, two].concat(), b""), of(&[two, one].concat(), b""));
        assert_ne!(of(b"payload", b"index"), of(b"index", b"payload"));
    }
}
