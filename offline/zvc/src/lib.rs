//! Zero-value compression as cDMA does it (Rhu et al., HPCA 2018): of every 128 bytes, a mask that says which words are zero, and the others as they
//! are. Lossless for any bits: a word is zero only where all its bits are, so that negative zero and every NaN survive. docs/policies/cdma.md says
//! what is taken from the paper and what is not.
//!
//! bytes -> [`Codec`] -> container -> [`Packed`] -> bytes, all of them or any page of 4 KiB
//!
//! * [`mod@format`]: the container and its parts
//! * [`codec`]: how data are packed
//! * [`packed`]: how they are unpacked, and tells of each page what it takes
//! * [`isa`]: the vector instructions that the work is done with
//! * [`mod@density`]: how much of some data is not zero, and the ratio that follows from it
//! * [`engine`]: how long the paper's hardware takes for a transfer
//! * [`rle`]: runs of zeros, the codec to compare with

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
