//! Where tests find traces.
#![allow(dead_code, reason = "each test uses its part")]
#![expect(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

/// A small trace of this crate's own.
pub(crate) fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// The folder of published traces, which are not part of the project: `UVMD_DATA`, or a folder beside the project. Says so where there is none.
pub(crate) fn data() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let folder = std::env::var_os("UVMD_DATA").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // Past the test harness, which would keep it to itself.
    let line = format!("skipped: no published traces in {} (UVMD_DATA names another folder)\n", folder.display());
    SAID.call_once(|| std::io::stderr().write_all(line.as_bytes()).unwrap());
    None
}

/// The G10 sets that are there: model and batch.
pub(crate) const G10_SETS: [(&str, u32); 5] =
    [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)];

/// A set of them.
pub(crate) fn g10(data: &Path, (model, batch): (&str, u32)) -> trace::import::g10::Set {
    trace::import::g10::load(&data.join(format!("g10/derived/{model}/{batch}.kernels.csv"))).unwrap()
}
