//! Errors in files, with file and line.

use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use thiserror::Error;

use trace::{circle, draft, ops};

/// Error in a file. Prints as `FILE:LINE: reason`.
#[derive(Debug, Error)]
pub struct ImportError {
    /// Invalid file, of those of one trace.
    pub file: PathBuf,
    /// Line from 1; `None` for an error of the file.
    pub line: Option<u64>,
    /// Reason. Part of the message, and so not its source, which error chains would print again.
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

/// Reason of an error.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum Reason {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("not UTF-8 text")]
    NotUtf8,
    #[error("line longer than {limit} bytes")]
    LineTooLong { limit: usize },
    #[error("more than {limit} bytes, uncompressed")]
    TooLarge { limit: u64 },
    #[error(
        "unknown kind of trace; known are: iterations and runs of uvmctl (JSON), PyTorch's profiler (JSON), G10 \
         (NAME.kernels.csv), SINGA (log of MALLOC and FREE, or op trace), MiniMalloc (CSV); docs/traces.md describes them"
    )]
    UnknownKind,
    #[error("no lines")]
    Empty,
    #[error("expected {expected} fields, found {found}")]
    FieldCount { expected: usize, found: usize },
    #[error("invalid {field} {value:?}: expected {expected}")]
    Field { field: &'static str, value: String, expected: &'static str },
    #[error("no column {column:?}")]
    MissingColumn { column: &'static str },
    #[error("unknown column {column:?}")]
    UnknownColumn { column: String },
    #[error("{entry} {found} out of order: expected {expected}")]
    OutOfOrder { entry: &'static str, expected: u64, found: u64 },
    #[error("{entry}: {found} here, {expected} in {other}")]
    CountsDiffer { entry: &'static str, expected: usize, found: usize, other: PathBuf },
    #[error("workspace {id} is not among the kernel's outputs")]
    WorkspaceNotOutput { id: u32 },
    #[error("the file name does not end in .kernels.csv, so the file of its tensors is unknown")]
    NotKernels,
    #[error("no work of a GPU")]
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
    /// Invalid value of a field. Long values are cut for the message.
    pub(crate) fn field(field: &'static str, value: &str, expected: &'static str) -> Self {
        const MAX_CHARS: usize = 40;
        let mut excerpt: String = value.chars().take(MAX_CHARS).collect();
        if excerpt.len() < value.len() {
            excerpt.push('…');
        }
        Self::Field { field, value: excerpt, expected }
    }
}
