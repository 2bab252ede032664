//! JSON of this crate.

use std::path::Path;

use serde::Deserialize;

use super::{
    error::{ImportError, Reason},
    text,
};
use trace::{iteration::Iteration, ops::OpStream};

pub(super) fn load_iteration(path: &Path) -> Result<Iteration, ImportError> {
    load(path)
}

pub(super) fn load_ops(path: &Path) -> Result<OpStream, ImportError> {
    load(path)
}

fn load<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ImportError> {
    serde_json::from_reader(text::open(path)?).map_err(|error| json(path, &error))
}

/// Error in JSON, with its line. The position at the end of serde's message is removed, as
/// `ImportError` prints the line.
pub(super) fn json(path: &Path, error: &serde_json::Error) -> ImportError {
    let line = Some(error.line() as u64).filter(|&line| line > 0);
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&position).unwrap_or(&message);
    ImportError::new(path, line, Reason::Json(message.to_owned()))
}
