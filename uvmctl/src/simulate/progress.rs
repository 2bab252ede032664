//! Progress of a run on one line of standard error, which is rewritten. Silent without a terminal.

use std::{
    cell::Cell,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use sim::Event;

/// Minimum interval of updates.
const INTERVAL: Duration = Duration::from_millis(100);

/// Progress of one policy. Drop clears the line.
pub(crate) struct Progress<'a> {
    policy: &'a str,
    kernels: usize,
    ran: Cell<usize>,
    shown: Cell<Option<Instant>>,
    is_watched: bool,
}

impl<'a> Progress<'a> {
    /// Creates the progress of a run of `kernels` kernels.
    pub(crate) fn new(policy: &'a str, kernels: usize) -> Self {
        let is_watched = io::stderr().is_terminal();
        Self { policy, kernels, ran: Cell::new(0), shown: Cell::new(None), is_watched }
    }

    /// Shows that the policy plans.
    pub(crate) fn planning(&self) {
        self.show("planning");
    }

    /// Counts the kernels that ran.
    pub(crate) fn record(&self, event: Event) {
        if !matches!(event, Event::Ran { .. }) {
            return;
        }
        self.ran.set(self.ran.get() + 1);
        if self.shown.get().is_none_or(|shown| shown.elapsed() >= INTERVAL) {
            self.show(&format!("kernel {} of {}", self.ran.get(), self.kernels));
        }
    }

    fn show(&self, what: &str) {
        if self.is_watched {
            self.shown.set(Some(Instant::now()));
            // Carriage return, then clear to the end of the line (ECMA-48). Write errors are
            // ignored: the output is informational.
            _ = write!(io::stderr(), "\r\x1b[Kuvmctl: {}: {what}", self.policy);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.is_watched {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
