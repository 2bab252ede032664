//! Workload that pauses before and after each phase, so that figures are taken at rest.

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

/// Interval of checks of the deadline while waiting for a line.
const PAUSE: Duration = Duration::from_millis(100);

/// Observer that takes figures at each pause.
pub(crate) trait Observer {
    /// The process has started, and its memory is untouched.
    fn begun(&mut self, header: &Header) -> anyhow::Result<()>;
    /// A phase is next.
    fn ready(&mut self, phase: &str) -> anyhow::Result<()>;
    /// A phase is over.
    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()>;
}

/// Runs a workload to its end, with an observer.
pub(crate) fn run(command: &mut Command, deadline: Deadline, observer: &mut dyn Observer) -> anyhow::Result<Report> {
    let mut stepped = SteppedWorkload::start(command)?;
    let result = stepped.observe(deadline, observer);
    stepped.finish(result, deadline)
}

/// Side that caused an early end.
enum Failure {
    Workload(anyhow::Error),
    Observer(anyhow::Error),
}

struct SteppedWorkload {
    child: Child,
    input: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
    stderr: Option<Collected>,
}

impl SteppedWorkload {
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
        let stderr = Some(Collected::start(child.stderr.take()));
        Ok(Self { input: child.stdin.take(), child, lines, stderr })
    }

    fn observe(&mut self, deadline: Deadline, observer: &mut dyn Observer) -> Result<Report, Failure> {
        loop {
            let result = match self.next(deadline).map_err(Failure::Workload)? {
                Event::Begun(header) => observer.begun(&header),
                Event::Ready { phase } => observer.ready(&phase),
                Event::Done(report) => observer.done(&report),
                Event::Ended(report) => return Ok(report),
            };
            result.map_err(Failure::Observer)?;
            self.resume().map_err(Failure::Workload)?;
        }
    }

    fn next(&self, deadline: Deadline) -> anyhow::Result<Event> {
        let line = loop {
            match self.lines.recv_timeout(deadline.remaining().min(PAUSE)) {
                Ok(line) => break line,
                Err(mpsc::RecvTimeoutError::Timeout) if !deadline.has_expired() => {}
                Err(mpsc::RecvTimeoutError::Timeout) => bail!("the workload did not complete in time"),
                Err(mpsc::RecvTimeoutError::Disconnected) => bail!("the workload exited early"),
            }
        };
        serde_json::from_str(&line).with_context(|| format!("unexpected output of the workload: {line:?}"))
    }

    fn resume(&mut self) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("the workload takes no input")?;
        input.write_all(b"\n").and_then(|()| input.flush()).context("the workload does not read its input")
    }

    /// The workload's own error message takes precedence as the reason.
    fn finish(mut self, result: Result<Report, Failure>, deadline: Deadline) -> anyhow::Result<Report> {
        // With its input closed, the workload exits by itself.
        drop(self.input.take());
        let status = deadline::wait_or_kill(&mut self.child, deadline)?;
        let stderr = self.stderr.take().map(Collected::take).unwrap_or_default();
        match (result, status) {
            (Ok(report), Some(status)) if status.success() => Ok(report),
            (Ok(_), Some(status)) => Err(anyhow!("the workload failed after its report ({status}): {}", stderr.trim())),
            (Ok(_), None) => Err(anyhow!("the workload does not exit")),
            // The workload's message would only report that its input was closed.
            (Err(Failure::Observer(error)), _) => Err(error),
            (Err(Failure::Workload(error)), _) if stderr.trim().is_empty() => Err(error),
            (Err(Failure::Workload(error)), _) => Err(error.context(stderr.trim().to_owned())),
        }
    }
}

impl Drop for SteppedWorkload {
    fn drop(&mut self) {
        // The workload has exited already, except on an unforeseen path.
        deadline::kill(&mut self.child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, Recorder};

    fn after(seconds: u64) -> Deadline {
        Deadline::after(Duration::from_secs(seconds))
    }

    #[test]
    fn every_pause_is_observed_in_order_and_the_report_is_returned() {
        let mut seen = Recorder::default();
        let report = run(&mut testing::workload("exit 0"), after(20), &mut seen).unwrap();
        assert_eq!(report, testing::report());
        assert_eq!(
            seen.0,
            ["begun cpu-write-gpu-read", "ready cpu-write", "done cpu-write", "ready gpu-read", "done gpu-read"]
        );
    }

    #[test]
    fn the_error_of_a_failed_workload_is_quoted() {
        let error = run(
            &mut testing::script("echo 'uvm-workload: the data is wrong' >&2; exit 1"),
            after(20),
            &mut Recorder::default(),
        );
        assert!(format!("{:#}", error.unwrap_err()).starts_with("uvm-workload: the data is wrong"));
    }

    #[test]
    fn the_error_of_an_observer_takes_precedence_over_that_of_the_workload() {
        struct FailingObserver;
        impl Observer for FailingObserver {
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
        let error =
            run(&mut testing::workload("echo standard input ended >&2"), after(20), &mut FailingObserver).unwrap_err();
        assert_eq!(format!("{error:#}"), "no descriptor");
    }

    #[test]
    fn a_workload_that_hangs_is_killed() {
        let error = run(
            &mut testing::script("exec sleep 60"),
            Deadline::after(Duration::from_millis(100)),
            &mut Recorder::default(),
        );
        assert!(error.unwrap_err().to_string().contains("in time"));
    }

    #[test]
    fn unexpected_output_is_an_error() {
        let error = run(&mut testing::script("echo hello; read x"), after(20), &mut Recorder::default()).unwrap_err();
        assert!(error.to_string().contains("\"hello\""), "{error:#}");
    }

    #[test]
    fn a_failed_exit_after_a_report_is_no_success() {
        let error =
            run(&mut testing::workload("echo oops >&2; exit 139"), after(20), &mut Recorder::default()).unwrap_err();
        assert!(error.to_string().contains("oops"), "{error:#}");
    }
}
