//! Where tests find traces.

use std::path::{Path, PathBuf};

/// A small trace of this crate's own.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// The G10 sets that are there: model and batch.
pub(crate) const G10_SETS: [(&str, u32); 5] =
    [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)];

/// A set of them.
pub(crate) fn g10(data: &Path, (model, batch): (&str, u32)) -> trace::import::g10::Set {
    trace::import::g10::load(&data.join(format!("g10/derived/{model}/{batch}.kernels.csv"))).unwrap()
}
