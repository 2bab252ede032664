//! The kill switch: nothing acts while a file is there, or since somebody asked for that over the API.

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

use model::{api::rule::DisabledBy, text};
use tokio::{
    task,
    time::{self, MissedTickBehavior},
};

use crate::state_file::StateFile;

/// Whether anything may be done. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Switch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// While it is there, nothing acts.
    file: PathBuf,
    state_file: StateFile,
    /// As `asked` says; asked between any two calls of the driver.
    is_off: AtomicBool,
    /// Held for moments only: who acts and who asks waits for it, and nobody waits for a disk meanwhile.
    asked: Mutex<Asked>,
    /// Held while what is kept changes.
    keeping: Mutex<()>,
    /// The disk has refused to keep that it is off, and it was said.
    is_keeping_refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Asked {
    off: Option<DisabledBy>,
    /// Who switched it last, either way.
    last: Option<String>,
    /// How often it was switched off.
    times_off: u64,
    /// How often it had been when that was kept last.
    times_kept: u64,
}

impl Switch {
    /// As it was left by a former run.
    pub(crate) fn open(file: &Path, state_dir: &Path) -> Self {
        let state_file = StateFile::new(state_dir, "policy-off.json");
        // Better off than on by mistake.
        let off = state_file.read().unwrap_or_else(|error| {
            tracing::warn!("acting is switched off until it is switched on again: {error:#}");
            Some(DisabledBy {
                source: "api".to_owned(),
                actor: format!("{error:#}"),
                disabled_at: text::time(SystemTime::now()),
            })
        });
        let is_off = AtomicBool::new(off.is_some());
        let asked = Mutex::new(Asked { off, ..Asked::default() });
        let (keeping, is_keeping_refused) = (Mutex::default(), AtomicBool::default());
        Self(Arc::new(Shared { file: file.to_owned(), state_file, is_off, asked, keeping, is_keeping_refused }))
    }

    /// Whether anything may be done now.
    pub(crate) fn is_on(&self) -> bool {
        !self.0.is_off.load(Ordering::Relaxed) && self.by_file().is_none()
    }

    /// Who has switched it off; nobody, where it is on.
    pub(crate) fn disabled_by(&self) -> Vec<DisabledBy> {
        let asked = self.asked().off.clone();
        asked.into_iter().chain(self.by_file()).collect()
    }

    /// Who made it as it is, in words.
    pub(crate) fn by(&self) -> String {
        let off = self.disabled_by().into_iter().next();
        let mut asked = self.asked();
        if let Some(DisabledBy { actor: by, .. }) = off {
            // Who asks again once it is on is told who did that.
            asked.last = None;
            return by;
        }
        asked.last.clone().unwrap_or_else(|| format!("the removal of {}", self.0.file.display()))
    }

    /// Switches it off at once, and waits for no disk.
    pub(crate) fn off(&self, by: &str) {
        let off =
            DisabledBy { source: "api".to_owned(), actor: by.to_owned(), disabled_at: text::time(SystemTime::now()) };
        let mut asked = self.asked();
        self.0.is_off.store(true, Ordering::Relaxed);
        asked.last = Some(by.to_owned());
        asked.off.get_or_insert(off);
        asked.times_off += 1;
    }

    /// Has what was switched off by [`Self::off`] be off in the runs to come as well; a disk that refuses that is asked again by [`Self::follow`]. May wait
    /// for the disk.
    pub(crate) fn keep_off(&self) {
        let _keeping = self.keeping();
        let (off, times_off) = {
            let asked = self.asked();
            // Whoever switched it on meanwhile is the last.
            let Some(off) = asked.off.clone() else { return };
            (off, asked.times_off)
        };
        let written = self.0.state_file.write(&off);
        if written.is_ok() {
            self.asked().times_kept = times_off;
        }
        let was_refused = self.0.is_keeping_refused.swap(written.is_err(), Ordering::Relaxed);
        match written {
            Err(error) if !was_refused => {
                tracing::warn!("acting is switched off, but not beyond a restart until this is saved: {error:#}");
            }
            Ok(()) if was_refused => tracing::info!("acting is switched off beyond restarts too: that is saved"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Whether it was switched off by [`Self::off`], and the next run would not have it so yet.
    pub(crate) fn is_persist_pending(&self) -> bool {
        let asked = self.asked();
        asked.off.is_some() && asked.times_kept < asked.times_off
    }

    /// Has the disk asked again, so often, for as long as it refuses to keep that acting is switched off. For ever.
    pub(crate) async fn follow(self, every: Duration) {
        let mut tries = time::interval(every);
        tries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tries.tick().await;
            let switch = self.clone();
            if self.is_persist_pending() && task::spawn_blocking(move || switch.keep_off()).await.is_err() {
                return;
            }
        }
    }

    /// How often it was switched off.
    pub(crate) fn times_off(&self) -> u64 {
        self.asked().times_off
    }

    /// Switches it on again, as far as it was switched off by [`Self::off`], and no more often than that. May wait for the disk.
    pub(crate) fn on(&self, by: &str, times_off: u64) -> anyhow::Result<()> {
        let _keeping = self.keeping();
        if self.times_off() != times_off {
            return Ok(());
        }
        self.0.state_file.remove()?;
        self.0.is_keeping_refused.store(false, Ordering::Relaxed);
        let mut asked = self.asked();
        // Whoever switched it off meanwhile is the last, and keeps that next.
        if asked.times_off == times_off {
            *asked = Asked { off: None, last: Some(by.to_owned()), ..*asked };
            self.0.is_off.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keeping(&self) -> MutexGuard<'_, ()> {
        self.0.keeping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link that leads nowhere counts, and so does what cannot be looked at.
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
    fn a_file_switches_it_off_for_as_long_as_it_is_there() {
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
    fn what_is_switched_off_stays_off_over_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Switch::open(&folder.path().join("off"), folder.path());
        let switch = open();
        switch.off("uid 7");
        switch.keep_off();
        switch.off("uid 8");
        switch.keep_off();
        assert!(!switch.is_on() && !switch.clone().is_on());
        assert_eq!(switch.disabled_by()[0].actor, "uid 7");
        let again = open();
        assert!(!again.is_on() && again.disabled_by()[0].actor == "uid 7");
        again.on("uid 9", again.times_off()).unwrap();
        assert_eq!((again.is_on(), again.by().as_str()), (true, "uid 9"));
        assert!(open().is_on());
    }

    #[test]
    fn whoever_is_last_decides_and_what_is_told_is_what_holds() {
        let folder = tempfile::tempdir().unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        for _ in 0..200 {
            std::thread::scope(|scope| {
                scope.spawn(|| switch.on("one", switch.times_off()).unwrap());
                scope.spawn(|| {
                    switch.off("another");
                    switch.keep_off();
                });
            });
            assert_eq!(switch.is_on(), switch.disabled_by().is_empty());
            let again = Switch::open(&folder.path().join("off"), folder.path());
            assert_eq!(again.is_on(), switch.is_on(), "and the next run has it so");
        }
    }

    #[test]
    fn while_a_disk_is_stuck_it_is_switched_off_all_the_same_and_that_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        let disk = switch.0.state_file.disk.clone();
        switch.off("one");
        disk.stuck(
            || switch.keep_off(),
            || {
                assert_eq!((switch.is_on(), switch.disabled_by().len(), switch.by().as_str()), (false, 1, "one"));
                assert!(switch.is_persist_pending(), "the disk has not taken it");
                switch.off("another");
            },
        );
        let before = switch.times_off();
        switch.off("later");
        switch.on("earlier", before).unwrap();
        assert!(!switch.is_on(), "what was asked for before it was switched off");
        disk.stuck(|| switch.on("one", switch.times_off()).unwrap(), || switch.off("another"));
        assert!(!switch.is_on(), "the last one switched it off");
        assert!(switch.is_persist_pending(), "the last one is not kept");
        switch.keep_off();
        assert!(!switch.is_persist_pending());
        let again = Switch::open(&folder.path().join("off"), folder.path());
        assert!(!again.is_on() && !again.is_persist_pending());
    }

    #[test]
    fn what_is_not_known_to_be_on_is_off() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy-off.json"), "{").unwrap();
        let switch = Switch::open(&folder.path().join("off"), folder.path());
        assert!(!switch.is_on());
        switch.on("me", switch.times_off()).unwrap();
        assert!(switch.is_on());
    }

    #[tokio::test]
    async fn a_disk_that_refuses_is_asked_until_it_takes_it() {
        let folder = tempfile::tempdir().unwrap();
        let allow = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let open = || Switch::open(&folder.path().join("off"), folder.path());
        let is_kept = || folder.path().join("policy-off.json").exists();
        // Nothing is kept where others could change it.
        allow(0o770);
        let switch = open();
        assert!(!switch.is_on(), "what cannot be read may be that it is off");
        allow(0o700);
        switch.on("me", switch.times_off()).unwrap();
        tokio::spawn(switch.clone().follow(Duration::from_millis(1)));
        allow(0o770);
        switch.off("me");
        switch.keep_off();
        time::sleep(Duration::from_millis(20)).await;
        assert!(!switch.is_on() && !is_kept());
        allow(0o700);
        while !is_kept() {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(open().disabled_by()[0].actor, "me");
        switch.on("me", switch.times_off()).unwrap();
        // And no longer than it is off.
        while is_kept() {
            time::sleep(Duration::from_millis(1)).await;
        }
        assert!(open().is_on());
    }

    #[test]
    fn it_is_off_even_where_that_cannot_be_kept() {
        let folder = tempfile::tempdir().unwrap();
        let no_folder = folder.path().join("file");
        fs::write(&no_folder, "").unwrap();
        let switch = Switch::open(&folder.path().join("off"), &no_folder);
        switch.off("me");
        switch.keep_off();
        assert!(!switch.is_on());
    }
}
