//! Files of overrides and their observation: one file, and the fragments beside it. A file written
//! in place is empty, or cut between two tables, for a moment: a valid file with fewer overrides,
//! so that processes excepted by the others would be acted on. The files therefore take effect once
//! two consecutive checks found the same, all of them or none.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::bail;
use config::{
    Policy,
    overrides::{self, Files},
};
use model::Override;
use tokio::{task, time};

use super::{Known, Rules};
use crate::audit::{Change, Outcome};

/// Interval of checks of the file.
const EVERY: Duration = Duration::from_secs(1);
/// Interval at the start and on SIGHUP, and the maximum of such checks.
const EVERY_AT_START: Duration = Duration::from_millis(100);
const CHECKS_AT_START: u32 = 10;

/// Reads the overrides of a file and its fragments, once they no longer change. Waits up to a
/// second.
///
/// # Errors
/// If one of them is invalid, or they keep changing.
pub(crate) fn load_settled(file: &Path) -> anyhow::Result<Vec<Override>> {
    settled(file, || FileState::at(file), || thread::sleep(EVERY_AT_START))
}

/// Reads with these functions for a check and for a pause.
fn settled(file: &Path, mut read: impl FnMut() -> FileState, mut pause: impl FnMut()) -> anyhow::Result<Vec<Override>> {
    let mut before = read();
    for _ in 1..CHECKS_AT_START {
        pause();
        let now = read();
        if now == before {
            return now.parse().map_err(anyhow::Error::msg);
        }
        before = now;
    }
    bail!("{} changes while it is read", file.display())
}

/// State of the files at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    /// Size and modification time of each; `None` if there is no such file.
    stamps: Vec<Option<(u64, SystemTime)>>,
    files: Result<Files, String>,
}

impl FileState {
    fn at(file: &Path) -> Self {
        let stamp = |path: &PathBuf| fs::metadata(path).and_then(|file| Ok((file.len(), file.modified()?))).ok();
        let paths = overrides::paths(file).unwrap_or_default();
        let stamps = paths.iter().map(stamp).collect();
        Self { stamps, files: Files::read(file).map_err(|error| error.to_string()) }
    }

    fn parse(&self) -> Result<Vec<Override>, String> {
        self.files.as_ref().map_err(Clone::clone)?.parse().map_err(|error| error.to_string())
    }
}

impl Rules {
    /// Observes the files, and the processes of overrides, for ever.
    pub(crate) async fn follow(self) {
        let mut checks = time::interval(EVERY);
        loop {
            checks.tick().await;
            let rules = self.clone();
            let check = move || {
                rules.check_file();
                rules.check_fleet();
                rules.forget_ended();
                let _noted = rules.now();
                rules.persist_expired();
            };
            if task::spawn_blocking(check).await.is_err() {
                return;
            }
        }
    }

    /// Waits for a moment until the file no longer changes.
    pub(super) fn check_file_until_it_is_settled(&self) {
        for _ in 0..CHECKS_AT_START {
            if self.check_file() {
                return;
            }
            thread::sleep(EVERY_AT_START);
        }
        tracing::warn!("{} changes all the time: it is not in effect yet", self.known().file.display());
    }

    /// Checks the file once. Returns whether it equals the previous check, and was therefore
    /// applied.
    pub(super) fn check_file(&self) -> bool {
        let file = self.known().file.clone();
        let state = FileState::at(&file);
        let mut known = self.known();
        // Another file may be followed by now.
        if known.file != file {
            return false;
        }
        let before = known.last_state.replace(state.clone());
        let is_settled = before.as_ref() == Some(&state);
        // Most checks find the applied state.
        if is_settled && known.taken.as_ref() != Some(&state.files) {
            self.take(&mut known, state.parse());
            known.taken = Some(state.files);
        }
        is_settled
    }

    /// Switches to this file with these overrides, which [`load_settled`] read, and to this
    /// default.
    pub(crate) fn reload(&self, policy: &Policy, file_overrides: Vec<Override>) {
        let mut known = self.known();
        known.file.clone_from(&policy.overrides_file.0);
        known.set.set_fallback(super::fallback(policy));
        (known.last_state, known.taken) = (None, None);
        self.take(&mut known, Ok(file_overrides));
        self.apply(&known);
    }

    /// Puts the overrides of the file in effect. An error changes only the reported error.
    fn take(&self, known: &mut Known, read: Result<Vec<Override>, String>) {
        match read {
            Ok(file_overrides) => {
                if known.file_error.take().is_some() {
                    tracing::info!("{} is valid again", known.file.display());
                }
                if known.set.file_overrides().unwrap_or_default() != file_overrides {
                    tracing::info!("{} overrides of {} are in effect", file_overrides.len(), known.file.display());
                }
                if known.set.file_overrides() != Some(&file_overrides) {
                    let change = loaded(&known.file, known.set.file_overrides(), Some(&file_overrides));
                    self.0.audit.write(None, &change);
                    known.is_persist_pending |= known.set.replace_file(file_overrides);
                    self.apply(known);
                }
            }
            Err(error) => {
                let error = format!("{}: {error}", consequence(known.set.file_overrides()));
                if known.file_error.as_ref() != Some(&error) {
                    tracing::warn!("{error}");
                    self.0.audit.failed(None, &loaded(&known.file, known.set.file_overrides(), None), error.clone());
                }
                known.file_error = Some(error);
            }
        }
    }
}

/// Audit line of a changed file, with its overrides before and after; none after if it is invalid.
pub(super) fn loaded(file: &Path, before: Option<&[Override]>, after: Option<&[Override]>) -> Change {
    Change::OverridesFileLoad {
        file: file.display().to_string(),
        overrides: after.or(before).map_or(0, <[_]>::len),
        etag_before: before.map(etag_of_all),
        etag_after: after.or(before).map(etag_of_all),
        result: Outcome::Accepted,
    }
}

/// Entity tag of the overrides of the file, in its order.
fn etag_of_all(overrides: &[Override]) -> String {
    web::etag(&overrides.iter().map(api::rule::Override::from).collect::<Vec<_>>())
}

/// Consequence of an invalid file, with its earlier overrides.
pub(super) const fn consequence(before: Option<&[Override]>) -> &'static str {
    if before.is_some() {
        "the former overrides stay in effect"
    } else {
        "until the file's exceptions are known, policy.mode acts on no process"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(bytes: u64, ids: &[&str]) -> FileState {
        let tables: Vec<String> =
            ids.iter().map(|id| format!("[[override]]\nid = \"{id}\"\nmode = \"observe\"\n")).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overrides.toml");
        fs::write(&file, tables.concat()).unwrap();
        FileState {
            stamps: vec![Some((bytes, SystemTime::UNIX_EPOCH))],
            files: Files::read(&file).map_err(|error| error.to_string()),
        }
    }

    /// Result of these checks, and the number of pauses between them.
    fn of(states: &[FileState]) -> (anyhow::Result<Vec<Override>>, usize) {
        let (mut states, mut pauses) = (states.iter().cloned().cycle(), 0);
        let result = settled(Path::new("/overrides.toml"), || states.next().unwrap(), || pauses += 1);
        (result, pauses)
    }

    #[test]
    fn file_being_written_is_applied_once_two_checks_agree() {
        let (half, whole) = (state(1, &["a"]), state(2, &["a", "b"]));
        let (result, pauses) = of(&[half, whole.clone(), whole.clone()]);
        assert_eq!((result.unwrap(), pauses), (whole.parse().unwrap(), 2));
    }

    #[test]
    fn changing_or_invalid_file_is_not_applied() {
        let (result, pauses) = of(&[state(1, &["a"]), state(2, &["a", "b"])]);
        assert_eq!(
            (result.unwrap_err().to_string(), pauses),
            ("/overrides.toml changes while it is read".to_owned(), 9)
        );
        let broken = FileState { stamps: vec![None], files: Err("no TOML".to_owned()) };
        assert_eq!(of(&[broken]).0.unwrap_err().to_string(), "no TOML");
    }
}
