//! Compilation of PTX, with the messages that programs get of it.

use ptx::{Linked, Ptx};

use crate::{Error, errors::complain};

/// Why a module does not load.
#[derive(Debug)]
pub(crate) struct LoadError {
    /// Code.
    pub(crate) code: Error,
    /// Text for the log of the compiler.
    pub(crate) text: String,
}

impl From<Error> for LoadError {
    fn from(code: Error) -> Self {
        Self { code, text: String::new() }
    }
}

/// Failure for which the text is to blame.
pub(crate) fn invalid(error: &dyn std::fmt::Display) -> LoadError {
    let text = format!("ptxas fatal: {error}");
    complain(&text);
    LoadError { code: Error::CUDA_ERROR_INVALID_PTX, text }
}

/// Parses a text. The message of a failure has the line.
fn parse(text: &str) -> Result<Ptx, LoadError> {
    Ptx::parse(text).map_err(|error| {
        let before = usize::try_from(error.line).unwrap_or(0).saturating_sub(1);
        let line = text.lines().nth(before).unwrap_or_default().trim();
        invalid(&format_args!("{error}: {line}"))
    })
}

/// Parses and links texts.
///
/// # Errors
/// They are not PTX, or do not link.
pub(crate) fn link(texts: &[String]) -> Result<Linked, LoadError> {
    let parsed = texts.iter().map(|text| parse(text)).collect::<Result<_, _>>()?;
    ptx::link(parsed).map_err(|error| invalid(&error))
}

/// Checks that texts are PTX.
///
/// # Errors
/// One is not.
pub(crate) fn check(texts: &[String]) -> Result<(), LoadError> {
    texts.iter().try_for_each(|text| parse(text).map(|_| ()))
}

/// Places of a module's variables in two allocations.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Offsets of the variables in their allocation.
    pub(crate) offsets: Vec<u64>,
    /// Length of the one in device memory.
    pub(crate) device_bytes: u64,
    /// Length of the one in managed memory.
    pub(crate) managed_bytes: u64,
}

/// Lays out the variables of a module.
pub(crate) fn lay_out(linked: &Linked) -> Layout {
    let mut layout = Layout::default();
    for variable in linked.variables() {
        let end = if variable.managed { &mut layout.managed_bytes } else { &mut layout.device_bytes };
        let offset = end.next_multiple_of(variable.align_bytes.max(1));
        *end = offset.saturating_add(variable.bytes);
        layout.offsets.push(offset);
    }
    layout
}

/// Compiles texts to kernels whose variables have no memory.
///
/// # Errors
/// They are not PTX that runs.
pub(crate) fn compile(texts: &[String]) -> Result<ptx::Module, LoadError> {
    let linked = link(texts)?;
    let layout = lay_out(&linked);
    linked.place(&layout.offsets).map_err(|error| invalid(&error))
}
