//! Small files that outlive the service: at any moment, each has the old or the new contents.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, anyhow};
use serde::{Serialize, de::DeserializeOwned};
use sys::private;

/// Endings of quarantined files.
const ENDINGS: [&str; 4] = ["damaged", "damaged.2", "damaged.3", "damaged.4"];

/// File with a value in JSON, for uvmd's user alone.
#[derive(Clone, Debug)]
pub(crate) struct StateFile {
    folder: PathBuf,
    path: PathBuf,
    #[cfg(test)]
    pub(crate) disk: testing::Disk,
}

impl StateFile {
    /// File in a folder that is created when needed.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            path: folder.join(name),
            #[cfg(test)]
            disk: testing::Disk::default(),
        }
    }

    /// Last written value; `None` if there is none. Fails if other users can change the folder.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<Option<T>> {
        self.text()?.map(|text| self.parse(&text)).transpose()
    }

    /// Text of the last written value.
    pub(crate) fn text(&self) -> anyhow::Result<Option<Vec<u8>>> {
        let read = match private::check_folder(&self.folder) {
            Ok(()) => private::read(&self.path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        read.map_err(|error| anyhow!("cannot read {}: {}", self.path.display(), sys::reason(&error)))
    }

    /// Parses a value.
    pub(crate) fn parse<T: DeserializeOwned>(&self, text: &[u8]) -> anyhow::Result<T> {
        let parsed = serde_json::from_slice(text);
        parsed.with_context(|| format!("{} is damaged, or of another version of uvmd", self.path.display()))
    }

    /// Replaces the value. It is on the disk on return. After an error it may be stored all the
    /// same; the message says so.
    pub(crate) fn write(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(value)?;
        #[cfg(test)]
        self.disk.wait();
        let written = private::make_folder(&self.folder).and_then(|()| private::replace(&self.path, &text));
        written.map(drop).map_err(|error| self.failed(&error))
    }

    /// Creates the file without a value, if there is none. Unlike a value, an empty file fits on
    /// most full disks.
    pub(crate) fn mark(&self) -> anyhow::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let marked = private::make_folder(&self.folder).and_then(|()| private::open(&options, &self.path));
        marked.and_then(|_| private::sync_folder(&self.path)).map_err(|error| self.failed(&error))
    }

    /// Whether there is a file without a value, as of [`Self::mark`].
    pub(crate) fn is_marked(&self) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|file| file.is_file() && file.len() == 0)
    }

    /// Removes the value.
    pub(crate) fn remove(&self) -> anyhow::Result<()> {
        #[cfg(test)]
        self.disk.wait();
        match fs::remove_file(&self.path) {
            Ok(()) => private::sync_folder(&self.path).map_err(|error| self.failed(&error)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Quarantines the file for repair, and returns its new path. Earlier quarantined files stay.
    pub(crate) fn quarantine(&self) -> anyhow::Result<PathBuf> {
        let failed =
            |error: &io::Error| anyhow!("{} cannot be moved away: {}", self.path.display(), sys::reason(error));
        private::check_folder(&self.folder).map_err(|error| failed(&error))?;
        let names = ENDINGS.map(|ending| private::beside(&self.path, ending));
        let is_free =
            |name: &&PathBuf| fs::symlink_metadata(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let quarantine = names.iter().find(is_free).ok_or_else(|| {
            anyhow!("{} cannot be moved away: {} are there already", self.path.display(), ENDINGS.join(", "))
        })?;
        fs::rename(&self.path, quarantine).map_err(|error| failed(&error))?;
        Ok(quarantine.clone())
    }

    fn failed(&self, error: &io::Error) -> anyhow::Error {
        anyhow!("cannot save {}: {}", self.path.display(), sys::reason(error))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread,
        time::Duration,
    };

    /// Longer than any operation that does not wait.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Disk of the files, which a test can block.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Disk(Arc<State>);

    #[derive(Debug, Default)]
    struct State {
        is_stuck: AtomicBool,
        is_waited_for: AtomicBool,
    }

    impl Disk {
        /// Calls `meanwhile` while `write` waits for the disk, and then lets it continue.
        pub(crate) fn stuck<T: Send>(&self, write: impl FnOnce() -> T + Send, meanwhile: impl FnOnce() + Send) -> T {
            self.0.is_stuck.store(true, Ordering::SeqCst);
            self.0.is_waited_for.store(false, Ordering::SeqCst);
            thread::scope(|scope| {
                let writing = scope.spawn(write);
                while !self.0.is_waited_for.load(Ordering::SeqCst) {
                    assert!(!writing.is_finished(), "it wrote nothing");
                    thread::yield_now();
                }
                let (done, is_done) = mpsc::channel();
                scope.spawn(move || {
                    meanwhile();
                    // The receiver may have stopped waiting.
                    let _ = done.send(());
                });
                let waited = is_done.recv_timeout(TIMEOUT);
                self.0.is_stuck.store(false, Ordering::SeqCst);
                assert_eq!(waited, Ok(()), "the disk stalled, or failed");
                writing.join().unwrap()
            })
        }

        pub(super) fn wait(&self) {
            self.0.is_waited_for.store(true, Ordering::SeqCst);
            while self.0.is_stuck.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn value_round_trips_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let state_file = StateFile::new(&state, "x.json");
        assert_eq!(state_file.read::<Vec<u32>>().unwrap(), None);
        state_file.write(&[1, 2]).unwrap();
        state_file.write(&[3]).unwrap();
        assert_eq!(state_file.read::<Vec<u32>>().unwrap(), Some(vec![3]));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("x.json"))), (0o700, 0o600));
        state_file.remove().unwrap();
        state_file.remove().unwrap();
        assert_eq!(state_file.read::<Vec<u32>>().unwrap(), None);
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
    }

    #[test]
    fn unwritable_or_unreadable_file_is_reported_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "{").unwrap();
        let error = StateFile::new(&file, "x.json").write(&1).unwrap_err().to_string();
        assert!(error.contains("cannot save") && error.contains("x.json"), "{error}");
        let error = StateFile::new(folder.path(), "file").read::<u32>().unwrap_err().to_string();
        assert!(error.ends_with("file is damaged, or of another version of uvmd"), "{error}");
    }

    #[test]
    fn damaged_file_is_quarantined_beside_earlier_ones() {
        let folder = tempfile::tempdir().unwrap();
        let state_file = StateFile::new(folder.path(), "x.json");
        let path = folder.path().join("x.json");
        let quarantines: Vec<PathBuf> = (0..4)
            .map(|text| {
                fs::write(&path, format!("{{{text}")).unwrap();
                state_file.quarantine().unwrap()
            })
            .collect();
        for (at, quarantine) in quarantines.iter().enumerate() {
            assert_eq!(fs::read_to_string(quarantine).unwrap(), format!("{{{at}"), "{}", quarantine.display());
        }
        assert_eq!(state_file.read::<u32>().unwrap(), None);
        fs::write(&path, "{").unwrap();
        assert!(state_file.quarantine().unwrap_err().to_string().contains("damaged.4 are there already"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "{");
    }

    #[test]
    fn folder_that_others_can_change_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let state_file = StateFile::new(folder.path(), "x.json");
        state_file.write(&1).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o770)).unwrap();
        for error in [
            state_file.write(&2).unwrap_err(),
            state_file.read::<u32>().unwrap_err(),
            state_file.quarantine().unwrap_err(),
        ] {
            assert!(error.to_string().contains("other users may change files in the folder"), "{error}");
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(state_file.read::<u32>().unwrap(), Some(1));
    }
}
