//! Kill switch: nothing acts while a file exists, or since a request over the API.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use api::rule::DisabledBy;
use model::text;
use tokio::{
    task,
    time::{self, MissedTickBehavior},
};

use crate::state_file::StateFile;

/// Requester of a former run, for whose name the disk had no room.
const UNNAMED: &str = "a request whose name a full disk did not save";

/// Kill switch. Cheap to clone; all clones share one state.
#[derive(Clone, Debug)]
pub(crate) struct Switch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Nothing acts while it exists.
    file: PathBuf,
    state_file: StateFile,
    /// Copy of `requests`, checked between any two calls of the driver.
    is_off: AtomicBool,
    /// Held briefly: the acting loop and requests wait for it. No holder waits for a disk.
    requests: Mutex<Requests>,
    /// Held during a change of the stored state.
    persisting: Mutex<()>,
    /// Whether the disk failed to store that acting is off, which is logged once.
    is_persist_failing: AtomicBool,
}

#[derive(Debug, Default)]
struct Requests {
    off: Option<DisabledBy>,
    /// Requester of the last change, either way.
    last: Option<String>,
    /// Number of times that acting was switched off.
    times_off: u64,
    /// Value of `times_off` in the stored state.
    times_persisted: u64,
}

impl Switch {
    /// State of a former run.
    pub(crate) fn open(file: &Path, state_dir: &Path) -> Self {
        let state_file = StateFile::new(state_dir, "policy-off.json");
        let unknown =
            |actor: String| DisabledBy { source: "api".to_owned(), actor, disabled_at: text::time(SystemTime::now()) };
        let read = if state_file.is_marked() { Ok(Some(unknown(UNNAMED.to_owned()))) } else { state_file.read() };
        // An unknown state counts as off.
        let off = read.unwrap_or_else(|error| {
            tracing::warn!("acting is switched off until it is switched on again: {error:#}");
            Some(unknown(format!("{error:#}")))
        });
        let is_off = AtomicBool::new(off.is_some());
        let requests = Mutex::new(Requests { off, ..Requests::default() });
        let (persisting, is_persist_failing) = (Mutex::default(), AtomicBool::default());
        Self(Arc::new(Shared { file: file.to_owned(), state_file, is_off, requests, persisting, is_persist_failing }))
    }

    /// Whether acting is permitted now.
    pub(crate) fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::Relaxed) && self.by_file().is_none()
    }

    /// Reasons why acting is off; empty if it is on.
    pub(crate) fn disabled_by(&self) -> Vec<DisabledBy> {
        let requests = self.requests().off.clone();
        requests.into_iter().chain(self.by_file()).collect()
    }

    /// Cause of the current state, in words.
    pub(crate) fn by(&self) -> String {
        let off = self.disabled_by().into_iter().next();
        let mut requests = self.requests();
        if let Some(DisabledBy { actor: by, .. }) = off {
            // The next request after the switch is on gets the name of that requester.
            requests.last = None;
            return by;
        }
        requests.last.clone().unwrap_or_else(|| format!("the removal of {}", self.0.file.display()))
    }

    /// Switches acting off at once, without waiting for a disk.
    pub(crate) fn off(&self, by: &str) {
        let off =
            DisabledBy { source: "api".to_owned(), actor: by.to_owned(), disabled_at: text::time(SystemTime::now()) };
        let mut requests = self.requests();
        self.0.is_off.store(true, Ordering::Relaxed);
        requests.last = Some(by.to_owned());
        requests.off.get_or_insert(off);
        requests.times_off += 1;
    }

    /// Stores that [`Self::off`] applies to later runs as well; after a failure, [`Self::follow`]
    /// retries. May wait for the disk.
    pub(crate) fn persist_off(&self) {
        let _keeping = self.persisting();
        let (off, times_off) = {
            let requests = self.requests();
            // A later request to switch on takes precedence.
            let Some(off) = requests.off.clone() else { return };
            (off, requests.times_off)
        };
        let written = self.0.state_file.write(&off);
        if written.is_ok() {
            self.requests().times_persisted = times_off;
        }
        let was_refused = self.0.is_persist_failing.swap(written.is_err(), Ordering::Relaxed);
        match written {
            // The next run then finds acting off, but does not know by whom.
            Err(error) if self.0.state_file.mark().is_ok() => {
                if !was_refused {
                    tracing::warn!(
                        "acting is switched off, also after a restart; who requested it is not saved yet: {error:#}"
                    );
                }
            }
            Err(error) if !was_refused => {
                tracing::warn!("acting is switched off, but not beyond a restart until this is saved: {error:#}");
            }
            Ok(()) if was_refused => tracing::info!("acting is switched off beyond restarts too: that is saved"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Whether [`Self::off`] is in effect, but not stored for the next run yet.
    pub(crate) fn is_persist_pending(&self) -> bool {
        let requests = self.requests();
        requests.off.is_some() && requests.times_persisted < requests.times_off
    }

    /// Retries at this interval to store that acting is off, for ever.
    pub(crate) async fn follow(self, every: Duration) {
        let mut tries = time::interval(every);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tries.tick().await;
            let switch = self.clone();
            if self.is_persist_pending() && task::spawn_blocking(move || switch.persist_off()).await.is_err() {
                return;
            }
        }
    }

    /// Number of times that acting was switched off.
    pub(crate) fn times_off(&self) -> u64 {
        self.requests().times_off
    }

    /// Reverts [`Self::off`], unless acting was switched off more often than `times_off`. May wait
    /// for the disk.
    pub(crate) fn on(&self, by: &str, times_off: u64) -> anyhow::Result<()> {
        let _keeping = self.persisting();
        if self.times_off() != times_off {
            return Ok(());
        }
        self.0.state_file.remove()?;
        self.0.is_persist_failing.store(false, Ordering::Relaxed);
        let mut requests = self.requests();
        // A later request to switch off takes precedence, and is stored next.
        if requests.times_off == times_off {
            *requests = Requests { off: None, last: Some(by.to_owned()), ..*requests };
            self.0.is_off.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.0.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn persisting(&self) -> MutexGuard<'_, ()> {
        self.0.persisting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reason of the file. A dangling link counts as existing, and so does an unreadable one.
    fn by_file(&self) -> Option<DisabledBy> {
        let file = &self.0.file;
        let off = |who: String, since: SystemTime| DisabledBy {
            source: "file".to_owned(),
            actor: who,
            disabled_at: text::time(since),
        };
        match fs::symlink_metadata(file) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(error) => Some(off(
                format!("{}, of which nothing is known: {}", file.display(), sys::reason(&error)),
                SystemTime::now(),
            )),
            Ok(there) => {
                let since = there.modified().unwrap_or_else(|_| SystemTime::now());
                Some(off(format!("uid {}, by the file {}", there.uid(), file.display()), since))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn switch_is_off_while_the_file_exists() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("off");
        let switch = Switch::open(&file, folder.path());
        assert!(switch.is_on() && switch.disabled_by().is_empty());
        fs::write(&file, "").unwrap();
        assert!(!switch.is_on());
        assert_eq!(switch.disabled_by()[0].source, "file");
        assert!(switch.by().ends_with(&format!("by the file {}", file.display())), "{}", switch.by());
        switch.on("me", switch.times_off()).unwrap();
        assert!(!switch.is_on(), "the file is still there");
        assert!(switch.by().starts_with("uid "), "{}", switch.by());
        fs::remove_file(&file).unwrap();
        assert!(switch.is_on());
        assert_eq!(switch.by(), format!("the removal of {}", file.display()));
    }

    #[test]
    fn switch_stays_off_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Switch::open(&folder.path().join("off"), folder.path());
        let switch = open();
        switch.off("uid 7");
        switch.persist_off();
        switch.off("uid 8");
        switch.persist_off();
        assert!(!switch.is_on() && !switch.clone().is_on());
        assert_eq!(switch.disabled_by()[0].actor, "uid 7");
        let again = open();
        assert!(!again.is_on() && again.disabled_by()[0].actor == "uid 7");
        again.on("uid 9", again.times_off()).unwrap();
        assert_eq!((again.is_on(), again.by().as_str()), (true, "uid 9"));
        assert!(open().is_on());
    }

    #[test]
    fn last_request_wins_and_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| switch.on("one", switch.times_off()).unwrap());
                scope.spawn(|| {
                    switch.off("another");
                    switch.persist_off();
                });
            });
            assert_eq!(switch.is_on(), switch.disabled_by().is_empty());
            let again = Switch::open(&folder.path().join("off"), folder.path());
            assert_eq!(again.is_on(), switch.is_on(), "and the next run has it so");
        }
    }

    #[test]
    fn stuck_disk_does_not_delay_the_switch() {
        let folder = tempfile::tempdir().unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        let disk = switch.0.state_file.disk.clone();
        switch.off("one");
        disk.stuck(
            || switch.persist_off(),
            || {
                assert_eq!((switch.is_on(), switch.disabled_by().len(), switch.by().as_str()), (false, 1, "one"));
                assert!(switch.is_persist_pending(), "the disk has not taken it");
                switch.off("another");
            },
        );
        let before = switch.times_off();
        switch.off("later");
        switch.on("earlier", before).unwrap();
        assert!(!switch.is_on(), "what was requests for before it was switched off");
        disk.stuck(|| switch.on("one", switch.times_off()).unwrap(), || switch.off("another"));
        assert!(!switch.is_on(), "the last one switched it off");
        assert!(switch.is_persist_pending(), "the last one is not kept");
        switch.persist_off();
        assert!(!switch.is_persist_pending());
        let again = Switch::open(&folder.path().join("off"), folder.path());
        assert!(!again.is_on() && !again.is_persist_pending());
    }

    #[test]
    fn unknown_state_is_off() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy-off.json"), "{").unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        assert!(!switch.is_on());
        switch.on("me", switch.times_off()).unwrap();
        assert!(switch.is_on());
    }

    #[tokio::test]
    async fn failed_store_is_retried_until_it_succeeds() {
        let folder = tempfile::tempdir().unwrap();
        let allow = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let open = || Switch::open(&folder.path().join("off"), folder.path());
        let is_persistent = || folder.path().join("policy-off.json").exists();
        // Nothing is stored where others could change it.
        allow(0o770);
        let switch = open();
        assert!(!switch.is_on(), "what cannot be read may be that it is off");
        allow(0o700);
        switch.on("me", switch.times_off()).unwrap();
        tokio::spawn(switch.clone().follow(Duration::from_millis(1)));
        allow(0o770);
        switch.off("me");
        switch.persist_off();
        time::sleep(Duration::from_millis(20)).await;
        assert!(!switch.is_on() && !is_persistent());
        allow(0o700);
        while !is_persistent() {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(open().disabled_by()[0].actor, "me");
        switch.on("me", switch.times_off()).unwrap();
        // The state is stored only while acting is off.
        while is_persistent() {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert!(open().is_on());
    }

    #[test]
    fn switch_is_off_even_if_it_cannot_be_stored() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("file");
        fs::write(&no_folder, "").unwrap();
        let switch = Switch::open(&folder.path().join("off"), &no_folder);
        switch.off("me");
        switch.persist_off();
        assert!(!switch.is_on());
    }
}
