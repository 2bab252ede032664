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
