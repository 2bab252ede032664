//! The terminal as one screen to draw on, and its restoration, whatever ends the program.

use std::{
    io::{self, BufWriter, Stdout, Write},
    mem::ManuallyDrop,
    panic,
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, MoveTo, Show},
    execute,
    style::{Attribute, SetAttribute},
    terminal::{Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui_core::{terminal::Frame, terminal::Terminal};
use ratatui_crossterm::CrosstermBackend;
use signal_hook::{consts::SIGTSTP, low_level::emulate_default_handler};

/// Larger than any frame, so that each reaches the terminal in one write.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Whether the terminal is ours. The panic hook must know, and may run on any thread.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub(crate) struct Screen {
    /// Not dropped: it would write to a terminal that may be gone, and panic.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    /// Takes the terminal until this is dropped.
    pub(crate) fn take() -> io::Result<Self> {
        restore_on_panic();
        take()?;
        let output = BufWriter::with_capacity(FRAME_BYTES_MAX, io::stdout());
        match Terminal::new(CrosstermBackend::new(output)) {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                give_back();
                Err(error)
            }
        }
    }

    /// Sends the cells that differ from what was drawn before.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(drop)
    }

    /// Gives the terminal back to the shell, stops the process as Ctrl-Z does, and takes the terminal again once it goes on.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        emulate_default_handler(SIGTSTP)?;
        self.retake()
    }

    /// Takes the terminal again from whoever had it; nothing that was drawn is there any more.
    pub(crate) fn retake(&mut self) -> io::Result<()> {
        // Raw mode is set only if it is not believed to be set.
        disable_raw_mode()?;
        take()?;
        // Its own clear() would ask the terminal for the position of the cursor, and wait for an answer that may not come.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    TAKEN.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All)).inspect_err(|_| give_back())
}

/// There is nobody to tell of an error: if the terminal is gone, it needs no restoration.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        // Cleared first, for terminals without an alternate screen.
        let reset = SetAttribute(Attribute::Reset);
        let _ = execute!(io::stdout(), reset, MoveTo(0, 0), Clear(ClearType::All), LeaveAlternateScreen, Show);
        let _ = io::stdout().flush();
    }
}

fn restore_on_panic() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back();
            report(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    #[test]
    #[ignore = "needs a terminal, which the test below gives it"]
    #[should_panic(expected = "on purpose")]
    fn panic_on_a_terminal() {
        let _screen = Screen::take().unwrap();
        panic!("on purpose");
    }

    #[test]
    fn a_panic_is_reported_on_a_terminal_that_is_restored() {
        let tests = env::current_exe().unwrap();
        let this = "--exact --ignored --nocapture top::screen::tests::panic_on_a_terminal";
        let command = format!("{} {this}; stty -a", tests.display());
        let output =
            Command::new("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let (before, after) = text.split_once("on purpose").unwrap();
        assert!(before.contains("\u{1b}[?1049h") && before.contains("\u{1b}[?1049l"), "{text:?}");
        assert!(after.contains("1 passed") && after.contains(" icanon") && !after.contains("-echo "), "{text:?}");
    }
}
