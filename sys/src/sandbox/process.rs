//! Handle of the process.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::process::ExitStatusExt,
    },
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
};
use thiserror::Error;

use super::child::{NOT_CONFINED, PANICKED};
use crate::{Roots, executable::Program, pidfd::PidFd, processes};

/// Interval of checks of the deadline and the request to stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Last lines of the output that are the message of a panic or an abort, and bytes of each that are
/// reported.
const MESSAGE_LINES: usize = 2;
const MESSAGE_BYTES_MAX: usize = 256;
/// Begin of the standard library's message when memory is short.
const NO_MEMORY: &str = "memory allocation of ";

/// Time that a computation may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// Processor time.
    pub cpu: Duration,
    /// Time that passes.
    pub wall: Duration,
}

/// Result of a computation.
#[derive(Debug)]
pub struct Ended {
    /// Its output.
    pub output: Result<Vec<u8>, Failure>,
    /// Output until its end, if there is no complete [`output`](Self::output).
    pub written: Vec<u8>,
    /// Processor time that it has used.
    pub cpu: Duration,
}

/// Reason why a computation has no output.
#[derive(Debug, Error)]
pub enum Failure {
    /// The caller has stopped it.
    #[error("it was stopped")]
    Stopped,
    /// It has reached the limit of processor time.
    #[error("it used more than {0:?} of processor time")]
    CpuTime(Duration),
    /// It has reached the limit of elapsed time.
    #[error("it took more than {0:?}")]
    WallTime(Duration),
    /// It needs more memory than it may have.
    #[error("it needs more memory than it may have")]
    Memory,
    /// Its output has more bytes than this.
    #[error("its output has more than {0} bytes")]
    OutputTooLarge(usize),
    /// It has crashed, for this reason.
    #[error("it {0}")]
    Crashed(String),
    /// It could not confine itself.
    #[error("it could not confine itself: {0}")]
    NotConfined(String),
    /// Its state cannot be read from the kernel.
    #[error("it cannot be watched: {0}")]
    Unwatched(#[source] io::Error),
}

/// Process that computes once. It is killed on drop, and dies with the thread that started it.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts the process: an execution of a program that calls
    /// [`run_if_sandboxed`](super::run_if_sandboxed) with this argument. It inherits only this
    /// process's user, capabilities and cgroup, which it drops but for the last.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(program: &Program, argument: &str) -> io::Result<Self> {
        let (output, into) = io::pipe()?;
        let mut command = Command::new(program.path());
        command.arg(argument).env_clear().current_dir("/").stdin(Stdio::piped());
        command.stdout(into.try_clone()?).stderr(into);
        let mut child = command.spawn()?;
        // The command holds the other end, which this process must not keep.
        drop(command);
        child.stdout = Some(std::os::fd::OwnedFd::from(output).into());
        Ok(Self { child })
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Passes the input, and waits for the output of at most this size. Kills the process at the
    /// deadline, and when it is to stop.
    pub fn run(mut self, input: &[u8], output_bytes_max: usize, deadline: Deadline, stops: impl Fn() -> bool) -> Ended {
        let mut written = Vec::new();
        let exchanged = self.exchange(input, (&mut written, output_bytes_max), deadline, stops);
        let _ = self.child.kill();
        // Before its status is reaped.
        let cpu = self.cpu();
        let output = match (exchanged, self.child.wait()) {
            (Err(failure), _) => Err(failure),
            (Ok(()), Err(error)) => Err(Failure::Unwatched(error)),
            (Ok(()), Ok(status)) => ended(status, &written, deadline).map(|()| std::mem::take(&mut written)),
        };
        Ended { output, written, cpu }
    }

    /// Output of the process, which has exited.
    fn exchange(
        &mut self,
        mut input: &[u8],
        (output, output_bytes_max): (&mut Vec<u8>, usize),
        deadline: Deadline,
        stops: impl Fn() -> bool,
    ) -> Result<(), Failure> {
        let gone = |error| Failure::Unwatched(io::Error::other(error));
        let process = PidFd::open(self.pid()).map_err(gone)?;
        let mut stdin = self.child.stdin.take();
        let mut stdout = self.child.stdout.take().ok_or_else(|| Failure::Unwatched(io::ErrorKind::NotFound.into()))?;
        for pipe in stdin.iter().map(AsFd::as_fd).chain([stdout.as_fd()]) {
            set_nonblocking(pipe).map_err(Failure::Unwatched)?;
        }
        let (begun, mut is_open) = (Instant::now(), true);
        loop {
            let has_exited = process.has_exited().map_err(gone)?;
            if input.is_empty() {
                stdin = None;
            }
            if let Some(pipe) = &mut stdin
                && !write_some(pipe, &mut input)
            {
                stdin = None;
            }
            let at_most = output_bytes_max.saturating_add(1).saturating_sub(output.len());
            if is_open {
                let read = Read::take(&mut stdout, at_most as u64).read_to_end(output);
                is_open = read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            }
            if output.len() > output_bytes_max {
                return Err(Failure::OutputTooLarge(output_bytes_max));
            }
            if has_exited {
                return Ok(());
            }
            if stops() {
                return Err(Failure::Stopped);
            }
            if begun.elapsed() > deadline.wall {
                return Err(Failure::WallTime(deadline.wall));
            }
            if self.cpu() > deadline.cpu {
                return Err(Failure::CpuTime(deadline.cpu));
            }
            let mut waits = vec![PollFd::new(&process, PollFlags::IN)];
            if is_open {
                waits.push(PollFd::new(&stdout, PollFlags::IN));
            }
            if let Some(pipe) = &stdin {
                waits.push(PollFd::new(pipe, PollFlags::OUT));
            }
            match poll(&mut waits, Some(&LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Failure::Unwatched(error.into())),
            }
        }
    }

    fn cpu(&self) -> Duration {
        processes::run_time(&Roots::default(), self.pid()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_nonblocking(pipe: BorrowedFd<'_>) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// Writes as much as there is room for. Returns whether the pipe takes more.
fn write_some(pipe: &mut ChildStdin, input: &mut &[u8]) -> bool {
    while !input.is_empty() {
        match pipe.write(input) {
            Ok(written) => *input = input.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    false
}

/// Whether the output is complete, or the reason why not, of a process that has exited by itself.
fn ended(status: ExitStatus, output: &[u8], deadline: Deadline) -> Result<(), Failure> {
    let message = || {
        // There may be lines of output before the message.
        let lines = output.rsplit(|byte| *byte == b'\n').filter(|line| !line.is_empty()).take(MESSAGE_LINES);
        let text = |line: &[u8]| String::from_utf8_lossy(line.get(..MESSAGE_BYTES_MAX).unwrap_or(line)).into_owned();
        let mut lines: Vec<String> = lines.map(text).collect();
        lines.reverse();
        lines.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
    };
    match (status.code(), status.signal()) {
        (Some(0), _) => Ok(()),
        (Some(NOT_CONFINED), _) => Err(Failure::NotConfined(message())),
        (Some(PANICKED), _) => Err(Failure::Crashed(message())),
        (_, Some(libc::SIGXCPU)) => Err(Failure::CpuTime(deadline.cpu)),
        (_, Some(libc::SIGABRT)) if message().contains(NO_MEMORY.trim_end()) => Err(Failure::Memory),
        (_, Some(signal)) => Err(Failure::Crashed(format!("was killed by signal {signal}: {}", message()))),
        (code, None) => Err(Failure::Crashed(format!("exited with status {}", code.unwrap_or_default()))),
    }
}
