//! Health of the journal.

use std::{collections::BTreeSet, fmt, sync::Arc};

use super::{Journal, JournalError, Shared, writer::LivenessCache};

/// Health of the journal, for operators.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHealth {
    /// Whether the last write is on the disk, and the disk accepts more. Otherwise no advice is
    /// given.
    pub is_writable: bool,
    /// Bytes of damaged or unrecognised lines.
    pub unrecognised_bytes: u64,
    /// Dropped lines of withdrawals and the like since uvmd started, because too many waited for
    /// the disk. The file is rewritten after that; a uvmd killed before repeats their withdrawals.
    pub dropped_lines: u64,
    /// Problems, as sentences.
    pub warnings: Vec<String>,
}

/// Monitor of a journal, which does not keep it open. Cheap to clone.
#[derive(Clone)]
pub struct JournalMonitor(Arc<Shared>);

impl Journal {
    /// Source of the health.
    #[must_use]
    pub fn monitor(&self) -> JournalMonitor {
        JournalMonitor(Arc::clone(&self.0.shared))
    }

    /// Current health.
    #[must_use]
    pub fn health(&self) -> JournalHealth {
        self.monitor().health()
    }
}

impl JournalMonitor {
    /// Current health.
    #[must_use]
    pub fn health(&self) -> JournalHealth {
        let Self(shared) = self;
        let named = shared.state().unrecognised.processes();
        let mut liveness = LivenessCache::new(&shared.roots);
        let living: BTreeSet<_> = named.into_iter().filter(|process| liveness.is_alive(*process)).collect();
        let mut state = shared.state();
        state.unrecognised.retain_processes(|process| living.contains(&process));
        let error = match state.stalled_for(shared.timeouts.intent) {
            Some(waited) => Some(JournalError::Stuck { path: shared.path.clone(), waited }.to_string()),
            None => state.last_error.as_ref().map(ToString::to_string),
        };
        let is_writable = error.is_none();
        let unwritable = error.map(|error| format!("{error}: no advice is given until writes succeed"));
        let found = [state.unrecognised.newer_warning(), state.unrecognised.damage_warning()];
        let found = found.into_iter().flatten().map(|what| format!("the journal {}: {what}", shared.path.display()));
        let quarantined = shared.quarantined.as_ref().map(|file| {
            format!(
                "{} is a journal with more entries than fit: advice recorded only there is not withdrawn; delete it once the processes of that time have exited",
                file.display()
            )
        });
        JournalHealth {
            is_writable,
            unrecognised_bytes: state.unrecognised.bytes() as u64,
            dropped_lines: state.pending.dropped_lines,
            warnings: unwritable.into_iter().chain(found).chain(quarantined).collect(),
        }
    }
}

impl fmt::Debug for JournalMonitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JournalMonitor").field(&self.0.path).finish()
    }
}
