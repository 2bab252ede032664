//! Small files that must outlive the service: each is as it was, or as it is now, whatever happens in between.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use serde::{Serialize, de::DeserializeOwned};

/// A file that holds a value, in JSON, for uvmd's own user alone.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    path: PathBuf,
}

impl Kept {
    /// In a folder that is made when it is needed.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self { path: folder.join(name) }
    }

    /// What was kept last; `None` if nothing was.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<Option<T>> {
        let text = match fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(anyhow!("cannot read {}: {}", self.path.display(), sys::reason(&error))),
        };
        serde_json::from_slice(&text).map(Some).with_context(|| format!("{} is damaged", self.path.display()))
    }

    /// Keeps a value in place of the one before. It is on the disk when this returns.
    pub(crate) fn write(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(value)?;
        self.try_write(&text).map_err(|error| self.failed(&error))
    }

    /// Keeps nothing any more.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        match fs::remove_file(&self.path) {
            Ok(()) => self.sync_folder().map_err(|error| self.failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn try_write(&self, text: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let new = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        self.sync_folder()
    }

    /// Names are the folder's.
    fn sync_folder(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }

    fn failed(&self, error: &io::Error) -> anyhow::Error {
        anyhow!("cannot keep {}: {}", self.path.display(), sys::reason(error))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_is_nobody_elses() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let kept = Kept::new(&state, "x.json");
        assert_eq!(kept.read::<Vec<u32>>().unwrap(), None);
        kept.write(&[1, 2]).unwrap();
        kept.write(&[3]).unwrap();
        assert_eq!(kept.read::<Vec<u32>>().unwrap(), Some(vec![3]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("x.json"))), (0o700, 0o600));
        kept.remove().unwrap();
        kept.remove().unwrap();
        assert_eq!(kept.read::<Vec<u32>>().unwrap(), None);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn what_cannot_be_kept_or_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "{").unwrap();
        let error = Kept::new(&file, "x.json").write(&1).unwrap_err().to_string();
        assert!(error.contains("cannot keep") && error.contains("x.json"), "{error}");
        let error = Kept::new(folder.path(), "file").read::<u32>().unwrap_err().to_string();
        assert!(error.ends_with("file is damaged"), "{error}");
    }
}
