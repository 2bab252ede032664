//! Programs of processes, by which overrides can select them.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use model::ProcessId;

/// Time after a failed read until the next one; doubled each time, up to the maximum.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Programs that were read. A process has one for its life: an exec of another is not noticed.
#[derive(Debug, Default)]
pub(super) struct Executables(BTreeMap<ProcessId, Reading>);

#[derive(Debug)]
enum Reading {
    /// Path; `None` of a process without one, such as one whose first thread has exited.
    Read(Option<PathBuf>),
    Failed {
        retry_at: Duration,
        retry: Duration,
    },
}

impl Executables {
    /// Forgets all other processes. The living ones are in the order of their ids.
    pub(super) fn retain(&mut self, living: &[ProcessId]) {
        self.0.retain(|process, _| living.binary_search(process).is_ok());
    }

    /// Program of a process, which is read if it is unknown.
    ///
    /// # Errors
    /// [`Unknown`], until a later read succeeds.
    pub(super) fn get(
        &mut self,
        process: ProcessId,
        now: Duration,
        read: impl FnOnce() -> io::Result<PathBuf>,
    ) -> Result<Option<&Path>, Unknown> {
        let reading = self.0.entry(process).or_insert(Reading::Failed { retry_at: now, retry: RETRY });
        if let Reading::Failed { retry_at, retry } = reading
            && *retry_at <= now
        {
            match read() {
                Ok(path) => *reading = Reading::Read(Some(path)),
                Err(error) if error.kind() == ErrorKind::NotFound => *reading = Reading::Read(None),
                Err(error) => {
                    tracing::debug!(pid = process.pid, "the program of a process is unknown: {error}");
                    (*retry_at, *retry) = (now + *retry, (*retry * 2).min(RETRY_MAX));
                }
            }
        }
        match reading {
            Reading::Read(path) => Ok(path.as_deref()),
            Reading::Failed { .. } => Err(Unknown),
        }
    }
}

/// The program of a process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unknown;

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ProcessId = ProcessId { pid: 7, start_ticks: 1 };

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn program_is_read_once() {
        let mut executables = Executables::default();
        assert_eq!(executables.get(ID, seconds(0), || Ok("/bin/a".into())), Ok(Some(Path::new("/bin/a"))));
        assert_eq!(executables.get(ID, seconds(9), || panic!("it is known")), Ok(Some(Path::new("/bin/a"))));
        executables.retain(&[ID]);
        assert!(executables.get(ID, seconds(9), || panic!("it is known")).is_ok());
        executables.retain(&[]);
        assert_eq!(executables.get(ID, seconds(9), || Err(ErrorKind::NotFound.into())), Ok(None));
    }

    #[test]
    fn program_that_could_not_be_read_is_unknown_and_read_again_ever_less_often() {
        let (mut executables, mut reads) = (Executables::default(), Vec::new());
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
