//! Cost of observation, and of faults: the same work under different conditions, in turns. So the
//! warm-up of a GPU, or another process on it, affects all conditions alike.

use std::{process::Command, time::Duration};

use anyhow::ensure;
use serde::Serialize;
use thiserror::Error;
use workloads::report::{Header, PhaseReport, Report};

use crate::{daemon::Launch, deadline::Deadline, remote::RemoteProcess, stepped};

/// Condition of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// Unobserved; the GPU faults.
    Bare,
    /// With uvmd's probes attached.
    Uvmd,
    /// With the driver's counters attached.
    Tools,
    /// Unobserved; the program prefetches instead of faulting.
    Prefetched,
}

/// Times of one condition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) condition: Condition,
    /// Times of GPU work including prefetches, by the GPU's events.
    pub(crate) gpu_ms: Vec<f64>,
    /// Times of the CPU's first write.
    pub(crate) cpu_ms: Vec<f64>,
}

/// Reason why there are no times.
#[derive(Debug, Error)]
pub(crate) enum Unmeasured {
    #[error("there was time for {0} of at least {ROUNDS_MIN} rounds")]
    NoTime(usize),
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

impl Times {
    fn add(&mut self, report: &Report) {
        let (gpu_ms, cpu_ms) = elapsed(report);
        self.gpu_ms.push(gpu_ms);
        self.cpu_ms.push(cpu_ms);
    }

    pub(crate) fn median_gpu_ms(&self) -> Option<f64> {
        median(&self.gpu_ms)
    }

    pub(crate) fn median_cpu_ms(&self) -> Option<f64> {
        median(&self.cpu_ms)
    }
}

/// Median.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 { Some(upper) } else { Some(sorted.get(middle - 1)?.midpoint(upper)) }
}

/// Usual rounds of each condition, for a median; fewer if time runs out.
pub(crate) const ROUNDS: u32 = 7;
/// Least rounds.
pub(crate) const ROUNDS_MIN: u32 = 3;

/// Measures the conditions in turns. `command` returns the command for a workload's name.
pub(crate) fn measure(
    conditions: &[Condition],
    rounds: u32,
    command: &dyn Fn(&str) -> Command,
    uvmd: Option<&Launch>,
    deadline: Deadline,
) -> Result<Vec<Times>, Unmeasured> {
    let mut times: Vec<Times> =
        conditions.iter().map(|&condition| Times { condition, gpu_ms: Vec::new(), cpu_ms: Vec::new() }).collect();
    'rounds: for _ in 0..rounds {
        for times in &mut times {
            if deadline.has_expired() {
                break 'rounds;
            }
            match measure_once(times.condition, command, uvmd, deadline) {
                Ok(report) => times.add(&report),
                // The deadline cut the run off: earlier measurements remain valid.
                Err(_) if deadline.has_expired() => break 'rounds,
                Err(error) => return Err(Unmeasured::Failed(error)),
            }
        }
    }
    let measured = times.iter().map(|times| times.gpu_ms.len()).min().unwrap_or(0);
    if measured >= ROUNDS_MIN as usize { Ok(times) } else { Err(Unmeasured::NoTime(measured)) }
}

fn measure_once(
    condition: Condition,
    command: &dyn Fn(&str) -> Command,
    uvmd: Option<&Launch>,
    deadline: Deadline,
) -> anyhow::Result<Report> {
    let workload = if condition == Condition::Prefetched { "prefetch" } else { "cpu-write-gpu-read" };
    let daemon = match (condition, uvmd) {
        (Condition::Uvmd, Some(launch)) => {
            let (daemon, status) = launch.start(deadline)?;
            ensure!(status.state == "counting", "uvmd no longer counts; its state is {}", status.state);
            Some(daemon)
        }
        _ => None,
    };
    // Every condition uses the pauses, so that conditions are comparable; times exclude the pauses.
    let mut observer = IdleObserver { with_tools: condition == Condition::Tools, attached: None };
    let report = stepped::run(&mut command(workload), deadline, &mut observer)?;
    daemon.map_or(Ok(()), crate::daemon::Daemon::stop)?;
    Ok(report)
}

/// Times of GPU and CPU in a report, without its last phase, the CPU's verification.
fn elapsed(report: &Report) -> (f64, f64) {
    let work = report.done.split_last().map_or(&[][..], |(_check, work)| work);
    let sum = |is_cpu: bool| {
        let is_counted = |phase: &&PhaseReport| (phase.toucher == Some(workloads::phase::Processor::Cpu)) == is_cpu;
        work.iter().filter(is_counted).map(|phase| phase.elapsed_ms).sum()
    };
    (sum(false), sum(true))
}

struct IdleObserver {
    with_tools: bool,
    attached: Option<RemoteProcess>,
}

impl stepped::Observer for IdleObserver {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        self.attached = self.with_tools.then(|| RemoteProcess::attach(header.pid)).transpose()?;
        Ok(())
    }
    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        Ok(())
    }
    fn done(&mut self, _report: &PhaseReport) -> anyhow::Result<()> {
        Ok(())
    }
}

/// Timeout of all measurements.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(150);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_in_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn a_slow_run_does_not_move_the_median() {
        assert_eq!(median(&[1.0, 1.1, 99.0]), Some(1.1));
    }

    #[test]
    fn conditions_are_measured_in_turns_and_equally_often() {
        let deadline = Deadline::after(Duration::from_mins(1));
        let conditions = [Condition::Bare, Condition::Prefetched];
        let workloads_run = std::cell::RefCell::new(Vec::new());
        let command = |name: &str| {
            workloads_run.borrow_mut().push(name.to_owned());
            testing::workload("exit 0")
        };
        let times = measure(&conditions, ROUNDS, &command, None, deadline).unwrap();
        assert!(times.iter().all(|times| times.gpu_ms.len() == ROUNDS as usize));
        assert_eq!(workloads_run.borrow()[..4], ["cpu-write-gpu-read", "prefetch", "cpu-write-gpu-read", "prefetch"]);
    }

    #[test]
    fn too_few_rounds_are_no_measurement() {
        let deadline = Deadline::after(Duration::ZERO);
        let error = measure(&[Condition::Bare], ROUNDS, &|_| testing::workload("exit 0"), None, deadline).unwrap_err();
        assert_eq!(error.to_string(), "there was time for 0 of at least 3 rounds");
    }

    #[test]
    fn measurements_before_the_deadline_remain_valid() {
        let runs = std::cell::Cell::new(0);
        let command = |_: &str| {
            runs.set(runs.get() + 1);
            if runs.get() <= ROUNDS_MIN { testing::workload("exit 0") } else { testing::script("exec sleep 60") }
        };
        let deadline = Deadline::after(Duration::from_secs(5));
        let times = measure(&[Condition::Bare], ROUNDS, &command, None, deadline).unwrap();
        assert_eq!(times[0].gpu_ms.len(), ROUNDS_MIN as usize);
    }

    #[test]
    fn a_workload_that_fails_is_not_taken_for_a_lack_of_time() {
        let deadline = Deadline::after(Duration::from_mins(1));
        let error = measure(&[Condition::Bare], ROUNDS, &|_| testing::script("exit 1"), None, deadline).unwrap_err();
        assert!(matches!(error, Unmeasured::Failed(_)), "{error}");
    }

    #[test]
    fn the_last_check_is_not_part_of_the_time() {
        let mut report = testing::report();
        assert_eq!(elapsed(&report), (0.0, 1.5));
        report.done.push(report.done[0].clone());
        assert_eq!(elapsed(&report), (1.5, 1.5));
    }
}
