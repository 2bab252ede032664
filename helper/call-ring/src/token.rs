//! Tokens: identity of a launch within a plan. uvmd computes them from recorded calls, the helper at the
//! launches.
//!
//! The upper half of a token is the [`Signature`]: a hash of the function, grid, block and shared memory,
//! or of the instantiated graph. The helper compares it before the launch. The lower half is the
//! [`PointersHash`] of the arguments, which the helper compares after the launch, when it has recorded
//! them. A lower half of 0 matches any pointers, for launches whose pointers are unknown or change with
//! each iteration.

use core::num::NonZeroU32;

use crate::kind::Dim3;

/// Multiplier of Fibonacci hashing: 2^64 divided by the golden ratio, odd.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Seeds of the hashes of kernels and of graphs.
const KERNEL: u64 = 1;
const GRAPH: u64 = 2;

const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}

/// Upper half of the hash after a final mix, by which each bit of the last word counts.
const fn fold(hash: u64) -> u32 {
    (mix(hash, 0) >> 32) as u32
}

/// Hash of a launch without its arguments: upper half of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(u32);

impl Signature {
    /// Signature of a kernel launch.
    #[must_use]
    pub const fn of_kernel(function: u64, grid: Dim3, block: Dim3, shared_bytes: u32) -> Self {
        let sizes = mix(mix(mix(KERNEL, function), grid.to_word()), block.to_word());
        Self(fold(mix(sizes, shared_bytes as u64)))
    }

    /// Signature of a graph launch.
    #[must_use]
    pub const fn of_graph(executable: u64) -> Self {
        Self(fold(mix(GRAPH, executable)))
    }
}

/// Hash of the pointers of a launch and their offsets, in order: lower half of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointersHash(u64);

impl PointersHash {
    /// Hash of no pointers.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a pointer.
    pub const fn add(&mut self, offset_bytes: u16, address: u64) {
        self.0 = mix(mix(self.0, offset_bytes as u64 | 1 << 16), address);
    }

    /// Finished hash; never 0, which matches any pointers.
    #[must_use]
    pub const fn finish(self) -> NonZeroU32 {
        match NonZeroU32::new(fold(mix(self.0, FACTOR))) {
            Some(hash) => hash,
            None => NonZeroU32::MIN,
        }
    }
}

/// Token of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// Hash of the launch without its arguments.
    pub signature: Signature,
    /// Hash of the pointers; `None` matches any.
    pub pointers: Option<NonZeroU32>,
}

impl Token {
    /// Word of the token.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        let pointers = match self.pointers {
            Some(hash) => hash.get(),
            None => 0,
        };
        (self.signature.0 as u64) << 32 | pointers as u64
    }

    /// Token from a word; any word is valid.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub const fn from_word(word: u64) -> Self {
        Self { signature: Signature((word >> 32) as u32), pointers: NonZeroU32::new(word as u32) }
    }

    /// Whether a launch's pointers match; unknown pointers match any.
    #[must_use]
    pub fn matches_pointers(self, pointers: Option<NonZeroU32>) -> bool {
        self.pointers.is_none_or(|expected| pointers.is_none_or(|pointers| pointers == expected))
    }
}
