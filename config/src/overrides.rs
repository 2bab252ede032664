//! Overrides in files: one file, and the fragments of a folder beside it, in TOML or JSON.
//!
//! * `document`: parsing of one text
//! * `write`: writing of one

mod document;
mod write;

use std::{
    collections::HashMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use api::fleet_overrides;
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

/// Folder beside the file, with further files of overrides.
pub const FRAGMENTS: &str = "overrides.d";

/// Endings of the files in this folder.
const ENDINGS: [&str; 2] = [".toml", ".json"];

/// Files of overrides as read. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(Arc<[Fragment]>);

/// Reads the overrides of a file and its fragments. A missing file has none.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(file: &Path) -> Result<Vec<Override>, ConfigError> {
    Files::read(file)?.parse()
}

/// Paths of a file of overrides and its fragments.
///
/// # Errors
/// If the folder cannot be read.
pub fn paths(file: &Path) -> Result<Vec<PathBuf>, ConfigError> {
    let fragments = fragments::list(file, FRAGMENTS, &ENDINGS)?;
    Ok([file.to_owned()].into_iter().chain(fragments).collect())
}

impl Files {
    /// Reads a file and its fragments, without parsing them.
    ///
    /// # Errors
    /// If one of them cannot be read, can be changed by more users than the file, or if they are
    /// too many or too long.
    pub fn read(file: &Path) -> Result<Self, ConfigError> {
        // A read that is repeated every second must not block, as one of a FIFO does. Links are
        // accepted: Kubernetes creates some.
        if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
            return Err(ConfigError::Unreadable { file: file.into(), source: private::irregular() });
        }
        let text = match read(file) {
            // A dangling link is a mistake, unlike a missing file.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => String::new(),
            text => text.map_err(|source| ConfigError::Unreadable { file: file.into(), source })?,
        };
        let fragments = fragments::read(file, text.len(), FRAGMENTS, &ENDINGS)?;
        let main = Fragment { file: file.into(), text };
        Ok(Self([main].into_iter().chain(fragments).collect()))
    }

    /// Parses all overrides, file by file.
    ///
    /// # Errors
    /// First mistake, with its file; a duplicate id counts as one, and an id of `uvmd-fleet`.
    pub fn parse(&self) -> Result<Vec<Override>, ConfigError> {
        let mut places: HashMap<String, &Path> = HashMap::new();
        let mut all = Vec::new();
        for Fragment { file, text } in self.0.iter() {
            let wrong = |mistake| ConfigError::File { file: file.clone(), mistake };
            for Located { rule, line } in locate(text, Form::of(file)).map_err(wrong)? {
                if let Err(invalid) = fleet_overrides::check_foreign_id(&rule.id) {
                    let key = Some(format!("override.{}", invalid.field));
                    return Err(wrong(Mistake { line, key, message: invalid.detail }));
                }
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
    fn missing_file_has_no_overrides() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(&folder.path().join("none.toml")).unwrap(), Vec::new());
    }

    #[test]
    fn id_of_fleet_is_a_mistake() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overrides.toml");
        fs::write(&file, "[[override]]\nid = \"fleet-x\"\nmode = \"observe\"\n").unwrap();
        let error = load(&file).unwrap_err().to_string();
        assert!(error.contains("overrides.toml:2: override.id: \"fleet-x\" begins with \"fleet-\""), "{error}");
    }

    #[test]
    fn fifo_is_rejected_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [folder.path(), &fifo] {
            assert!(load(path).unwrap_err().to_string().ends_with("it is not a regular file"));
        }
    }
}
