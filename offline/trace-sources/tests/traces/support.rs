//! Paths of traces for tests.

use std::path::{Path, PathBuf};

/// Path of a small trace of this crate.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// Published G10 sets: model and batch.
pub(crate) const G10_SETS: [(&str, u32); 5] =
    [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)];

/// Loads a published G10 set.
pub(crate) fn g10(data: &Path, (model, batch): (&str, u32)) -> trace_sources::import::g10::Set {
    trace_sources::import::g10::load(&data.join(format!("g10/derived/{model}/{batch}.kernels.csv"))).unwrap()
}
