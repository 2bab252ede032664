//! Pending lines of the journal.

use std::{
    io, mem,
    sync::{Arc, OnceLock},
};

use super::{JournalError, in_force::InForce, unrecognised::Unrecognised};

/// Maximum of waiting lines. With more, as on a stuck disk, the file is rewritten later, from
/// memory.
const LINES_MAX: usize = 4096;

/// Result of an intent's write, and its waiter.
pub(super) struct Slot {
    pub(super) result: OnceLock<Result<(), Arc<JournalError>>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Slot {
    pub(super) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { result: OnceLock::new(), wake: Box::new(wake) }
    }

    pub(super) fn settle(&self, result: Result<(), Arc<JournalError>>) {
        // No other waiter.
        let _ = self.result.set(result);
        (self.wake)();
    }
}

/// Content of the next write.
pub(super) struct Batch {
    pub(super) what: Lines,
    /// Waiters for its completion.
    pub(super) slots: Vec<Arc<Slot>>,
}

pub(super) enum Lines {
    /// Appended lines.
    Added { text: Vec<u8>, lines: usize },
    /// Replacement of all lines.
    Anew(InForce, Unrecognised),
}

/// Lines, and the waiters for their write.
#[derive(Default)]
pub(super) struct Waiting {
    text: Vec<u8>,
    lines: usize,
    slots: Vec<Arc<Slot>>,
    /// Whether there is anything to write.
    pub(super) is_due: bool,
    /// Whether lines were dropped or not written, which requires a rewrite.
    is_behind: bool,
    /// Number of lines dropped for lack of room.
    pub(super) dropped_lines: u64,
}

impl Waiting {
    /// Adds a line; if it could not be encoded, all is rewritten.
    pub(super) fn push(&mut self, line: io::Result<Vec<u8>>) {
        self.is_due = true;
        if self.is_behind {
            return;
        }
        match line {
            Ok(text) if self.lines < LINES_MAX => {
                self.text.extend(text);
                self.lines += 1;
            }
            _ => {
                self.dropped_lines += self.lines as u64 + 1;
                self.fall_behind();
            }
        }
    }

    pub(super) fn wait(&mut self, slot: Arc<Slot>) {
        self.is_due = true;
        self.slots.push(slot);
    }

    /// Requests a rewrite now.
    pub(super) fn rewrite(&mut self) {
        self.is_due = true;
        self.fall_behind();
    }

    /// Marks lines as useless, or as not written.
    pub(super) fn fall_behind(&mut self) {
        self.is_behind = true;
        self.text = Vec::new();
        self.lines = 0;
    }

    /// Takes the next write: the lines, or all of them if a rewrite is requested or necessary.
    pub(super) fn take(&mut self, is_anew: bool, anew: impl FnOnce() -> Lines) -> Batch {
        self.is_due = false;
        let (text, lines) = (mem::take(&mut self.text), mem::take(&mut self.lines));
        let is_behind = mem::take(&mut self.is_behind);
        let what = if is_anew || is_behind { anew() } else { Lines::Added { text, lines } };
        Batch { what, slots: mem::take(&mut self.slots) }
    }
}
