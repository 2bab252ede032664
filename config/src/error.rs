//! Errors of configuration files.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

/// Reason why there is no configuration: one line with the place and the allowed values.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {}", file.display(), sys::reason(source))]
    Unreadable {
        /// File.
        file: PathBuf,
        /// Error of the read.
        source: io::Error,
    },
    /// Invalid content of the file.
    #[error("{}:{mistake}", file.display())]
    File {
        /// File.
        file: PathBuf,
        /// Mistake and its place.
        mistake: Mistake,
    },
}

/// Reason why a [`Setting`](crate::Setting) is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingError {
    /// No key with a value.
    #[error("expected KEY=VALUE, with a key as in the file, such as log.format")]
    Form,
    /// Unknown key, or a value that it does not have: the mistake, and the allowed values.
    #[error("{0}")]
    Value(String),
}

/// Mistake in a text, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Line, counted from 1.
    pub line: usize,
    /// Key with its tables, such as `log.format`; `None` if the text is not TOML.
    pub key: Option<String>,
    /// Mistake, and the allowed values.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, message } = self;
        match key {
            Some(key) => write!(f, "{line}: {key}: {message}"),
            None => write!(f, "{line}: {message}"),
        }
    }
}
