//! Paths of traces for tests.

use std::path::{Path, PathBuf};

/// Path of a small trace of this crate.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// Loads a published iteration of G10.
pub(crate) fn g10(data: &Path, set: &str) -> trace_sources::import::g10::Set {
    trace_sources::import::g10::load(&published::g10_kernels(data, set)).unwrap()
}
