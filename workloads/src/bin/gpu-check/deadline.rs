//! Nothing waits for longer than this program may run, nor once it is asked to end.

use std::{
    io::{self, Read},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// How often it is looked whether a program has ended.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a killed program may take to go. One that waits inside a driver that hangs never goes, and is left behind.
const DEATH_TIME: Duration = Duration::from_secs(3);

static ASKED_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on a signal to end makes every deadline be over, so that what was started is ended first, and told.
pub(crate) fn heed_signals() -> io::Result<()> {
    [SIGHUP, SIGINT, SIGTERM]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&ASKED_TO_END)).map(drop))
}

/// Whether a signal came.
pub(crate) fn is_asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::SeqCst)
}

/// When all must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(crate) fn left(self) -> Duration {
        if is_asked_to_end() { Duration::ZERO } else { self.0.saturating_duration_since(Instant::now()) }
    }

    /// An earlier one: for a step that may take so long.
    pub(crate) fn step(self, at_most: Duration) -> Self {
        Self(self.0.min(Instant::now() + at_most))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }
}

/// What a program printed, and how it ended; no status if it did not end in time and was killed.
pub(crate) struct Ended {
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Run a program to its end, or kill it at the deadline.
pub(crate) fn run(command: &mut Command, deadline: Deadline) -> io::Result<Ended> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = Collected::start(child.stdout.take());
    let stderr = Collected::start(child.stderr.take());
    let status = wait_or_kill(&mut child, deadline)?;
    Ok(Ended { status, stdout: stdout.take(), stderr: stderr.take() })
}

/// Wait for a program's end; none if it did not end in time and was killed.
pub(crate) fn wait_or_kill(child: &mut Child, deadline: Deadline) -> io::Result<Option<ExitStatus>> {
    let status = wait(child, || deadline.is_over())?;
    if status.is_none() {
        kill(child);
    }
    Ok(status)
}

/// Kill a program, if it still runs.
pub(crate) fn kill(child: &mut Child) {
    let _ = child.kill();
    let begun = Instant::now();
    let _ = wait(child, || begun.elapsed() >= DEATH_TIME);
}

fn wait(child: &mut Child, is_over: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            None if is_over() => return Ok(None),
            None => thread::sleep(PAUSE),
            ended => return Ok(ended),
        }
    }
}

/// What comes from a pipe, read as it comes, so that nobody who writes to it waits.
pub(crate) struct Collected(mpsc::Receiver<Vec<u8>>);

impl Collected {
    pub(crate) fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // What came before an error is what there is.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            let _ = sender.send(bytes);
        });
        Self(receiver)
    }

    /// All of it, after the end of who wrote it; nothing if somebody else still holds the pipe.
    pub(crate) fn take(self) -> String {
        let bytes = self.0.recv_timeout(DEATH_TIME).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_is_heard_to_its_end() {
        let command = &mut Command::new("sh");
        let ended =
            run(command.args(["-c", "echo out; echo err >&2; exit 7"]), Deadline::after(Duration::from_secs(20)));
        let Ended { status, stdout, stderr } = ended.unwrap();
        assert_eq!((status.unwrap().code(), stdout.as_str(), stderr.as_str()), (Some(7), "out\n", "err\n"));
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_deadline() {
        let begun = Instant::now();
        let ended = run(Command::new("sleep").arg("60"), Deadline::after(Duration::from_millis(50))).unwrap();
        assert!(ended.status.is_none());
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_pipe_that_a_killed_programs_child_still_holds_is_not_waited_for() {
        let begun = Instant::now();
        let command = &mut Command::new("sh");
        let ended = run(command.args(["-c", "sleep 30 & wait"]), Deadline::after(Duration::from_millis(50))).unwrap();
        assert!(ended.status.is_none());
        assert!(begun.elapsed() < Duration::from_secs(25));
    }

    #[test]
    fn a_step_never_outlasts_the_whole() {
        let whole = Deadline::after(Duration::from_millis(10));
        assert!(whole.step(Duration::from_mins(1)).left() <= Duration::from_millis(10));
    }
}
