//! Tokens: what identifies a launch within a plan, computed by the helper before and after the launch
//! and by uvmd of the recorded call.
//!
//! A token has two halves. The upper one is a hash of the function with its grid, block and shared
//! memory, or of the instantiated graph: compared before the launch. The lower one is a hash of the
//! pointers among the arguments, with their places: compared after the launch, of which the pointers
//! are recorded. A lower half of 0 matches any pointers: that of a launch whose pointers differ from
//! iteration to iteration, or are not known.

use core::num::NonZeroU32;

use crate::kind::Size;

/// Of the golden ratio: an odd factor that spreads the bits of a word.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// First word of the hash of a launch of a kernel, and of a graph.
const KERNEL: u64 = 1;
const GRAPH: u64 = 2;

const fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(FACTOR);
    hash ^ hash >> 32
}

/// Upper half of a hash, mixed once more: all bits of the last word count there.
const fn fold(hash: u64) -> u32 {
    (mix(hash, 0) >> 32) as u32
}

/// Hash of what is launched, without its arguments: upper half of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(u32);

impl Signature {
    /// Of a kernel.
    #[must_use]
    pub const fn of_kernel(function: u64, grid: Size, block: Size, shared_bytes: u32) -> Self {
        let sizes = mix(mix(mix(KERNEL, function), grid.to_word()), block.to_word());
        Self(fold(mix(sizes, shared_bytes as u64)))
    }

    /// Of an instantiated graph.
    #[must_use]
    pub const fn of_graph(executable: u64) -> Self {
        Self(fold(mix(GRAPH, executable)))
    }
}

/// Hash of the pointers of a launch, in the order of their places: lower half of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointersHash(u64);

impl PointersHash {
    /// Without pointers.
    #[must_use]
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds a pointer.
    pub const fn add(&mut self, offset_bytes: u16, address: u64) {
        self.0 = mix(mix(self.0, offset_bytes as u64 | 1 << 16), address);
    }

    /// The hash; never 0, which stands for any pointers.
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
    /// What is launched.
    pub signature: Signature,
    /// Its pointers; `None` matches any.
    pub pointers: Option<NonZeroU32>,
}

impl Token {
    /// As a word of a plan.
    #[must_use]
    pub const fn to_word(self) -> u64 {
        let pointers = match self.pointers {
            Some(hash) => hash.get(),
            None => 0,
        };
        (self.signature.0 as u64) << 32 | pointers as u64
    }

    /// Of a word; any word is a token.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub const fn of_word(word: u64) -> Self {
        Self { signature: Signature((word >> 32) as u32), pointers: NonZeroU32::new(word as u32) }
    }

    /// Whether a launch with these pointers is the one that is meant; pointers that are not known are.
    #[must_use]
    pub fn matches_pointers(self, pointers: Option<NonZeroU32>) -> bool {
        self.pointers.is_none_or(|expected| pointers.is_none_or(|pointers| pointers == expected))
    }
}
