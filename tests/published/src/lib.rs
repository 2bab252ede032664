//! Folder of published traces for tests, which are not part of the project.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

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
