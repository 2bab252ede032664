//! Boundaries of the workspace, read from its manifests and sources. `tests/workspace.rs` checks
//! them against ARCHITECTURE.md.
//!
//! * [`crates`]: crates and the arrows between them
//! * [`table`]: table of crates in ARCHITECTURE.md
//! * [`arrows`]: differences between the two
//! * [`modules`]: modules of a crate, and the paths in each
//! * [`cycles`]: modules that use each other
//! * [`purity`]: input, output and clocks
//! * [`files`]: places of modules

pub mod arrows;
pub mod crates;
pub mod cycles;
pub mod files;
pub mod modules;
mod paths;
pub mod purity;
pub mod table;

use std::{
    io,
    path::{Path, PathBuf},
};

use thiserror::Error;

/// Root of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Unreadable manifest, source or document.
#[derive(Debug, Error)]
pub enum Error {
    /// Cargo rejected the manifest.
    #[error("cargo metadata: {0}")]
    Metadata(#[from] cargo_metadata::Error),
    /// Unreadable file.
    #[error("{}: {source}", .path.display())]
    File {
        /// File.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// Invalid Rust.
    #[error("{}: {source}", .path.display())]
    Syntax {
        /// File.
        path: PathBuf,
        /// Reason.
        source: syn::Error,
    },
    /// A module without a file.
    #[error("{}: no file of module {name}", .path.display())]
    NoFile {
        /// File that declares the module.
        path: PathBuf,
        /// Name of the module.
        name: String,
    },
    /// Malformed row of the table of crates.
    #[error("ARCHITECTURE.md: {0}")]
    Row(String),
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

pub(crate) fn parse(path: &Path) -> Result<syn::File, Error> {
    syn::parse_file(&read(path)?).map_err(|source| Error::Syntax { path: path.to_owned(), source })
}
