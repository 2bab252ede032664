//! Cost of observation, and of faults: the same work under different conditions, in turns. So the
//! warm-up of a GPU, or another process on it, affects all conditions alike.

use std::{
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::ensure;
use serde::Serialize;
use sys::uvm::counters::Counted;
use thiserror::Error;
use workloads::report::{Header, PhaseReport, Report};

use crate::{
    daemon::{Daemon, Launch},
    deadline::Deadline,
    remote::RemoteProcess,
    source::Source,
    stepped,
};

/// Condition of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Condition {
    /// Unobserved; the GPU faults.
    Bare,
    /// With uvmd, which has this source.
    Uvmd(Source),
    /// With the driver's counters attached, which nobody reads meanwhile.
    Counters,
    /// Unobserved; the program prefetches instead of faulting.
    Prefetched,
}

impl Condition {
    /// Name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "unobserved",
            Self::Uvmd(source) => source.name(),
            Self::Counters => "the driver's counters attached",
            Self::Prefetched => "unobserved, prefetched by the program",
        }
    }
}

/// Workload with a CPU fault for each page.
pub(crate) const DUPLICATED: &str = "read-mostly";
/// Its phase of CPU faults.
const WRITE: &str = "cpu-write";

/// Measured work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Reads by the GPU, including prefetches, by the GPU's events.
    GpuRead,
    /// Writes by the CPU, with a fault for a large part of a block.
    CpuWrite,
    /// Writes by the CPU with read duplication, with a fault for each page.
    DuplicatedWrite,
}

/// Times of one condition.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Times {
    pub(crate) condition: Condition,
    pub(crate) gpu_ms: Vec<f64>,
    pub(crate) cpu_ms: Vec<f64>,
    pub(crate) duplicated_ms: Vec<f64>,
    /// Faults of each work in a round, of the condition that counts them.
    pub(crate) faults: Option<Faults>,
}

/// Faults of each work in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Faults {
    pub(crate) gpu_read: u64,
    pub(crate) cpu_write: u64,
    pub(crate) duplicated_write: u64,
}

impl Faults {
    pub(crate) const fn of(self, work: Work) -> u64 {
        match work {
            Work::GpuRead => self.gpu_read,
            Work::CpuWrite => self.cpu_write,
            Work::DuplicatedWrite => self.duplicated_write,
        }
    }
}

/// Reason why there are no times.
#[derive(Debug, Error)]
pub(crate) enum Unmeasured {
    #[error("there was time for {0} of at least {1} rounds")]
    NoTime(usize, u32),
    #[error("{0:#}")]
    Failed(anyhow::Error),
}

impl Times {
    const fn new(condition: Condition) -> Self {
        Self { condition, gpu_ms: Vec::new(), cpu_ms: Vec::new(), duplicated_ms: Vec::new(), faults: None }
    }

    fn add(&mut self, round: &Round) {
        let Round { gpu_ms, cpu_ms, duplicated_ms, faults } = *round;
        self.gpu_ms.push(gpu_ms);
        self.cpu_ms.push(cpu_ms);
        self.duplicated_ms.extend(duplicated_ms);
        self.faults = faults.or(self.faults);
    }

    pub(crate) fn of(&self, work: Work) -> &[f64] {
        match work {
            Work::GpuRead => &self.gpu_ms,
            Work::CpuWrite => &self.cpu_ms,
            Work::DuplicatedWrite => &self.duplicated_ms,
        }
    }

    pub(crate) fn median_ms(&self, work: Work) -> Option<f64> {
        median(self.of(work))
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
pub(crate) const ROUNDS: u32 = 9;
/// Least rounds for a median, where more are wanted.
const ROUNDS_MIN: u32 = 3;

/// Measures the conditions in turns. `command` returns the command for a workload's name.
pub(crate) fn measure(
    conditions: &[Condition],
    rounds: u32,
    command: &dyn Fn(&str) -> Command,
    uvmd: Option<&Launch>,
    deadline: Deadline,
) -> Result<Vec<Times>, Unmeasured> {
    let mut times: Vec<Times> = conditions.iter().map(|&condition| Times::new(condition)).collect();
    'rounds: for _ in 0..rounds {
        for times in &mut times {
            if deadline.has_expired() {
                break 'rounds;
            }
            match measure_once(times.condition, command, uvmd, deadline) {
                Ok(round) => times.add(&round),
                // The deadline cut the run off: earlier measurements remain valid.
                Err(_) if deadline.has_expired() => break 'rounds,
                Err(error) => return Err(Unmeasured::Failed(error)),
            }
        }
    }
    let measured = times.iter().map(|times| times.gpu_ms.len()).min().unwrap_or(0);
    let least = ROUNDS_MIN.min(rounds);
    if measured >= least as usize { Ok(times) } else { Err(Unmeasured::NoTime(measured, least)) }
}

/// Times of a round.
struct Round {
    gpu_ms: f64,
    cpu_ms: f64,
    duplicated_ms: Option<f64>,
    faults: Option<Faults>,
}

fn measure_once(
    condition: Condition,
    command: &dyn Fn(&str) -> Command,
    uvmd: Option<&Launch>,
    deadline: Deadline,
) -> anyhow::Result<Round> {
    let daemon = match (condition, uvmd) {
        (Condition::Uvmd(source), Some(launch)) => {
            let (daemon, status) = launch.start(source, deadline)?;
            ensure!(status.state == "counting", "{} no longer count: {}", source.name(), status.state);
            Some(daemon)
        }
        _ => None,
    };
    // Every condition uses the pauses, so that conditions are comparable; times exclude the pauses.
    let observe = |workload: &str| -> anyhow::Result<(Report, Option<(Counted, Counted)>)> {
        let mut observer = IdleObserver {
            with_counters: condition == Condition::Counters,
            daemon: daemon.as_ref(),
            deadline,
            attached: None,
            written: None,
            last: None,
        };
        let report = stepped::run(&mut command(workload), deadline, &mut observer)?;
        Ok((report, observer.written.zip(observer.last)))
    };
    let is_prefetched = condition == Condition::Prefetched;
    let (report, counted) = observe(if is_prefetched { "prefetch" } else { "cpu-write-gpu-read" })?;
    let duplicated = if is_prefetched { None } else { Some(observe(DUPLICATED)?) };
    daemon.map_or(Ok(()), Daemon::stop)?;
    let (gpu_ms, cpu_ms) = elapsed(&report);
    let faults = counted.zip(duplicated.as_ref().and_then(|(_, counted)| *counted));
    Ok(Round {
        gpu_ms,
        cpu_ms,
        duplicated_ms: duplicated.map(|(report, _)| written_ms(&report)),
        faults: faults.map(|((written, last), (duplicated, _))| Faults {
            gpu_read: last.fault_entries,
            cpu_write: written.cpu_faults,
            duplicated_write: duplicated.cpu_faults,
        }),
    })
}

/// Time of the CPU's writes in a report.
fn written_ms(report: &Report) -> f64 {
    report.done.iter().filter(|phase| phase.phase == WRITE).map(|phase| phase.elapsed_ms).sum()
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

struct IdleObserver<'a> {
    with_counters: bool,
    daemon: Option<&'a Daemon>,
    deadline: Deadline,
    attached: Option<RemoteProcess>,
    /// Counts after the CPU's write.
    written: Option<Counted>,
    /// Counts after the last phase.
    last: Option<Counted>,
}

impl stepped::Observer for IdleObserver<'_> {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        self.attached = self.with_counters.then(|| RemoteProcess::attach(header.pid)).transpose()?;
        self.daemon.map_or(Ok(None), |daemon| daemon.discover(header.pid, SystemTime::now(), self.deadline))?;
        Ok(())
    }
    fn ready(&mut self, _phase: &str) -> anyhow::Result<()> {
        Ok(())
    }
    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        self.last = self.attached.as_ref().and_then(RemoteProcess::counted);
        if report.phase == WRITE {
            self.written = self.last;
        }
        Ok(())
    }
}

/// Timeout of all measurements.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(330);

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
        let round = ["cpu-write-gpu-read", "read-mostly", "prefetch"];
        assert_eq!(workloads_run.borrow()[..6], [round, round].concat());
    }

    #[test]
    fn too_few_rounds_are_no_measurement() {
        let deadline = Deadline::after(Duration::ZERO);
        let error = measure(&[Condition::Bare], ROUNDS, &|_| testing::workload("exit 0"), None, deadline).unwrap_err();
        assert_eq!(error.to_string(), "there was time for 0 of at least 3 rounds");
    }

    #[test]
    fn a_round_is_enough_where_no_more_are_wanted() {
        let deadline = Deadline::after(Duration::from_mins(1));
        let times = measure(&[Condition::Bare], 1, &|_| testing::workload("exit 0"), None, deadline).unwrap();
        assert_eq!(times[0].of(Work::CpuWrite), [1.5]);
    }

    #[test]
    fn measurements_before_the_deadline_remain_valid() {
        let runs = std::cell::Cell::new(0);
        let command = |_: &str| {
            runs.set(runs.get() + 1);
            // Two workloads a round.
            if runs.get() <= 2 * ROUNDS_MIN { testing::workload("exit 0") } else { testing::script("exec sleep 60") }
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
