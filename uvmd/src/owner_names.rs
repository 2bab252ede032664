//! Names of pods, from the file of `uvmd-fleet`. The file is a claim of a program without privileges:
//! uvmd checks bounds, accepts it as a whole or not at all, and only displays names. No permission
//! depends on them.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::owner_names::{BYTES_MAX, OwnerNames as File};
use model::{NamesSource, OwnerNames, text};
use tokio::{sync::watch, task, time};
use web::{Warning, Warnings};

use crate::claimed_file::{self, ClaimedFile};

/// Interval of checks of the file.
const INTERVAL: Duration = Duration::from_secs(1);
/// Age of the last contact with the cluster from which the names are reported as outdated.
const AGE_MAX: Duration = Duration::from_mins(5);

/// Reader of the file of names.
pub(crate) struct Reader {
    file: ClaimedFile,
    names: watch::Sender<Arc<OwnerNames>>,
    warnings: Warnings,
}

impl Reader {
    pub(crate) const fn new(path: PathBuf, names: watch::Sender<Arc<OwnerNames>>, warnings: Warnings) -> Self {
        Self { file: ClaimedFile::new(path, BYTES_MAX), names, warnings }
    }

    /// Follows the file for ever.
    pub(crate) async fn follow(mut self) {
        let mut checks = time::interval(INTERVAL);
        checks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            // One thread at most waits for a disk that hangs.
            let Ok(reader) = task::spawn_blocking(move || {
                self.check(SystemTime::now());
                self
            })
            .await
            else {
                return;
            };
            self = reader;
        }
    }

    /// Reads the file if it has changed.
    fn check(&mut self, now: SystemTime) {
        let read = self.file.read().and_then(|content| content.as_deref().map(parse).transpose());
        match read {
            Ok(None) => {}
            Ok(Some(names)) => {
                self.warnings.clear(Warning::OwnerNamesUnavailable);
                self.names.send_replace(Arc::new(names));
            }
            Err(reason) => {
                self.warnings.raise(Warning::OwnerNamesUnavailable, self.sentence(&reason));
                self.names.send_if_modified(|names| {
                    let source = NamesSource { is_current: false, ..names.source.unwrap_or_default() };
                    let has_changed = names.source != Some(source);
                    if has_changed {
                        *names = Arc::new(OwnerNames { pods: names.pods.clone(), source: Some(source) });
                    }
                    has_changed
                });
                return;
            }
        }
        self.judge_age(now);
    }

    /// Warns while the last contact with the cluster is too old.
    fn judge_age(&self, now: SystemTime) {
        let Some(NamesSource { is_current: true, contacted_at }) = self.names.borrow().source else { return };
        let age = contacted_at.map(|at| now.duration_since(at).unwrap_or_default());
        match age {
            Some(age) if age < AGE_MAX => self.warnings.clear(Warning::OwnerNamesUnavailable),
            Some(age) => {
                let reason = format!("the API server was reached {} s ago; see the log of uvmd-fleet", age.as_secs());
                self.warnings.raise(Warning::OwnerNamesUnavailable, self.sentence(&reason));
            }
            None => {
                let reason = "the API server was not reached yet; see the log of uvmd-fleet";
                self.warnings.raise(Warning::OwnerNamesUnavailable, self.sentence(reason));
            }
        }
    }

    fn sentence(&self, reason: &str) -> String {
        let named = self.names.borrow().pods.len();
        format!("{}: {reason}; {named} pods have names", self.file.path().display())
    }
}

fn parse(content: &[u8]) -> Result<OwnerNames, String> {
    let file: File = serde_json::from_slice(content).map_err(|error| claimed_file::reason(&error))?;
    let contacted_at = file.contacted_at.as_deref().map(text::parse_time).transpose();
    let contacted_at = contacted_at.map_err(|_| "contacted_at: not a time".to_owned())?;
    file.check(contacted_at).map_err(|refusal| claimed_file::reason(&refusal))
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use model::OwnerKey;

    use super::*;

    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

    fn file(name: &str, contacted_at: &str) -> String {
        format!(
            r#"{{"format": 1, "generation": 7, "written_at": "2026-11-30T12:00:00Z", "contacted_at": {contacted_at},
                "pods": [{{"uid": "{UID}", "namespace": "ml", "name": "{name}", "of_a_later_version": 1}}]}}"#
        )
    }

    fn at(time: &str) -> SystemTime {
        text::parse_time(time).unwrap()
    }

    struct Subject {
        reader: Reader,
        names: watch::Receiver<Arc<OwnerNames>>,
        warnings: Warnings,
    }

    impl Subject {
        fn new(path: &Path) -> Self {
            let (sender, names) = watch::channel(Arc::default());
            let warnings = Warnings::default();
            Self { reader: Reader::new(path.to_owned(), sender, warnings.clone()), names, warnings }
        }

        fn check(&mut self, time: &str) {
            self.reader.check(at(time));
        }

        fn label(&self) -> String {
            self.names.borrow().label(&OwnerKey::Pod(UID.to_owned()))
        }

        fn is_current(&self) -> bool {
            self.names.borrow().source.unwrap().is_current
        }

        fn warning(&self) -> String {
            self.warnings.list().into_iter().map(|warning| warning.message).collect()
        }
    }

    const NOON: &str = "2026-11-30T12:00:00Z";

    #[test]
    fn names_follow_the_file_and_outlive_a_bad_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners.json");
        let mut subject = Subject::new(&path);
        subject.check(NOON);
        assert_eq!((subject.label(), subject.is_current()), ("pod 3f2a9c1e".to_owned(), false));
        assert!(subject.warning().ends_with("there is no such file; uvmd-fleet writes it; 0 pods have names"));

        let noon = format!("\"{NOON}\"");
        fs::write(&path, file("llm-0", &noon)).unwrap();
        subject.check(NOON);
        assert_eq!(
            (subject.label(), subject.is_current(), subject.warning()),
            ("ml/llm-0".to_owned(), true, String::new())
        );

        for bad in [file("LLM", &noon), file("llm", "\"soon\""), "{".to_owned(), " ".repeat(9 << 20)] {
            fs::write(&path, bad).unwrap();
            for _ in 0..2 {
                subject.check(NOON);
                assert_eq!((subject.label(), subject.is_current()), ("ml/llm-0".to_owned(), false));
                assert!(subject.warning().ends_with("; 1 pods have names"), "{}", subject.warning());
            }
        }
        fs::write(&path, file("llm-1", &noon)).unwrap();
        subject.check(NOON);
        assert_eq!(
            (subject.label(), subject.is_current(), subject.warning()),
            ("ml/llm-1".to_owned(), true, String::new())
        );
    }

    #[test]
    fn names_of_a_cluster_that_is_out_of_reach_are_reported_with_their_age() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("owners.json");
        let mut subject = Subject::new(&path);
        fs::write(&path, file("llm-0", &format!("\"{NOON}\""))).unwrap();
        subject.check("2026-11-30T12:04:59Z");
        assert_eq!(subject.warning(), "");
        subject.check("2026-11-30T12:05:01Z");
        assert!(subject.warning().contains("the API server was reached 301 s ago"), "{}", subject.warning());
        assert_eq!(subject.label(), "ml/llm-0");
        // A clock of the node that was set back is no reason for a warning.
        subject.check("2026-11-30T11:00:00Z");
        assert_eq!(subject.warning(), "");
        fs::write(&path, file("llm-0", "null")).unwrap();
        subject.check(NOON);
        assert!(subject.warning().contains("not reached yet"), "{}", subject.warning());
    }

    #[test]
    fn pipe_in_place_of_the_file_is_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let mut subject = Subject::new(&path);
        subject.check(NOON);
        assert!(subject.warning().contains("it is not a regular file"), "{}", subject.warning());
    }
}
