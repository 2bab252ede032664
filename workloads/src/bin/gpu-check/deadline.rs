//! Nothing waits for longer than this program may run.

use std::{
    io::{self, Read},
    process::{Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// When all must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(crate) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
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
    let stdout = collect(child.stdout.take());
    let stderr = collect(child.stderr.take());
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if deadline.is_over() {
            child.kill()?;
            child.wait()?;
            break None;
        }
        thread::sleep(Duration::from_millis(5));
    };
    Ok(Ended { status, stdout: stdout.join().unwrap_or_default(), stderr: stderr.join().unwrap_or_default() })
}

/// Read a pipe to its end, so that nobody who writes to it waits.
pub(crate) fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What came before an error is what there is.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
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
    fn a_step_never_outlasts_the_whole() {
        let whole = Deadline::after(Duration::from_millis(10));
        assert!(whole.step(Duration::from_mins(1)).left() <= Duration::from_millis(10));
    }
}
