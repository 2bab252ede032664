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

/// First line of a file, trimmed; `None` if it is empty. Most files have one line; a parameter of
/// the driver may have several.
pub(crate) fn line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim().lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}
