//! Programs of processes, by which overrides can select them.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use model::ProcessId;

/// Time after a failed read until the next one; doubled each time, up to the maximum.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Time after which a program is read again: the process may have executed another one.
const REREAD: Duration = Duration::from_secs(30);

/// Programs as the loop that acts has read them. Clones share them: the API explains the override
/// that the loop applies.
#[derive(Clone, Debug, Default)]
pub(crate) struct Executables(Arc<Mutex<BTreeMap<ProcessId, Reading>>>);

#[derive(Clone, Debug)]
struct Reading {
    /// Path; `None` of a process without one, such as one whose first thread has exited.
    program: Result<Option<Arc<Path>>, Unknown>,
    next_at: Duration,
    retry: Duration,
}

impl Executables {
    /// Forgets all other processes. The living ones are in the order of their ids.
    pub(super) fn retain(&self, living: &[ProcessId]) {
        self.readings().retain(|process, _| living.binary_search(process).is_ok());
    }

    /// Program of a process, which is read if it is unknown, or was read long ago.
    ///
    /// # Errors
    /// [`Unknown`], until a later read succeeds.
    pub(crate) fn get(
        &self,
        process: ProcessId,
        now: Duration,
        read: impl FnOnce() -> io::Result<PathBuf>,
    ) -> Result<Option<Arc<Path>>, Unknown> {
        let known = self.readings().get(&process).cloned();
        let mut reading = known.unwrap_or(Reading { program: Err(Unknown), next_at: now, retry: RETRY });
        if reading.next_at <= now {
            // Without the lock: a read may take long.
            match read() {
                Ok(path) => reading = Reading { program: Ok(Some(path.into())), next_at: now + REREAD, retry: RETRY },
                // A program whose first thread has exited has none any more.
                Err(error) if error.kind() == ErrorKind::NotFound && !matches!(reading.program, Ok(Some(_))) => {
                    reading = Reading { program: Ok(None), next_at: now + REREAD, retry: RETRY };
                }
                Err(error) => {
                    tracing::debug!(pid = process.pid, "the program of a process is unknown: {error}");
                    reading.next_at = now + reading.retry;
                    reading.retry = (reading.retry * 2).min(RETRY_MAX);
                }
            }
            self.readings().insert(process, reading.clone());
        }
        reading.program
    }

    /// Program of a process as the loop knows it; `None` if it has not read it, as while it is idle.
    pub(crate) fn known(&self, process: ProcessId) -> Option<Result<Option<Arc<Path>>, Unknown>> {
        self.readings().get(&process).map(|reading| reading.program.clone())
    }

    fn readings(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The program of a process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProcessId = ProcessId { pid: 7, start_ticks: 1 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn path(path: &str) -> Arc<Path> {
        Path::new(path).into()
    }

    #[test]
    fn program_is_read_every_30_seconds() {
        let executables = Executables::default();
        assert_eq!(executables.get(ID, seconds(0), || Ok("/bin/a".into())), Ok(Some(path("/bin/a"))));
        assert_eq!(executables.get(ID, seconds(29), || panic!("it is known")), Ok(Some(path("/bin/a"))));
        assert_eq!(
            executables.get(ID, seconds(30), || Ok("/bin/b".into())),
            Ok(Some(path("/bin/b"))),
            "it has executed another"
        );
        executables.retain(&[ID]);
        assert!(executables.get(ID, seconds(31), || panic!("it is known")).is_ok());
        executables.retain(&[]);
        assert_eq!(executables.get(ID, seconds(31), || Err(ErrorKind::NotFound.into())), Ok(None));
        assert_eq!(
            executables.get(ID, seconds(61), || Ok("/bin/a".into())),
            Ok(Some(path("/bin/a"))),
            "it has one now"
        );
    }

    #[test]
    fn others_know_what_the_loop_has_read_and_nothing_else() {
        let executables = Executables::default();
        let reader = executables.clone();
        assert_eq!(reader.known(ID), None);
        let _ = executables.get(ID, seconds(0), || Err(ErrorKind::WouldBlock.into()));
        assert_eq!(reader.known(ID), Some(Err(Unknown)));
        let _ = executables.get(ID, seconds(1), || Ok("/bin/a".into()));
        assert_eq!(reader.known(ID), Some(Ok(Some(path("/bin/a")))));
    }

    #[test]
    fn program_stays_known_while_it_cannot_be_read_again() {
        let executables = Executables::default();
        let _ = executables.get(ID, seconds(0), || Ok("/bin/a".into()));
        assert_eq!(executables.get(ID, seconds(30), || Err(ErrorKind::WouldBlock.into())), Ok(Some(path("/bin/a"))));
        assert_eq!(executables.get(ID, seconds(31), || Ok("/bin/b".into())), Ok(Some(path("/bin/b"))));
    }

    #[test]
    fn program_that_could_not_be_read_is_unknown_and_read_again_ever_less_often() {
        let (executables, mut reads) = (Executables::default(), Vec::new());
        for second in 0..16 {
            let read = || {
                reads.push(second);
                // No thread for the read, or no answer.
                Err(ErrorKind::WouldBlock.into())
            };
            assert_eq!(executables.get(ID, seconds(second), read), Err(Unknown));
        }
        assert_eq!(reads, [0, 1, 3, 7, 15]);
        assert!(executables.get(ID, seconds(31), || Ok("/bin/a".into())).is_ok());
    }
}
