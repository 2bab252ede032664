//! Deadline of all waiting: the program's time limit, or a signal to terminate.

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

/// Interval of checks whether a program has exited.
const PAUSE: Duration = Duration::from_millis(5);
/// Timeout of a killed program's exit. A program that waits inside a hanging driver never exits,
/// and is abandoned.
const KILL_TIMEOUT: Duration = Duration::from_secs(3);

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes every deadline expire on a signal to terminate, so that started programs are stopped and
/// results are written first.
pub(crate) fn register_signals() -> io::Result<()> {
    [SIGHUP, SIGINT, SIGTERM]
        .into_iter()
        .try_for_each(|signal| signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED)).map(drop))
}

/// Whether a signal arrived.
pub(crate) fn is_interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Time for which the timeouts of steps are made, in seconds. A slow machine gets more by
/// `--deadline`, and each step as much more.
pub(crate) const USUAL_S: u64 = 540;

/// End of all waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    end: Instant,
    /// Factor of the timeouts of steps.
    timeout_scale: f64,
}

impl Deadline {
    pub(crate) fn after(time: Duration) -> Self {
        let timeout_scale = time.div_duration_f64(Duration::from_secs(USUAL_S)).max(1.0);
        Self { end: Instant::now() + time, timeout_scale }
    }

    pub(crate) fn remaining(self) -> Duration {
        if is_interrupted() { Duration::ZERO } else { self.end.saturating_duration_since(Instant::now()) }
    }

    /// Earlier deadline, for a step with its own timeout.
    pub(crate) fn step(self, at_most: Duration) -> Self {
        Self { end: self.end.min(Instant::now() + self.timeout(at_most)), ..self }
    }

    /// Timeout of a step.
    pub(crate) fn timeout(self, usual: Duration) -> Duration {
        usual.mul_f64(self.timeout_scale)
    }

    pub(crate) fn has_expired(self) -> bool {
        self.remaining().is_zero()
    }
}

/// Output of a program, and its exit status; none if it was killed at the deadline.
pub(crate) struct Output {
    pub(crate) status: Option<ExitStatus>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a program until it exits, or kills it at the deadline.
pub(crate) fn run(command: &mut Command, deadline: Deadline) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let stdout = Collected::start(child.stdout.take());
    let stderr = Collected::start(child.stderr.take());
    let status = wait_or_kill(&mut child, deadline)?;
    Ok(Output { status, stdout: stdout.take(), stderr: stderr.take() })
}

/// Waits for a program's exit; none if it was killed at the deadline.
pub(crate) fn wait_or_kill(child: &mut Child, deadline: Deadline) -> io::Result<Option<ExitStatus>> {
    let status = wait(child, || deadline.has_expired())?;
    if status.is_none() {
        kill(child);
    }
    Ok(status)
}

/// Kills a program, if it still runs.
pub(crate) fn kill(child: &mut Child) {
    let _ = child.kill();
    let start = Instant::now();
    let _ = wait(child, || start.elapsed() >= KILL_TIMEOUT);
}

fn wait(child: &mut Child, has_expired: impl Fn() -> bool) -> io::Result<Option<ExitStatus>> {
    loop {
        match child.try_wait()? {
            None if has_expired() => return Ok(None),
            None => thread::sleep(PAUSE),
            ended => return Ok(ended),
        }
    }
}

/// Output of a pipe, read as it arrives, so that the writer never blocks.
pub(crate) struct Collected(mpsc::Receiver<Vec<u8>>);

impl Collected {
    pub(crate) fn start(pipe: Option<impl Read + Send + 'static>) -> Self {
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut bytes = Vec::new();
            // Bytes before an error are kept.
            let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
            let _ = sender.send(bytes);
        });
        Self(receiver)
    }

    /// All output, after the writer's exit; empty if another process still has the pipe open.
    pub(crate) fn take(self) -> String {
        let bytes = self.0.recv_timeout(KILL_TIMEOUT).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_output_of_a_program_is_collected() {
        let command = &mut Command::new("sh");
        let ended =
            run(command.args(["-c", "echo out; echo err >&2; exit 7"]), Deadline::after(Duration::from_secs(20)));
        let Output { status, stdout, stderr } = ended.unwrap();
        assert_eq!((status.unwrap().code(), stdout.as_str(), stderr.as_str()), (Some(7), "out\n", "err\n"));
    }

    #[test]
    fn a_program_that_hangs_is_killed_at_the_deadline() {
        let start = Instant::now();
        let ended = run(Command::new("sleep").arg("60"), Deadline::after(Duration::from_millis(50))).unwrap();
        assert!(ended.status.is_none());
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_pipe_that_a_killed_programs_child_still_holds_is_not_waited_for() {
        let start = Instant::now();
        let command = &mut Command::new("sh");
        let ended = run(command.args(["-c", "sleep 30 & wait"]), Deadline::after(Duration::from_millis(50))).unwrap();
        assert!(ended.status.is_none());
        assert!(start.elapsed() < Duration::from_secs(25));
    }

    #[test]
    fn a_step_never_outlasts_the_deadline() {
        let deadline = Deadline::after(Duration::from_millis(10));
        assert!(deadline.step(Duration::from_mins(1)).remaining() <= Duration::from_millis(10));
    }

    #[test]
    fn a_longer_deadline_gives_each_step_as_much_longer_and_a_shorter_one_not_less() {
        let usual = Duration::from_secs(USUAL_S);
        let timeout = |time| Deadline::after(time).timeout(Duration::from_secs(15));
        assert_eq!(timeout(usual * 4), Duration::from_mins(1));
        assert_eq!(timeout(usual / 4), Duration::from_secs(15));
    }
}
