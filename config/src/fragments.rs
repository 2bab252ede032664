//! Fragments: files of a folder beside a file, which extend it.
//!
//! Package managers, configuration management and mounted volumes can add a file more easily than
//! edit one.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sys::private::{self, Writers};

use crate::{
    error::ConfigError,
    read::{BYTES_MAX, read_up_to},
};

/// Maximum of fragments, more than any node needs.
const COUNT_MAX: usize = 1000;

/// Fragment of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) file: PathBuf,
    pub(crate) text: String,
}

/// Paths of the fragments of `main`, in the lexical order of their names: files of the folder with
/// one of these endings and without a leading dot. Empty if there is no such folder.
pub(crate) fn list(main: &Path, folder: &str, endings: &[&str]) -> Result<Vec<PathBuf>, ConfigError> {
    let folder = main.with_file_name(folder);
    let unreadable = |source| ConfigError::Unreadable { file: folder.clone(), source };
    let entries = match fs::read_dir(&folder) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(unreadable)?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with('.') && endings.iter().any(|ending| name.ends_with(ending)) {
            files.push(entry.path());
        }
        if files.len() > COUNT_MAX {
            return Err(unreadable(io::Error::other(format!("it has more than {COUNT_MAX} files"))));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads the fragments of `main`, whose own length is `main_bytes`. No user may have write
/// permission who lacks it for `main`, except root and this process's user.
pub(crate) fn read(
    main: &Path,
    main_bytes: usize,
    folder: &str,
    endings: &[&str],
) -> Result<Vec<Fragment>, ConfigError> {
    let files = list(main, folder, endings)?;
    let checked = |path: &Path, writers: Writers| {
        writers.check(path).map_err(|source| ConfigError::Unreadable { file: path.into(), source })
    };
    let writers = Writers::of(main).map_err(|source| ConfigError::Unreadable { file: main.into(), source })?;
    if !files.is_empty() {
        checked(&main.with_file_name(folder), writers)?;
    }
    let mut room = BYTES_MAX.saturating_sub(main_bytes as u64);
    let mut fragments = Vec::with_capacity(files.len());
    for file in files {
        checked(&file, writers)?;
        let unreadable = |source| ConfigError::Unreadable { file: file.clone(), source };
        // A read of a FIFO would block.
        if !fs::metadata(&file).map_err(unreadable)?.is_file() {
            return Err(unreadable(private::irregular()));
        }
        let text = read_up_to(&file, room).map_err(|error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                unreadable(io::Error::other(format!("it and the files before it are longer than {BYTES_MAX} bytes")))
            }
            _ => unreadable(error),
        })?;
        room = room.saturating_sub(text.len() as u64);
        fragments.push(Fragment { file, text });
    }
    Ok(fragments)
}
