//! What is wrong with a file, and where.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{circle, draft, ops};

/// Why a file is no trace. Prints as `FILE:LINE: reason`.
#[derive(Debug, Error)]
pub struct ImportError {
    /// The file that is wrong, of those that belong together.
    pub file: PathBuf,
    /// Counted from 1; `None` where the whole file is meant.
    pub line: Option<u64>,
    /// What is wrong. Part of the message, and so not its source: chains would say it twice.
    pub reason: Reason,
}

impl ImportError {
    pub(crate) fn new(file: &Path, line: Option<u64>, reason: impl Into<Reason>) -> Self {
        Self { file: file.into(), line, reason: reason.into() }
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.line {
            Some(line) => write!(f, "{file}:{line}: {}", self.reason),
            None => write!(f, "{file}: {}", self.reason),
        }
    }
}

/// What is wrong.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Reason {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not UTF-8 text")]
    NotText,
    #[error("a line of more than {limit} bytes")]
    LineTooLong { limit: usize },
    #[error("more than {limit} bytes, uncompressed")]
    TooLarge { limit: u64 },
    #[error("not a trace of a kind that is known here")]
    UnknownKind,
    #[error("no lines")]
    Empty,
    #[error("{found} fields where there should be {expected}")]
    FieldCount { expected: usize, found: usize },
    #[error("{field} is {value:?}, which is no {expected}")]
    Field { field: &'static str, value: String, expected: &'static str },
    #[error("no column {column:?}")]
    MissingColumn { column: &'static str },
    #[error("column {column:?} is not known")]
    UnknownColumn { column: String },
    #[error("{what} {found} where {expected} should come")]
    OutOfOrder { what: &'static str, expected: u64, found: u64 },
    #[error("{what}: {found} here, {expected} in {other}")]
    CountsDiffer { what: &'static str, expected: usize, found: usize, other: PathBuf },
    #[error("workspace {id} is not among the kernel's outputs")]
    WorkspaceNoOutput { id: u32 },
    #[error("the file's name does not end in .kernels.csv, so that there is no telling where its tensors are")]
    NotKernels,
    #[error("no GPU's work in it")]
    NoDevice,
    #[error("{0}")]
    Json(String),
    #[error(transparent)]
    Iteration(#[from] draft::Invalid),
    #[error(transparent)]
    Ops(#[from] ops::Invalid),
    #[error(transparent)]
    Circle(#[from] circle::Invalid),
}

impl Reason {
    /// A field that does not hold what it should. What it holds is shown up to a length that suits a message.
    pub(crate) fn field(field: &'static str, value: &str, expected: &'static str) -> Self {
        const SHOWN: usize = 40;
        let mut shown: String = value.chars().take(SHOWN).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self::Field { field, value: shown, expected }
    }
}
