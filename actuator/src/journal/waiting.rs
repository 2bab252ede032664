//! Pending lines of the journal.

use std::{
    io, mem,
    sync::{Arc, OnceLock},
};

use super::{JournalError, in_force::InForce, unrecognised::Unrecognised};

/// Lines that wait. Where more come, as on a disk that is stuck, the file is written anew later on, from what is in memory.
const LINES_MAX: usize = 4096;

/// Whether an intent is on the disk, and who wants to know.
pub(super) struct Slot {
    pub(super) result: OnceLock<Result<(), Arc<JournalError>>>,
    wake: Box<dyn Fn() + Send + Sync>,
}

impl Slot {
    pub(super) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { result: OnceLock::new(), wake: Box::new(wake) }
    }

    pub(super) fn settle(&self, result: Result<(), Arc<JournalError>>) {
        // Nobody else does.
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
    /// Behind what is there.
    Added { text: Vec<u8>, lines: usize },
    /// In the place of all.
    Anew(InForce, Unrecognised),
}

/// Lines, and those who wait until they are on the disk.
#[derive(Default)]
pub(super) struct Waiting {
    text: Vec<u8>,
    lines: usize,
    slots: Vec<Arc<Slot>>,
    /// Whether anything is to be written.
    pub(super) is_due: bool,
    /// Lines were dropped, or not written: only writing it anew helps.
    is_behind: bool,
    /// Lines for which there was no room.
    pub(super) dropped_lines: u64,
}

impl Waiting {
    /// A line; where it could not be made, all is written anew.
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

    /// All is written anew, now.
    pub(super) fn rewrite(&mut self) {
        self.is_due = true;
        self.fall_behind();
    }

    /// The lines are of no use, or did not get where they should.
    pub(super) fn fall_behind(&mut self) {
        self.is_behind = true;
        self.text = Vec::new();
        self.lines = 0;
    }

    /// All of it: the lines, or those that are made anew, where that is wanted or nothing else helps.
    pub(super) fn take(&mut self, is_anew: bool, anew: impl FnOnce() -> Lines) -> Batch {
        self.is_due = false;
        let (text, lines) = (mem::take(&mut self.text), mem::take(&mut self.lines));
        let is_behind = mem::take(&mut self.is_behind);
        let what = if is_anew || is_behind { anew() } else { Lines::Added { text, lines } };
        Batch { what, slots: mem::take(&mut self.slots) }
    }
}
