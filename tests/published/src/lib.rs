//! Where tests find published traces, which are not part of the project.

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    sync::Once,
};

/// Their folder: `UVMD_DATA`, or one beside the project. `None`, and a line that says so, where there is none: then the test has nothing to do.
#[must_use]
pub fn data() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let folder = env::var_os("UVMD_DATA").map_or_else(beside, PathBuf::from);
    if folder.is_dir() {
        return Some(folder);
    }
    // Past the test harness, which would keep it to itself. Where nobody can be told, nobody is.
    let line = format!("skipped: no published traces in {} (UVMD_DATA names another folder)\n", folder.display());
    SAID.call_once(|| _ = std::io::stderr().write_all(line.as_bytes()));
    None
}
