//! Numbers of decisions, which differ between runs, so that a line of the audit log or of the journal
//! names one decision. A run reserves a block of them on the disk before it uses any; a clean stop
//! returns the rest.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use model::DecisionId;
use tokio::runtime::Handle;

use super::process_quota::PROCESSES_MAX;
use crate::state_file::StateFile;

/// Numbers that are reserved at a time.
const BLOCK: u64 = 10_000;
/// Remainder below which the next block is reserved: an interval makes at most one decision for each
/// process at each of 16 GPUs before that is on the disk.
const REMAINDER_MIN: u64 = 16 * PROCESSES_MAX as u64;

/// Reserved numbers of decisions.
#[derive(Debug)]
pub(super) struct Numbers(Option<Reserved>);

#[derive(Clone, Debug)]
struct Reserved {
    /// Holds the last reserved number.
    file: StateFile,
    state: Arc<Mutex<State>>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    last_reserved: u64,
    /// Whether a write is in progress.
    is_saving: bool,
    /// Whether the last write failed, which is logged once.
    is_failing: bool,
}

impl Numbers {
    /// Reserves numbers after those of former runs. Returns the last number of those, too.
    ///
    /// Where none can be reserved, numbers begin at the current second since 1970: higher than all
    /// that are reserved, and those of former runs of this kind.
    pub(super) fn reserve(state_dir: &Path) -> (Self, DecisionId) {
        let file = StateFile::new(state_dir, "decision-numbers.json");
        let reserved = file.read::<u64>().and_then(|last| {
            let last = last.unwrap_or(0);
            let last_reserved = last.saturating_add(BLOCK);
            file.write(&last_reserved).map(|()| (last, last_reserved))
        });
        match reserved {
            Ok((last, last_reserved)) => {
                let state = State { last_reserved, is_saving: false, is_failing: false };
                (Self(Some(Reserved { file, state: Arc::new(Mutex::new(state)) })), DecisionId(last))
            }
            Err(error) => {
                tracing::warn!("ids of decisions cannot be reserved, and start at the Unix time in seconds: {error:#}");
                let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                (Self(None), DecisionId(since_epoch.as_secs()))
            }
        }
    }

    /// Reserves further numbers, if few remain after the last one, without waiting for the disk.
    pub(super) fn extend(&self, last: DecisionId, runtime: &Handle) {
        let Some(reserved) = &self.0 else { return };
        let mut state = reserved.state();
        if state.is_saving || state.last_reserved.saturating_sub(last.0) >= REMAINDER_MIN {
            return;
        }
        state.is_saving = true;
        drop(state);
        let (reserved, last_reserved) = (reserved.clone(), last.0.saturating_add(BLOCK));
        runtime.spawn_blocking(move || reserved.save(last_reserved));
    }

    /// Returns the numbers after the last one, as uvmd stops. A write in progress keeps them reserved.
    pub(super) fn give_back(self, last: DecisionId) {
        if let Some(reserved) = self.0.filter(|reserved| !reserved.state().is_saving) {
            reserved.save(last.0);
        }
    }
}

impl Reserved {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, last_reserved: u64) {
        let written = self.file.write(&last_reserved);
        let mut state = self.state();
        let was_failing = std::mem::replace(&mut state.is_failing, written.is_err());
        state.is_saving = false;
        match written {
            Ok(()) => state.last_reserved = last_reserved,
            Err(error) if !was_failing => {
                tracing::warn!("ids of decisions are not reserved, and the next run may reuse some: {error:#}");
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_runs_differ_and_continue_after_a_clean_stop() {
        let folder = tempfile::tempdir().unwrap();
        let (_killed, last) = Numbers::reserve(folder.path());
        assert_eq!(last, DecisionId(0));
        let (numbers, last) = Numbers::reserve(folder.path());
        assert_eq!(last, DecisionId(BLOCK));
        numbers.give_back(DecisionId(BLOCK + 3));
        assert_eq!(Numbers::reserve(folder.path()).1, DecisionId(BLOCK + 3));
    }

    #[tokio::test]
    async fn further_numbers_are_reserved_before_they_are_used_up() {
        let folder = tempfile::tempdir().unwrap();
        let (numbers, _) = Numbers::reserve(folder.path());
        let last_reserved = || numbers.0.as_ref().unwrap().state().last_reserved;
        numbers.extend(DecisionId(BLOCK - REMAINDER_MIN), &Handle::current());
        assert!(!numbers.0.as_ref().unwrap().state().is_saving);
        let last = BLOCK - REMAINDER_MIN + 1;
        numbers.extend(DecisionId(last), &Handle::current());
        while last_reserved() == BLOCK {
            tokio::task::yield_now().await;
        }
        assert_eq!(last_reserved(), last + BLOCK);
        let file = StateFile::new(folder.path(), "decision-numbers.json");
        assert_eq!(file.read::<u64>().unwrap(), Some(last + BLOCK));
    }

    #[test]
    fn numbers_are_reserved_again_after_a_failed_write() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let (numbers, _) = Numbers::reserve(&state);
        let reserved = numbers.0.as_ref().unwrap();
        let extend = || {
            numbers.extend(DecisionId(BLOCK), runtime.handle());
            while reserved.state().is_saving {
                std::thread::yield_now();
            }
            reserved.state().last_reserved
        };
        std::fs::remove_dir_all(&state).unwrap();
        std::fs::write(&state, "no folder").unwrap();
        assert_eq!(extend(), BLOCK);
        std::fs::remove_file(&state).unwrap();
        assert_eq!(extend(), 2 * BLOCK);
    }

    #[test]
    fn numbers_that_cannot_be_reserved_are_higher_than_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (numbers, last) = Numbers::reserve(&file);
        assert!(last.0 > 1_700_000_000, "{last}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        numbers.extend(DecisionId(u64::MAX - 1), runtime.handle());
        numbers.give_back(last);
        // A damaged file is left as it is.
        std::fs::write(folder.path().join("decision-numbers.json"), "{").unwrap();
        assert!(Numbers::reserve(folder.path()).1.0 > 1_700_000_000);
    }
}
