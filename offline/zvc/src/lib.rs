//! Zero-value compression as in cDMA (Rhu et al., HPCA 2018): for every 128 bytes, a mask of the
//! words that are zero, and the other words. It is lossless for any bits: a word is zero only if
//! all its bits are, so that negative zero and every NaN survive. docs/policies/cdma.md describes
//! the differences from the paper.
//!
//! bytes -> [`Codec`] -> container -> [`Packed`] -> bytes, all of them or any page of 4 KiB
//!
//! * [`mod@format`]: the container and its parts
//! * [`codec`]: packing of data
//! * [`packed`]: unpacking, and the packed size of each page
//! * [`isa`]: vector instructions
//! * [`mod@density`]: share of words that are not zero, and the ratio that follows from it
//! * [`engine`]: time of a transfer by the paper's hardware
//! * [`rle`]: runs of zeros, the codec for comparison

mod checksum;
pub mod codec;
pub mod density;
pub mod engine;
mod error;
pub mod format;
pub mod isa;
pub mod packed;
pub mod rle;
mod unit;

pub use codec::Codec;
pub use density::{density, ratio_at};
pub use engine::Engine;
pub use error::Error;
pub use format::{PAGE_BYTES, UNIT_BYTES, Width};
pub use isa::Isa;
pub use packed::Packed;
