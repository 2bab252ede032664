//! Terminal in full-screen mode, and its restoration at any exit.

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

/// Size of the output buffer, larger than any frame, so that a frame takes one write.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// Whether the terminal is in full-screen mode. Static, as the panic hook may run on any thread.
static ENTERED: AtomicBool = AtomicBool::new(false);

pub(crate) struct Screen {
    /// Never dropped: its drop writes to the terminal, and panics if that is closed.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Screen {
    /// Enters full-screen mode until the drop.
    pub(crate) fn enter() -> io::Result<Self> {
        restore_on_panic();
        enter()?;
        let output = BufWriter::with_capacity(FRAME_BYTES_MAX, io::stdout());
        match Terminal::new(CrosstermBackend::new(output)) {
            Ok(terminal) => Ok(Self { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// Draws a frame, by the cells that differ from the previous one.
    pub(crate) fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(view).map(drop)
    }

    /// Restores the terminal, stops the process as Ctrl-Z does, and enters full-screen mode again
    /// on continuation.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        restore();
        emulate_default_handler(SIGTSTP)?;
        self.reenter()
    }

    /// Enters full-screen mode again after use by another program. The next frame is drawn in full.
    pub(crate) fn reenter(&mut self) -> io::Result<()> {
        // crossterm caches raw mode and would not set it again without this.
        disable_raw_mode()?;
        enter()?;
        // `Terminal::clear` would query the cursor's position, and block without a response.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    ENTERED.store(true, Ordering::SeqCst);
    execute!(io::stdout(), EnterAlternateScreen, Hide, Clear(ClearType::All)).inspect_err(|_| restore())
}

/// Restores the terminal. Errors are ignored: a closed terminal needs no restoration.
fn restore() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        let _ = disable_raw_mode();
        // The clear is for terminals without an alternate screen.
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
            restore();
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
        let _screen = Screen::enter().unwrap();
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
