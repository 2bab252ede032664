//! How far a run is, on one line of the terminal that is written again and again. Nothing where standard error is no terminal.

use std::{
    cell::Cell,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use sim::Event;

/// More often, nobody reads it.
const EVERY: Duration = Duration::from_millis(100);

/// Of one policy. The line goes when this does.
pub(crate) struct Progress<'a> {
    policy: &'a str,
    kernels: usize,
    ran: Cell<usize>,
    shown: Cell<Option<Instant>>,
    is_watched: bool,
}

impl<'a> Progress<'a> {
    /// Nothing is done yet of so many kernels.
    pub(crate) fn new(policy: &'a str, kernels: usize) -> Self {
        let is_watched = io::stderr().is_terminal();
        Self { policy, kernels, ran: Cell::new(0), shown: Cell::new(None), is_watched }
    }

    /// Before it runs.
    pub(crate) fn planning(&self) {
        self.show("planning");
    }

    /// While it runs.
    pub(crate) fn see(&self, event: Event) {
        if !matches!(event, Event::Ran { .. }) {
            return;
        }
        self.ran.set(self.ran.get() + 1);
        if self.shown.get().is_none_or(|shown| shown.elapsed() >= EVERY) {
            self.show(&format!("kernel {} of {}", self.ran.get(), self.kernels));
        }
    }

    fn show(&self, what: &str) {
        if self.is_watched {
            self.shown.set(Some(Instant::now()));
            // Carriage return; then clear to the end of the line (ECMA-48).
            // Whoever does not see it loses nothing.
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
