//! Thread that writes the journal: others wait for its disk only as long as they choose.
//!
//! It takes all pending lines at once, so that those that arrive during a write share the next one,
//! and its fsync.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, PoisonError},
    time::Instant,
};

use model::ProcessId;
use sys::{Roots, private::Lock};

use super::{
    JournalError, Shared,
    in_force::InForce,
    line::{self, Line},
    pending::{Batch, Write},
    state::Life,
    storage::Storage,
    unrecognised::Unrecognised,
};
use crate::process::is_alive;

/// Superfluous lines at which the file is rewritten.
pub(super) const SPARE_LINES_MAX: usize = 1024;

pub(super) struct Writer<S> {
    pub(super) shared: Arc<Shared>,
    pub(super) storage: S,
    pub(super) roots: Roots,
    pub(super) boot: String,
    pub(super) lines: usize,
    /// Lines at the last rewrite.
    pub(super) needed: usize,
    /// Lock, held as long as there may be writes.
    pub(super) lock: Lock,
}

impl<S: Storage> Writer<S> {
    /// Runs until the journal has no users, and all is written.
    pub(super) fn run(mut self) {
        while let Some(Batch { write, completions }) = self.next() {
            let is_durable = !completions.is_empty();
            let result = self.write(write, is_durable).map_err(|source| {
                Arc::new(JournalError::Failed { path: self.shared.path.clone(), operation: "written", source })
            });
            let was_failing = {
                let mut state = self.shared.state();
                let was_failing = state.last_error.is_some();
                state.written(&result);
                was_failing
            };
            self.shared.changed.notify_all();
            match &result {
                Err(error) if !was_failing => tracing::warn!("{error}: no advice is given until writes succeed"),
                Ok(()) if was_failing => tracing::info!("the journal {} is written again", self.shared.path.display()),
                _ => {}
            }
            for completion in completions {
                completion.complete(result.clone());
            }
        }
        let Self { shared, lock, .. } = self;
        drop(lock);
        shared.state().life = Life::Closed;
        shared.changed.notify_all();
    }

    /// Waits for the next write; a failed one is repeated after a pause, however often others are
    /// notified during it.
    fn next(&self) -> Option<Batch> {
        let begun = Instant::now();
        let mut state = self.shared.state();
        while !state.pending.is_due {
            if state.life == Life::Closing {
                return None;
            }
            if state.last_error.is_none() {
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let pause = self.shared.timeouts.retry.saturating_sub(begun.elapsed());
            if pause.is_zero() {
                state.pending.rewrite();
                continue;
            }
            let waited = self.shared.changed.wait_timeout(state, pause);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        // Most of it may be useless: exits of processes are detected at a rewrite only.
        let has_grown = self.lines > 2 * self.needed + SPARE_LINES_MAX;
        Some(state.take(has_grown))
    }

    fn write(&mut self, write: Write, is_durable: bool) -> io::Result<()> {
        match write {
            Write::Append { text, lines } => {
                self.storage.append(&text, is_durable)?;
                self.lines += lines;
            }
            Write::Rewrite(in_force, unrecognised) => {
                let mut liveness = LivenessCache::new(&self.roots);
                self.lines = rewrite(&mut self.storage, &self.boot, in_force, unrecognised, |process| {
                    liveness.is_alive(process)
                })?;
                self.needed = self.lines;
                let ended = liveness.ended();
                let mut state = self.shared.state();
                for process in ended {
                    state.in_force.forget(process);
                }
            }
        }
        Ok(())
    }
}

/// Live processes, each looked up once.
pub(super) struct LivenessCache<'a> {
    roots: &'a Roots,
    is_alive: BTreeMap<ProcessId, bool>,
}

impl<'a> LivenessCache<'a> {
    pub(super) const fn new(roots: &'a Roots) -> Self {
        Self { roots, is_alive: BTreeMap::new() }
    }

    /// A process that cannot be looked up counts as alive.
    pub(super) fn is_alive(&mut self, process: ProcessId) -> bool {
        let check = || is_alive(self.roots, process).unwrap_or(true);
        *self.is_alive.entry(process).or_insert_with(check)
    }

    pub(super) fn ended(&self) -> impl Iterator<Item = ProcessId> {
        self.is_alive.iter().filter(|(_, is_alive)| !**is_alive).map(|(process, _)| *process)
    }
}

/// Replaces the storage's content by the advice in force on live processes and the unrecognised
/// lines; returns the number of lines.
pub(super) fn rewrite(
    storage: &mut impl Storage,
    boot: &str,
    mut in_force: InForce,
    mut unrecognised: Unrecognised,
    mut is_alive: impl FnMut(ProcessId) -> bool,
) -> io::Result<usize> {
    in_force.retain(&mut is_alive);
    unrecognised.retain(boot, true, is_alive);
    let mut text = line::header(boot)?;
    let mut lines = 1;
    for (process, gpu, begin, end, advice) in in_force.iter() {
        text.extend(Line::new(boot, process, gpu, (begin, end), advice, false).text()?);
        lines += 1;
    }
    for line in unrecognised.lines() {
        text.extend_from_slice(line);
        text.push(b'\n');
        lines += 1;
    }
    storage.replace(&text)?;
    Ok(lines)
}
