//! The files of overrides, as they are followed: one, and the fragments beside it. A file that is written in place is empty, or cut off between two tables, for
//! a moment: that is a file in order, with fewer overrides, and whoever is excepted by the others would be acted on. So the files take effect once two looks in
//! a row have found the same, all of them or none.

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
use model::{Override, api};
use tokio::{task, time};

use super::{Known, Rules};
use crate::audit::{Change, Outcome};

/// Interval of checks of the file.
const EVERY: Duration = Duration::from_secs(1);
/// The same when the service starts and on SIGHUP, and how many such looks it waits for.
const EVERY_AT_START: Duration = Duration::from_millis(100);
const LOOKS_AT_START: u32 = 10;

/// The overrides of a file and of the fragments beside it, once nobody is writing them. Waits for that for a second.
///
/// # Errors
/// If one of them is not in order, or they change all the time.
pub(crate) fn load_settled(file: &Path) -> anyhow::Result<Vec<Override>> {
    settled(file, || Look::at(file), || thread::sleep(EVERY_AT_START))
}

/// The same with these reads, and a pause between two.
fn settled(file: &Path, mut look: impl FnMut() -> Look, mut rest: impl FnMut()) -> anyhow::Result<Vec<Override>> {
    let mut before = look();
    for _ in 1..LOOKS_AT_START {
        rest();
        let now = look();
        if now == before {
            return now.parse().map_err(anyhow::Error::msg);
        }
        before = now;
    }
    bail!("{} changes while it is read", file.display())
}

/// The files at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    /// Size of each and when it was changed; `None` where there is no such file.
    stamps: Vec<Option<(u64, SystemTime)>>,
    files: Result<Files, String>,
}

impl Look {
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
    /// Follows the file, and the processes that overrides are for, for ever.
    pub(crate) async fn follow(self) {
        let mut looks = time::interval(EVERY);
        loop {
            looks.tick().await;
            let rules = self.clone();
            let look = move || {
                rules.look_at_file();
                rules.forget_ended();
                let _noted = rules.now();
                rules.keep_expired();
            };
            if task::spawn_blocking(look).await.is_err() {
                return;
            }
        }
    }

    /// Waits for a moment until nobody is writing the file.
    pub(super) fn look_at_file_until_it_is_settled(&self) {
        for _ in 0..LOOKS_AT_START {
            if self.look_at_file() {
                return;
            }
            thread::sleep(EVERY_AT_START);
        }
        tracing::warn!("{} changes all the time: it is not in effect yet", self.known().file.display());
    }

    /// Looks at the file once, and tells whether it is as the look before found it, and so taken.
    pub(super) fn look_at_file(&self) -> bool {
        let file = self.known().file.clone();
        let look = Look::at(&file);
        let mut known = self.known();
        // Another one may be followed by now.
        if known.file != file {
            return false;
        }
        let before = known.looked.replace(look.clone());
        let is_settled = before.as_ref() == Some(&look);
        // Most looks find what was taken already.
        if is_settled && known.taken.as_ref() != Some(&look.files) {
            self.take(&mut known, look.parse());
            known.taken = Some(look.files);
        }
        is_settled
    }

    /// This is the file from now on, and what it says, which [`load_settled`] found; and this holds where none fits.
    pub(crate) fn reload(&self, policy: &Policy, of_file: Vec<Override>) {
        let mut known = self.known();
        known.file.clone_from(&policy.overrides_file.0);
        known.fallback = super::fallback(policy);
        (known.looked, known.taken) = (None, None);
        self.take(&mut known, Ok(of_file));
        self.apply(&known);
    }

    /// Puts the overrides of the file in effect. An error changes only the reported error.
    fn take(&self, known: &mut Known, read: Result<Vec<Override>, String>) {
        match read {
            Ok(of_file) => {
                if known.file_error.take().is_some() {
                    tracing::info!("{} is valid again", known.file.display());
                }
                if known.of_file.as_deref().unwrap_or_default() != of_file {
                    tracing::info!("{} overrides of {} are in effect", of_file.len(), known.file.display());
                }
                if known.of_file.as_ref() != Some(&of_file) {
                    self.0.audit.write(None, &loaded(known, Some(&of_file)));
                    known.of_file = Some(of_file);
                    known.forget_expired_of_former_files();
                    self.apply(known);
                }
            }
            Err(error) => {
                let error = format!("{}: {error}", what_holds(known));
                if known.file_error.as_ref() != Some(&error) {
                    tracing::warn!("{error}");
                    self.0.audit.failed(None, &loaded(known, None), error.clone());
                }
                known.file_error = Some(error);
            }
        }
    }
}

/// Audit line of a changed file; none if it is invalid.
fn loaded(known: &Known, of_file: Option<&[Override]>) -> Change {
    Change::OverridesFileLoad {
        file: known.file.display().to_string(),
        overrides: of_file.or(known.of_file.as_deref()).map_or(0, <[_]>::len),
        etag_before: known.of_file.as_deref().map(etag_of_all),
        etag_after: of_file.or(known.of_file.as_deref()).map(etag_of_all),
        result: Outcome::Accepted,
    }
}

/// Entity tag of the overrides of the file, in its order.
fn etag_of_all(overrides: &[Override]) -> String {
    web::etag(&overrides.iter().map(api::rule::Override::from).collect::<Vec<_>>())
}

const fn what_holds(known: &Known) -> &'static str {
    if known.of_file.is_some() {
        "the former overrides stay in effect"
    } else {
        "until the file's exceptions are known, policy.mode acts on no process"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(bytes: u64, ids: &[&str]) -> Look {
        let tables: Vec<String> =
            ids.iter().map(|id| format!("[[override]]\nid = \"{id}\"\nmode = \"observe\"\n")).collect();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("overrides.toml");
        fs::write(&file, tables.concat()).unwrap();
        Look {
            stamps: vec![Some((bytes, SystemTime::UNIX_EPOCH))],
            files: Files::read(&file).map_err(|error| error.to_string()),
        }
    }

    /// What comes of these looks, and how many rests were between them.
    fn of(looks: &[Look]) -> (anyhow::Result<Vec<Override>>, usize) {
        let (mut looks, mut rests) = (looks.iter().cloned().cycle(), 0);
        let said = settled(Path::new("/overrides.toml"), || looks.next().unwrap(), || rests += 1);
        (said, rests)
    }

    #[test]
    fn a_file_that_is_being_written_is_taken_once_two_looks_agree() {
        let (half, whole) = (look(1, &["a"]), look(2, &["a", "b"]));
        let (said, rests) = of(&[half, whole.clone(), whole.clone()]);
        assert_eq!((said.unwrap(), rests), (whole.parse().unwrap(), 2));
    }

    #[test]
    fn nothing_is_taken_of_a_file_that_changes_all_the_time_or_is_not_in_order() {
        let (said, rests) = of(&[look(1, &["a"]), look(2, &["a", "b"])]);
        assert_eq!((said.unwrap_err().to_string(), rests), ("/overrides.toml changes while it is read".to_owned(), 9));
        let broken = Look { stamps: vec![None], files: Err("no TOML".to_owned()) };
        assert_eq!(of(&[broken]).0.unwrap_err().to_string(), "no TOML");
    }
}
