//! Parsed texts.

use crate::PtxError;
use crate::ast::Contents;

/// One parsed PTX text.
#[derive(Clone, Debug)]
pub struct Ptx {
    pub(crate) contents: Contents,
}

impl Ptx {
    /// Parses PTX text.
    ///
    /// # Errors
    /// The text is not PTX, or not known.
    pub fn parse(text: &str) -> Result<Self, PtxError> {
        Ok(Self { contents: crate::parse::parse(text)? })
    }
}
