//! The checksum of a container, taken as it comes into being. Of each block of 4 KiB a sum of words times keys (multilinear hashing: Carter and Wegman 1979,
//! Lemire and Kaser 2014), which vector instructions do faster than any cyclic redundancy check; of these sums a polynomial modulo a prime.
//!
//! Keys are odd, no two alike, and fixed, so that it finds what went wrong, not what somebody changed with the keys in mind. Of random keys no two containers
//! of one size would have the same checksum with a chance above 2^-30: 2^-31 of the sums, 2^-37 of a polynomial of 16 GiB. A word that is wrong, or two bits in a
//! block, always change its sum: a product of a key and the difference of two words is less than 2^64 and not zero.

use crate::isa::{
    Isa,
    scalar::{BLOCK_BYTES, splitmix},
};

/// A prime.
const MODULUS: u64 = (1 << 61) - 1;
/// Where the polynomial is evaluated.
const POINT: u64 = splitmix(BLOCK_BYTES as u64) % MODULUS;
/// Follows a payload that grows, or nothing at all.
pub(crate) struct Checksum {
    isa: Isa,
    wanted: bool,
    value: u64,
    followed_bytes: usize,
}

impl Checksum {
    pub(crate) fn new(wanted: bool, isa: Isa) -> Self {
        Self { isa, wanted, value: 0, followed_bytes: 0 }
    }

    /// `payload` is what there is of it by now.
    pub(crate) fn follow(&mut self, payload: &[u8]) {
        if self.wanted {
            let more = payload.get(self.followed_bytes..).unwrap_or_default();
            for block in more.chunks_exact(BLOCK_BYTES) {
                self.add(self.isa.sum(block));
                self.followed_bytes += BLOCK_BYTES;
            }
        }
    }

    /// Copies a payload to a buffer of its size, following it.
    pub(crate) fn copy(&mut self, payload: &[u8], out: &mut [u8]) {
        let mut copied = 0;
        for (from, to) in payload.chunks(BLOCK_BYTES).zip(out.chunks_mut(BLOCK_BYTES)) {
            to.copy_from_slice(from);
            copied += from.len();
            self.follow(payload.get(..copied).unwrap_or_default());
        }
    }

    /// The checksum of all of `payload`, then `index`, then `header`, each in blocks of its own.
    pub(crate) fn finish(mut self, payload: &[u8], index: &[u8], header: &[u8]) -> Option<u64> {
        if !self.wanted {
            return None;
        }
        self.follow(payload);
        let rest = payload.get(self.followed_bytes..).unwrap_or_default();
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

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::scalar::{KEYS, sum};

    /// The lowest bytes of numbers.
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
        assert_eq!(splitmix(0), 0xe220_a839_7b1d_cdaf, "as its author's version has it");
        assert_eq!(sum(&two), 3 * (keys & 0xffff_ffff) + 256 * (keys >> 32));
        assert_eq!(sum(&block(|_| 0)), 0);
        assert_eq!(sum(&two[..6]), sum(&two), "what is missing is zero");
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
