//! Folder of published traces for tests, which are not part of the project.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

/// Published iterations of G10: model and batch size.
pub const G10_SETS: [&str; 5] = ["BERT_Base/256", "VIT/1280", "Inceptionv3/1536", "ResNet152/1280", "SENet154/1024"];

/// Kernels of a published iteration of G10.
#[must_use]
pub fn g10_kernels(data: &Path, set: &str) -> PathBuf {
    data.join(format!("g10/derived/{set}.kernels.csv"))
}

/// Folder of published traces: `UVMD_DATA`, or one beside the project. `None`, with a message, if
/// there is none: the test is then skipped.
#[must_use]
pub fn data() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = env::var_os("UVMD_DATA").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // Written past the test harness, which would capture it. Errors are ignored.
    let line = format!("skipped: no published traces in {} (UVMD_DATA names another folder)\n", folder.display());
    SAID.call_once(|| _ = std::io::stderr().write_all(line.as_bytes()));
    None
}
