//! Overrides as files: one file, and the fragments of a folder beside it, in TOML or JSON.
//!
//! * `document`: one text
//! * `write`: the same, written

mod document;
mod write;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub use document::{Form, parse, parse_as};
use document::{Located, locate};
use model::Override;
use sys::private;
pub use write::write;

use crate::{
    error::{ConfigError, Mistake},
    fragments::{self, Fragment},
    read::read,
};

/// Folder beside the file, whose files have overrides as well.
pub const FRAGMENTS: &str = "overrides.d";

/// Endings of the files in it.
const ENDINGS: [&str; 2] = [".toml", ".json"];

/// The files of overrides as they were read. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(Arc<[Fragment]>);

/// Reads the files of overrides. Where there is none, there are no overrides.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(file: &Path) -> Result<Vec<Override>, ConfigError> {
    Files::read(file)?.parse()
}

/// Paths of a file of overrides and of the fragments beside it.
///
/// # Errors
/// If the folder cannot be read.
pub fn paths(file: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let fragments = fragments::list(file, FRAGMENTS, &ENDINGS)?;
    Ok([file.to_owned()].into_iter().chain(fragments).collect())
}

impl Files {
    /// Reads a file and the fragments beside it, without a look at what they say.
    ///
    /// # Errors
    /// If one of them cannot be read, can be changed by more users than the file, or if they are too many or too long.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        // What is read again every second must not be waited for, as a FIFO is. Links are fine: Kubernetes makes some.
        if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            return Err(ConfigError::Unreadable { file: file.into(), source: private::irregular() });
        }
        let text = match read(file) {
            // A link that leads nowhere is a mistake, and not a file that nobody wrote.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => String::new(),
            text => text.map_err(|source| ConfigError::Unreadable { file: file.into(), source })?,
        };
        let fragments = fragments::read(file, text.len(), FRAGMENTS, &ENDINGS)?;
        let main = Fragment { file: file.into(), text };
        Ok(Self([main].into_iter().chain(fragments).collect()))
    }

    /// All overrides, file by file.
    ///
    /// # Errors
    /// The first mistake, with its file: also two overrides with one id.
    pub fn parse(&self) -> Result<Vec<Override>, ConfigError> {
        let mut places: HashMap<String, &Path> = HashMap::new();
        let mut all = Vec::new();
        for Fragment { file, text } in self.0.iter() {
            let wrong = |mistake| ConfigError::File { file: file.clone(), mistake };
            for Located { rule, line } in locate(text, Form::of(file)).map_err(wrong)? {
                if let Some(other) = places.insert(rule.id.clone(), file) {
                    let key = Some("override.id".to_owned());
                    let message = format!("{} has another override {:?}", other.display(), rule.id);
                    return Err(wrong(Mistake { line, key, message }));
                }
                all.push(rule);
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_file_there_are_no_overrides() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(&folder.path().join("none.toml")).unwrap(), Vec::new());
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [folder.path(), &fifo] {
            assert!(load(path).unwrap_err().to_string().ends_with("it is not a regular file"));
        }
    }
}
