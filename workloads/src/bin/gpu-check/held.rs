//! A workload that waits before and after each of its phases, so that figures are taken at rest.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use workloads::report::{Event, Header, PhaseReport, Report};

use crate::deadline::{self, Collected, Deadline};

/// A deadline may come to be over while a line is waited for.
const PAUSE: Duration = Duration::from_millis(100);

/// What whoever takes figures does at each rest.
pub(crate) trait Observer {
    /// The process is there, and its memory untouched.
    fn begun(&mut self, header: &Header) -> anyhow::Result<()>;
    /// A phase comes next.
    fn ready(&mut self, phase: &str) -> anyhow::Result<()>;
    /// It is over.
    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()>;
}

/// Run a workload under observation, to its end.
pub(crate) fn run(command: &mut Command, deadline: Deadline, observer: &mut dyn Observer) -> anyhow::Result<Report> {
    let mut held = Held::start(command)?;
    let result = held.attend(deadline, observer);
    held.finish(result, deadline)
}

/// Who is the reason for an early end.
enum Failure {
    Workload(anyhow::Error),
    Observer(anyhow::Error),
}

struct Held {
    child: Child,
    go: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    complaints: Option<Collected>,
}

impl Held {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().with_context(|| format!("cannot start {}", piped.get_program().display()))?;
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take();
        thread::spawn(move || {
            let lines = stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let complaints = Some(Collected::start(child.stderr.take()));
        Ok(Self { go: child.stdin.take(), child, lines, complaints })
    }

    fn attend(&mut self, deadline: Deadline, observer: &mut dyn Observer) -> Result<Report, Failure> {
        loop {
            let noted = match self.next(deadline).map_err(Failure::Workload)? {
                Event::Begun(header) => observer.begun(&header),
                Event::Ready { phase } => observer.ready(&phase),
                Event::Done(report) => observer.done(&report),
                Event::Ended(report) => return Ok(report),
            };
            noted.map_err(Failure::Observer)?;
            self.go_on().map_err(Failure::Workload)?;
        }
    }

    fn next(&self, deadline: Deadline) -> anyhow::Result<Event> {
        let line = loop {
            match self.lines.recv_timeout(deadline.left().min(PAUSE)) {
                Ok(line) => break line,
                Err(mpsc::RecvTimeoutError::Timeout) if !deadline.is_over() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => bail!("the workload did not come to its end in time"),
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the workload ended early"),
            }
        };
        serde_json::from_str(&line).with_context(|| format!("the workload said {line:?}"))
    }

    fn go_on(&mut self) -> anyhow::Result<()> {
        let go = self.go.as_mut().context("the workload takes no input")?;
        go.write_all(b"\n").and_then(|()| go.flush()).context("the workload does not listen")
    }

    /// Whatever it said of its own failure is the better reason.
    fn finish(mut self, result: Result<Report, Failure>, deadline: Deadline) -> anyhow::Result<Report> {
        // Without a word to go on, it ends by itself.
        drop(self.go.take());
        let status = deadline::wait_or_kill(&mut self.child, deadline)?;
        let complaints = self.complaints.take().map(Collected::take).unwrap_or_default();
        match (result, status) {
            (Ok(report), Some(status)) if status.success() => Ok(report),
            (Ok(_), Some(status)) => {
                Err(anyhow!("the workload failed after its end ({status}): {}", complaints.trim()))
            }
            (Ok(_), None) => Err(anyhow!("the workload does not end")),
            // What it then says is that nobody let it go on.
            (Err(Failure::Observer(error)), _) => Err(error),
            (Err(Failure::Workload(error)), _) if complaints.trim().is_empty() => Err(error),
            (Err(Failure::Workload(error)), _) => Err(error.context(complaints.trim().to_owned())),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Already ended, but for a way out that nobody thought of.
        deadline::kill(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Seen};

    fn after(seconds: u64) -> Deadline {
        Deadline::after(Duration::from_secs(seconds))
    }

    #[test]
    fn every_rest_is_attended_in_order_and_the_report_comes_back() {
        let mut seen = Seen::default();
        let report = run(&mut testing::workload("exit 0"), after(20), &mut seen).unwrap();
        assert_eq!(report, testing::report());
        assert_eq!(
            seen.0,
            ["begun cpu-write-gpu-read", "ready cpu-write", "done cpu-write", "ready gpu-read", "done gpu-read"]
        );
    }

    #[test]
    fn a_workload_that_fails_is_quoted() {
        let error = run(
            &mut testing::script("echo 'uvm-workload: the data is wrong' >&2; exit 1"),
            after(20),
            &mut Seen::default(),
        );
        assert!(format!("{:#}", error.unwrap_err()).starts_with("uvm-workload: the data is wrong"));
    }

    #[test]
    fn an_observer_that_gives_up_is_the_reason_and_not_what_the_workload_says_of_it() {
        struct Gives;
        impl Observer for Gives {
            fn begun(&mut self, _header: &Header) -> anyhow::Result<()> {
                bail!("no descriptor")
            }
            fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
                Ok(())
            }
            fn done(&mut self, _report: &PhaseReport) -> anyhow::Result<()> {
                Ok(())
            }
        }
        let error = run(&mut testing::workload("echo nobody listens >&2"), after(20), &mut Gives).unwrap_err();
        assert_eq!(format!("{error:#}"), "no descriptor");
    }

    #[test]
    fn a_workload_that_hangs_is_killed() {
        let error = run(
            &mut testing::script("exec sleep 60"),
            Deadline::after(Duration::from_millis(100)),
            &mut Seen::default(),
        );
        assert!(error.unwrap_err().to_string().contains("in time"));
    }

    #[test]
    fn nonsense_is_an_error() {
        let error = run(&mut testing::script("echo hello; read x"), after(20), &mut Seen::default()).unwrap_err();
        assert!(error.to_string().contains("\"hello\""), "{error:#}");
    }

    #[test]
    fn a_bad_end_after_a_good_report_is_no_success() {
        let error =
            run(&mut testing::workload("echo oops >&2; exit 139"), after(20), &mut Seen::default()).unwrap_err();
        assert!(error.to_string().contains("oops"), "{error:#}");
    }
}
