//! Parser and interpreter of PTX, a warp at a time.
//!
//! PTX text is parsed ([`Ptx::parse`]), linked ([`link`]), given addresses for its variables
//! ([`Linked::place`]) and run ([`Kernel::run`]) on a [`Memory`].

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    clippy::float_cmp,
    reason = "registers are bits, which instructions take for numbers of any width and sign, and compare exactly"
)]
#![expect(
    clippy::many_single_char_names,
    clippy::similar_names,
    reason = "operands are named as in the PTX ISA: d, a, b, c"
)]

mod ast;
mod compile;
mod heap;
mod kernel;
mod launch;
mod lex;
mod link;
mod machine;
mod memory;
mod module;
mod ops;
mod parse;
mod text;
mod types;

pub use heap::Heap;
pub use kernel::{Kernel, Parameter};
pub use launch::{Counts, KernelError, Launch};
pub use link::Variable;
pub use memory::{Access, GRANULE_BYTES, Memory, MemoryFault, Miss, WarpAccess, Window};
pub use module::{Linked, Module, link};
pub use text::Ptx;

/// Permissions of granules.
pub mod permission {
    pub use crate::memory::{ATOMIC, READ, WRITE};
}

/// PTX text that does not parse, or has an instruction that the interpreter lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct PtxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// What is wrong; an unknown instruction with its full name, `wgmma.mma_async.sync…`.
    pub reason: String,
}

/// Modules that do not link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// Declared and used, but defined nowhere.
    #[error("undefined symbol {0}")]
    Undefined(String),
    /// Defined twice.
    #[error("symbol {0} is defined twice")]
    Duplicate(String),
    /// A function that does not compile.
    #[error(transparent)]
    Ptx(#[from] PtxError),
}
