//! Errors of files.

use std::{fmt, io, path::PathBuf};

use thiserror::Error;

/// Why there is no configuration: one line that says where, and what is allowed.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {}", file.display(), sys::reason(source))]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file says something that is not allowed.
    #[error("{}:{mistake}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// What and where.
        mistake: Mistake,
    },
}

/// What is wrong in a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// With its tables, such as `log.format`; `None` where the text is no TOML.
    pub key: Option<String>,
    /// What is wrong, and what is allowed.
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
