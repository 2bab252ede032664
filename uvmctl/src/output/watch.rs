//! Repetition of the output for `--watch`, until interrupted.

use std::{
    io::{self, IsTerminal, Write},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, SystemTime},
};

use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::{
    client::Error,
    terminal::{self, Colour, Style},
};

/// Grace period for a pending response after a signal.
const GRACE_PERIOD: Duration = Duration::from_millis(500);

/// Output of one reading, with notes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
}

impl Frame {
    /// Prints the text to standard output, and the notes to standard error.
    pub(crate) fn print(&self) -> io::Result<()> {
        io::stdout().lock().write_all(self.text.as_bytes())?;
        self.notes.iter().for_each(|note| terminal::note(note));
        Ok(())
    }

    /// Escape sequences that replace the previous frame, limited to `height` lines, each cut at the
    /// terminal's edge.
    fn in_place(&self, title: &str, height: usize) -> String {
        let notes = self.notes.iter().map(|note| crate::text::printable_lines(note));
        let all: Vec<String> =
            [title.to_owned()].into_iter().chain(self.text.lines().map(str::to_owned)).chain(notes).collect();
        let room = height.saturating_sub(1).max(1);
        let mut lines = all.clone();
        if all.len() > room {
            lines.truncate(room.saturating_sub(1));
            lines.push(format!("... {} more lines", all.len() - lines.len()));
        }
        let lines: String = lines.iter().flat_map(|line| [line.as_str(), "\x1b[K\n"]).collect();
        format!("\x1b[?7l\x1b[H{lines}\x1b[J\x1b[?7h")
    }
}

/// Prints a frame every `interval`: in place on a terminal, appended elsewhere. Ends on SIGINT and
/// SIGTERM. After the first frame, temporary failures of uvmd are shown and retried.
pub(crate) fn run(interval: Duration, mut next_frame: impl FnMut() -> anyhow::Result<Frame>) -> anyhow::Result<()> {
    let signalled = signals(GRACE_PERIOD)?;
    let is_terminal = io::stdout().is_terminal();
    let mut is_first = true;
    loop {
        let frame = match next_frame() {
            Err(error) if !is_first && is_temporary(&error) => {
                Frame { text: String::new(), notes: vec![format!("{error:#}")] }
            }
            frame => frame?,
        };
        if is_terminal {
            let now = humantime::format_rfc3339_seconds(SystemTime::now());
            let title = format!("Every {} at {now}. Ctrl-C ends it.", humantime::format_duration(interval));
            let clear = if is_first { "\x1b[2J" } else { "" };
            let title = Colour::detect().paint(Style::Faded, &title);
            let text = frame.in_place(&title, terminal::height().unwrap_or(usize::MAX));
            io::stdout().lock().write_all((clear.to_owned() + &text).as_bytes())?;
        } else {
            if !is_first {
                writeln!(io::stdout().lock())?;
            }
            frame.print()?;
        }
        io::stdout().flush()?;
        is_first = false;
        match signalled.recv_timeout(interval) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Whether an error may be temporary. A uvmd that restarts does not know a process before its next event.
fn is_temporary(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Unreachable { .. } | Error::Failed { .. } | Error::NotFound { .. }))
}

/// Has the process exit with code 0 on SIGINT and SIGTERM.
pub(crate) fn end_on_signals() -> io::Result<()> {
    signals(Duration::ZERO).map(drop)
}

fn signals(grace_period: Duration) -> io::Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if signals.forever().next().is_some() {
            let _ = sender.send(());
            thread::sleep(grace_period);
            std::process::exit(0);
        }
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_replaces_the_previous_one_within_the_terminal() {
        let frame = Frame { text: "a\nb\n".to_owned(), notes: vec!["note".to_owned()] };
        assert_eq!(
            frame.in_place("title", 9),
            "\x1b[?7l\x1b[Htitle\x1b[K\na\x1b[K\nb\x1b[K\nnote\x1b[K\n\x1b[J\x1b[?7h"
        );
        assert_eq!(
            frame.in_place("title", 4),
            "\x1b[?7l\x1b[Htitle\x1b[K\na\x1b[K\n... 2 more lines\x1b[K\n\x1b[J\x1b[?7h"
        );
    }
}
