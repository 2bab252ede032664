//! Opening of a journal, with the file of a former run. It is read, and rewritten by the journal's
//! thread, so that a former run's advice is withdrawn even on a stuck disk.

use std::{
    fs::{self, OpenOptions},
    io,
    path::Path,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use sys::{Roots, kernel, private};

use super::{
    Handle, Journal, JournalError, Shared, Timeouts,
    read::{self, Contents},
    state::State,
    storage::{JournalFile, Storage},
    writer::{LivenessCache, Writer},
};

impl Journal {
    /// Opens the journal in this file, which is created if missing. Its lines about live processes
    /// are retained: [`Journal::leftovers`]. Unrecognised lines stay in the file:
    /// [`Journal::health`], which also reports whether the file can be written; the opening does
    /// not wait for that.
    ///
    /// # Errors
    /// If it cannot be read, or another uvmd has it.
    pub fn open(path: &Path, roots: Roots) -> Result<Self, JournalError> {
        Self::open_on(JournalFile::new(path), path, roots, Timeouts::DEFAULT)
    }

    pub(super) fn open_on(
        storage: impl Storage + 'static,
        path: &Path,
        roots: Roots,
        timeouts: Timeouts,
    ) -> Result<Self, JournalError> {
        let failed = |operation| {
            let path = path.to_owned();
            move |source| JournalError::Failed { path, operation, source }
        };
        let boot = kernel::boot_id(&roots).map_err(failed("kept without the boot's id"))?;
        // In a separate file, as the journal itself is replaced.
        let lock = private::lock(&private::beside(path, "lock")).map_err(failed("locked"))?;
        let lock = lock.ok_or_else(|| JournalError::InUse(path.to_owned()))?;
        let (Contents { mut in_force, mut unrecognised, boot: written_in }, is_whole) =
            read_file(path, &boot).map_err(failed("read"))?;
        let mut liveness = LivenessCache::new(&roots);
        in_force.retain(|process| liveness.is_alive(process));
        unrecognised.retain(&boot, written_in.is_none_or(|found| found == boot), |process| liveness.is_alive(process));
        let quarantined = private::beside(path, "unrecognised");
        if !is_whole || unrecognised.is_overfull {
            quarantine_file(path, &quarantined).map_err(failed("moved away"))?;
        }
        let quarantined = fs::symlink_metadata(&quarantined).is_ok().then_some(quarantined);
        let ended: Vec<_> = liveness.ended().collect();
        let mut state = State::new(boot.clone(), in_force, unrecognised);
        state.pending.rewrite();
        let shared = Arc::new(Shared {
            path: path.to_owned(),
            roots: roots.clone(),
            timeouts,
            state: Mutex::new(state),
            changed: Condvar::new(),
            quarantined,
        });
        let writer = Writer { shared: Arc::clone(&shared), storage, roots, boot, lines: 0, needed: 0, lock };
        thread::Builder::new()
            .name("advice-journal".to_owned())
            .spawn(move || writer.run())
            .map_err(failed("written by a thread of its own"))?;
        Ok(Self(Arc::new(Handle { shared, ended })))
    }
}

/// Content of the file, and whether it was read completely.
fn read_file(path: &Path, boot: &str) -> io::Result<(Contents, bool)> {
    match private::open(OpenOptions::new().read(true), path) {
        Ok(file) => {
            let is_whole = file.metadata()?.len() <= read::FILE_BYTES_MAX;
            Ok((read::read(io::BufReader::new(file), boot)?, is_whole))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((Contents::default(), true)),
        Err(error) => Err(error),
    }
}

/// Gives the file a second name, under which it stays when it is replaced. An existing file of that
/// name is not overwritten.
fn quarantine_file(path: &Path, name: &Path) -> io::Result<()> {
    fs::hard_link(path, name).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            io::Error::other(format!("{} already exists: inspect it and move it away", name.display()))
        }
        _ => error,
    })
}
