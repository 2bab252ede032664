//! This crate's own JSON.

use std::path::Path;

use serde::Deserialize;

use super::{
    Trace,
    error::{ImportError, Reason},
    text,
};
use crate::{iteration::Iteration, ops::OpStream};

/// Either form: which one, its members tell. Not an untagged enum, whose error would say only that it is neither.
pub(super) fn load(path: &Path) -> Result<Trace, ImportError> {
    let mut reader = serde_json::Deserializer::from_reader(text::open(path)?);
    let any = serde_json::Value::deserialize(&mut reader).map_err(|error| json(path, &error))?;
    let has = |member| any.get(member).is_some();
    let (iteration, ops) = (has("kernels"), has("ops"));
    // Once more from the text, for the line of what is wrong.
    if iteration {
        parse::<Iteration>(path).map(Trace::Iteration)
    } else if ops {
        parse::<OpStream>(path).map(Trace::Ops)
    } else {
        Err(ImportError::new(path, None, Reason::UnknownKind))
    }
}

fn parse<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, ImportError> {
    serde_json::from_reader(text::open(path)?).map_err(|error| json(path, &error))
}

/// Wrong JSON, with its line. serde's own message ends in the place: it is said once.
pub(super) fn json(path: &Path, error: &serde_json::Error) -> ImportError {
    let line = Some(error.line() as u64).filter(|&line| line > 0);
    let message = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = message.strip_suffix(&place).unwrap_or(&message);
    ImportError::new(path, line, Reason::Json(message.to_owned()))
}
