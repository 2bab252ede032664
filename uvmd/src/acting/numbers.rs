//! Numbers of decisions, which differ between runs, so that a line of the audit log or of the journal
//! names one decision. A run reserves a block of them on the disk before it uses any; a clean stop
//! returns the rest.

use std::{path::Path, time::SystemTime};

use model::DecisionId;
use tokio::runtime::Handle;

use crate::state_file::StateFile;

/// Numbers that are reserved at a time.
const BLOCK: u64 = 2000;
/// Remainder below which the next block is reserved: decisions of some intervals are made before it is
/// on the disk.
const REMAINDER_MIN: u64 = BLOCK / 2;

/// Reserved numbers of decisions.
#[derive(Debug)]
pub(super) struct Numbers {
    /// Holds the last reserved number. `None` if it cannot be saved.
    file: Option<StateFile>,
    last_reserved: u64,
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
            file.write(&last.saturating_add(BLOCK)).map(|()| last)
        });
        match reserved {
            Ok(last) => (Self { file: Some(file), last_reserved: last.saturating_add(BLOCK) }, DecisionId(last)),
            Err(error) => {
                tracing::warn!("ids of decisions cannot be reserved, and start at the Unix time in seconds: {error:#}");
                let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                (Self { file: None, last_reserved: u64::MAX }, DecisionId(since_epoch.as_secs()))
            }
        }
    }

    /// Reserves further numbers, if few remain after the last one, without waiting for the disk.
    pub(super) fn extend(&mut self, last: DecisionId, runtime: &Handle) {
        let Some(file) = self.file.clone().filter(|_| self.last_reserved.saturating_sub(last.0) < REMAINDER_MIN) else {
            return;
        };
        self.last_reserved = last.0.saturating_add(BLOCK);
        let last_reserved = self.last_reserved;
        runtime.spawn_blocking(move || save(&file, last_reserved));
    }

    /// Returns the numbers after the last one, as uvmd stops.
    pub(super) fn give_back(self, last: DecisionId) {
        if let Some(file) = self.file {
            save(&file, last.0);
        }
    }
}

fn save(file: &StateFile, last: u64) {
    if let Err(error) = file.write(&last) {
        tracing::warn!(
            "reserved ids of decisions were not saved, and the next run may reuse ids of this one: {error:#}"
        );
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
        let file = StateFile::new(folder.path(), "decision-numbers.json");
        let saved = || file.read::<u64>().unwrap().unwrap();
        let (mut numbers, _) = Numbers::reserve(folder.path());
        numbers.extend(DecisionId(BLOCK - REMAINDER_MIN), &Handle::current());
        assert_eq!(numbers.last_reserved, BLOCK);
        let last = BLOCK - REMAINDER_MIN + 1;
        numbers.extend(DecisionId(last), &Handle::current());
        while saved() == BLOCK {
            tokio::task::yield_now().await;
        }
        assert_eq!(saved(), last + BLOCK);
    }

    #[test]
    fn numbers_that_cannot_be_reserved_are_higher_than_all_others() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (mut numbers, last) = Numbers::reserve(&file);
        assert!(last.0 > 1_700_000_000, "{last}");
        let runtime = tokio::runtime::Runtime::new().unwrap();
        numbers.extend(DecisionId(u64::MAX - 1), runtime.handle());
        numbers.give_back(last);
        // A damaged file is left as it is.
        std::fs::write(folder.path().join("decision-numbers.json"), "{").unwrap();
        assert!(Numbers::reserve(folder.path()).1.0 > 1_700_000_000);
    }
}
