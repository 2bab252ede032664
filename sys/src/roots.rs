//! Root folders: /proc and /sys.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// File systems in which the kernel exposes processes, modules and GPUs.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

/// Content of a file of one line, trimmed; `None` if it is empty. Of several lines, as a driver's
/// parameter may have, the first.
pub(crate) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim().lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}
