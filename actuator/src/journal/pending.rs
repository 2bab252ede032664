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
pub(super) struct Completion {
    pub(super) result: OnceLock<Result<(), Arc<JournalError>>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Completion {
    pub(super) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { result: OnceLock::new(), wake: Box::new(wake) }
    }

    pub(super) fn complete(&self, result: Result<(), Arc<JournalError>>) {
        // No other waiter.
        let _ = self.result.set(result);
        (self.wake)();
    }
}

/// Content of the next write.
pub(super) struct Batch {
    pub(super) write: Write,
    /// Waiters for its completion.
    pub(super) completions: Vec<Arc<Completion>>,
}

pub(super) enum Write {
    /// Appended lines.
    Append { text: Vec<u8>, lines: usize },
    /// Replacement of all lines.
    Rewrite(InForce, Unrecognised),
}

/// Lines, and the waiters for their write.
#[derive(Default)]
pub(super) struct Pending {
    text: Vec<u8>,
    lines: usize,
    completions: Vec<Arc<Completion>>,
    /// Whether there is anything to write.
    pub(super) is_due: bool,
    /// Whether lines were dropped or not written, which requires a rewrite.
    needs_rewrite: bool,
    /// Number of lines dropped for lack of room.
    pub(super) dropped_lines: u64,
}

impl Pending {
    /// Adds a line; if it could not be encoded, all is rewritten.
    pub(super) fn push(&mut self, line: io::Result<Vec<u8>>) {
        self.is_due = true;
        if self.needs_rewrite {
            return;
        }
        match line {
            Ok(text) if self.lines < LINES_MAX => {
                self.text.extend(text);
                self.lines += 1;
            }
            _ => {
                self.dropped_lines += self.lines as u64 + 1;
                self.require_rewrite();
            }
        }
    }

    pub(super) fn add_completion(&mut self, completion: Arc<Completion>) {
        self.is_due = true;
        self.completions.push(completion);
    }

    /// Requests a rewrite now.
    pub(super) fn rewrite(&mut self) {
        self.is_due = true;
        self.require_rewrite();
    }

    /// Marks lines as useless, or as not written.
    pub(super) fn require_rewrite(&mut self) {
        self.needs_rewrite = true;
        self.text = Vec::new();
        self.lines = 0;
    }

    /// Takes the next write: the lines, or all of them if a rewrite is requested or necessary.
    pub(super) fn take(&mut self, rewrites: bool, rewrite: impl FnOnce() -> Write) -> Batch {
        self.is_due = false;
        let (text, lines) = (mem::take(&mut self.text), mem::take(&mut self.lines));
        let needs_rewrite = mem::take(&mut self.needs_rewrite);
        let write = if rewrites || needs_rewrite { rewrite() } else { Write::Append { text, lines } };
        Batch { write, completions: mem::take(&mut self.completions) }
    }
}
