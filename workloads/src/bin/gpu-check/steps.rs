//! The checks, one after the other. None depends on the success of another: a check that this
//! machine does not permit is reported, and the others run.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Context;
use sys::Roots;
use workloads::{
    catalog::WORKLOADS,
    exit,
    guard::{self, FreeMemory},
    report::Gpu,
};

use crate::{
    counting::{self, WorkloadCounts},
    daemon::{Daemon, Launch, Status},
    deadline::{Deadline, Output, run},
    facts,
    migration::Migrator,
    recording::{self, Queue, Recorded},
    remote,
    results::{Results, Verdict},
    source::Source,
    stepped,
    timing::{self, Condition, Unmeasured},
};

/// Timeout of one workload, including its start.
const WORKLOAD_TIMEOUT: Duration = Duration::from_secs(40);
const COUNTED_MIB: u64 = 64;
const COUNTED_ROUNDS: u32 = 2;
/// Minimum memory: below this, times are too short to compare. A workload counts as twice its size
/// for the deadline.
const MIN_MIB: u64 = 16;

/// Inputs of the checks.
pub(crate) struct Plan {
    pub(crate) workload: PathBuf,
    pub(crate) uvmd: Option<PathBuf>,
    pub(crate) uvmctl: Option<PathBuf>,
    pub(crate) out: PathBuf,
    pub(crate) gpu: i32,
    pub(crate) timed_mib: u64,
    pub(crate) rounds: u32,
    pub(crate) is_quick: bool,
    pub(crate) deadline: Deadline,
}

/// Prints the progress for people.
fn progress(step: &str) {
    eprintln!("==> {step}");
}

impl Plan {
    /// Runs all checks.
    pub(crate) fn execute(&self, results: &mut Results) {
        let start = Instant::now();
        self.check(results);
        results.elapsed_s = start.elapsed().as_secs_f64();
    }

    fn check(&self, results: &mut Results) {
        progress("gathering facts");
        let roots = Roots::default();
        let gpu = self.gpu(results);
        // Facts are gathered after the GPU was opened, which loads the driver if necessary.
        results.facts = facts::gather(&roots, self.uvmctl.as_deref(), self.deadline.step(Duration::from_mins(1)));
        results.driver = sys::driver::module(&roots).and_then(|module| module.version);
        let Some(gpu) = gpu else { return };
        let allowed_mib = allowed_mib(&gpu);
        results.gpu = Some(gpu);
        if allowed_mib < MIN_MIB {
            let detail = format!("the guard allows {allowed_mib} MiB here, and {MIN_MIB} are needed");
            results.add("memory", Verdict::NotChecked, detail);
            return;
        }
        let with_tools = self.migration(results, COUNTED_MIB.min(allowed_mib));
        let launch = self.uvmd.as_ref().map(|uvmd| Launch { binary: uvmd.clone(), out: self.out.clone() });
        if launch.is_none() {
            results.add("uvmd", Verdict::NotChecked, "there is no uvmd in the folder of this program");
        }
        let mut sources = Vec::new();
        let passes = [&Source::TOGETHER[..], &[Source::ToolsMoves]];
        for (number, pass) in passes.into_iter().take(if self.is_quick { 1 } else { 2 }).enumerate() {
            let daemons = self.daemons(results, launch.as_ref(), pass);
            sources.extend(daemons.iter().map(Daemon::source));
            // The driver's counters are compared with predictions also without uvmd, once.
            if number == 0 || !daemons.is_empty() {
                self.counting(results, &daemons, with_tools, COUNTED_MIB.min(allowed_mib));
            }
            for daemon in daemons {
                check_and_stop(results, daemon);
            }
        }
        let timed_mib = self.timed_mib.min(allowed_mib);
        if with_tools {
            self.recording(results, timed_mib);
        }
        self.timing(results, launch.as_ref(), &sources, with_tools, timed_mib);
    }

    fn command(&self, workload: &str, mib: u64, iterations: u32) -> Command {
        let mut command = Command::new(&self.workload);
        let (mib, iterations, gpu) = (mib.to_string(), iterations.to_string(), self.gpu.to_string());
        command.args([workload, "--hold", "--mib", &mib, "--iterations", &iterations, "--gpu", &gpu]);
        command
    }

    fn gpu(&self, results: &mut Results) -> Option<Gpu> {
        let mut command = Command::new(&self.workload);
        command.args(["--facts", "--gpu", &self.gpu.to_string()]);
        let (verdict, reason) = match run(&mut command, self.deadline.step(Duration::from_secs(90))) {
            Ok(Output { status: Some(status), stdout, stderr: _ }) if status.success() => {
                match serde_json::from_str(&stdout) {
                    Ok(gpu) => return Some(gpu),
                    Err(error) => {
                        (Verdict::Differs, format!("unexpected output of uvm-workload --facts: {stdout:?}: {error}"))
                    }
                }
            }
            Ok(Output { status: Some(status), stdout: _, stderr }) => {
                let is_none = status.code() == Some(i32::from(exit::NO_GPU));
                (if is_none { Verdict::NotChecked } else { Verdict::Differs }, stderr.trim().to_owned())
            }
            Ok(Output { status: None, .. }) => {
                (Verdict::Differs, "uvm-workload --facts did not exit in time".to_owned())
            }
            Err(error) => (Verdict::Differs, format!("cannot start {}: {error}", self.workload.display())),
        };
        results.add("GPU", verdict, reason);
        None
    }

    /// Migrates another process's memory; whether the driver's counters can be attached.
    fn migration(&self, results: &mut Results, mib: u64) -> bool {
        progress("migrating another process's memory");
        let mut migrator = Migrator::new();
        let deadline = self.deadline.step(WORKLOAD_TIMEOUT);
        let result = stepped::run(&mut self.command("cpu-write-gpu-read", mib, 1), deadline, &mut migrator);
        let result = result.and_then(|_report| migrator.finish());
        let name = "migrating another process's memory (pidfd_getfd, UVM_MIGRATE)";
        match result {
            Ok(()) => results.add(name, Verdict::Right, migrator.passed.join("; ")),
            Err(error) if remote::is_not_permitted(&error) => {
                results.add(name, Verdict::NotChecked, format!("{error:#}"));
            }
            Err(error) => {
                let passed = if migrator.passed.is_empty() { "nothing".to_owned() } else { migrator.passed.join("; ") };
                results.add(name, Verdict::Differs, format!("{error:#} (passed before: {passed})"));
                return false;
            }
        }
        let name = "the driver's counters (UVM_TOOLS_INIT_EVENT_TRACKER)";
        match &migrator.counter_error {
            None if migrator.passed.is_empty() => results.add(name, Verdict::NotChecked, "no process could be reached"),
            None => {
                results.add(name, Verdict::Right, "attached to another process");
                return true;
            }
            Some(error) => {
                let verdict = if remote::is_not_permitted(error) { Verdict::NotChecked } else { Verdict::Differs };
                results.add(name, verdict, format!("{error:#}"));
            }
        }
        false
    }

    /// Starts uvmd with each of these sources with which it can count here.
    fn daemons(&self, results: &mut Results, launch: Option<&Launch>, sources: &[Source]) -> Vec<Daemon> {
        progress("starting uvmd");
        let launches = launch.into_iter().flat_map(|launch| sources.iter().map(move |source| (launch, *source)));
        launches.filter_map(|(launch, source)| self.daemon(results, launch, source)).collect()
    }

    fn daemon(&self, results: &mut Results, launch: &Launch, source: Source) -> Option<Daemon> {
        match launch.start(source, self.deadline) {
            Ok((daemon, status)) if status.state == "counting" => {
                results.add(source.name(), Verdict::Right, attachment(source, status));
                return Some(daemon);
            }
            Ok((daemon, status)) => {
                let detail = format!("{}: {}", status.state, status.reasons.join("; "));
                results.add(source.name(), Verdict::NotChecked, detail);
                if let Err(error) = daemon.stop() {
                    results.add(&exit_of(source), Verdict::Differs, format!("{error:#}"));
                }
            }
            // One cause is a missing root permission; the log has the reason.
            Err(error) => {
                let log = std::fs::read_to_string(launch.log(source)).unwrap_or_default();
                results.add(source.name(), Verdict::NotChecked, format!("{error:#}: {}", log.trim()));
            }
        }
        None
    }

    fn counting(&self, results: &mut Results, daemons: &[Daemon], with_tools: bool, mib: u64) {
        let of_driver = with_tools.then_some("the driver's counters");
        let sides: Vec<_> = of_driver.into_iter().chain(daemons.iter().map(|daemon| daemon.source().name())).collect();
        for workload in WORKLOADS {
            progress(&format!("counting {}", workload.name));
            let deadline = self.deadline.step(WORKLOAD_TIMEOUT);
            let level = daemons.iter().find_map(|daemon| daemon.source().level());
            let level = level.map_or_else(String::new, |level| format!(", tools at {level}"));
            let name = format!("counts of {}{level}", workload.name);
            if deadline.has_expired() {
                results.add(&name, Verdict::NotChecked, "there was no time left");
                continue;
            }
            let command = &mut self.command(workload.name, mib, COUNTED_ROUNDS);
            let counts = WorkloadCounts {
                workload: workload.name.to_owned(),
                bytes: mib << 20,
                iterations: COUNTED_ROUNDS,
                ..WorkloadCounts::default()
            };
            let counts = counting::count(command, daemons, with_tools, deadline, counts);
            if !counts.has_passed() {
                results.add(&name, Verdict::Differs, failures(&counts));
            } else if sides.is_empty() {
                results.add(&name, Verdict::NotChecked, "data right; no counters available");
            } else {
                results.add(&name, Verdict::Right, format!("data right; as predicted by {}", sides.join("; ")));
            }
            results.counts.push(counts);
        }
    }

    /// Reads the records of two workloads: one of GPU faults and copies, and one of CPU faults.
    fn recording(&self, results: &mut Results, mib: u64) {
        progress("reading records");
        for (workload, mib) in [("cpu-write-gpu-read", mib), (timing::DUPLICATED, duplicated_mib(mib))] {
            for queue in Queue::ALL {
                let deadline = self.deadline.step(WORKLOAD_TIMEOUT);
                match recording::record(&mut self.command(workload, mib, 1), queue, deadline) {
                    Ok(rates) => {
                        results.records.push(Recorded {
                            workload: workload.to_owned(),
                            bytes: mib << 20,
                            queue,
                            rates,
                        });
                    }
                    Err(_) if deadline.has_expired() => {
                        results.add("records", Verdict::NotChecked, "there was no time left");
                        return;
                    }
                    Err(error) => {
                        results.add("records", Verdict::Differs, format!("{workload}: {error:#}"));
                        return;
                    }
                }
            }
        }
    }

    fn timing(&self, results: &mut Results, uvmd: Option<&Launch>, counted: &[Source], with_tools: bool, mib: u64) {
        progress("timing");
        let has_tools = counted.iter().any(|source| source.level().is_some());
        let is_timed = |source: &Source| counted.contains(source) || (has_tools && source.level().is_some());
        let mut conditions = vec![Condition::Bare, Condition::Prefetched];
        conditions.extend(with_tools.then_some(Condition::Counters));
        conditions.extend(Source::TIMED.into_iter().filter(is_timed).map(Condition::Uvmd));
        results.timed_bytes = mib << 20;
        let mib_of = |workload: &str| if workload == timing::DUPLICATED { duplicated_mib(mib) } else { mib };
        let command = |workload: &str| self.command(workload, mib_of(workload), 1);
        match timing::measure(&conditions, self.rounds, &command, uvmd, self.deadline.step(timing::TIMEOUT)) {
            Ok(times) => results.times = times,
            Err(error @ Unmeasured::NoTime(..)) => results.add("times", Verdict::NotChecked, error.to_string()),
            Err(error @ Unmeasured::Failed(_)) => results.add("times", Verdict::Differs, error.to_string()),
        }
    }
}

/// Memory with a CPU fault for each page, so that a round takes no longer than others.
pub(crate) const fn duplicated_mib(mib: u64) -> u64 {
    mib / 4
}

/// How a source counts here.
fn attachment(source: Source, status: Status) -> String {
    if source.level().is_some() {
        return "attached to each process that is found".to_owned();
    }
    let probes: Vec<&str> = status.probes.iter().map(|probe| probe.name.as_str()).collect();
    let attachment = status.attachment.unwrap_or_default();
    let layout = status.layout.unwrap_or_default();
    format!("by {attachment}, layout {layout}; attached: {}", probes.join(", "))
}

/// Name of the check of uvmd's exit.
fn exit_of(source: Source) -> String {
    format!("exit of {}", source.name())
}

/// Largest power of two below the guard's limit.
fn allowed_mib(gpu: &Gpu) -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let host_bytes = guard::host_available_bytes(&meminfo);
    let mib = FreeMemory { gpu_bytes: gpu.free_bytes, host_bytes }.allowed_bytes() >> 20;
    // Half of the limit leaves room for memory that others allocate between two runs.
    mib.checked_ilog2().map_or(0, |bits| (1 << bits) / 2)
}

fn failures(counts: &WorkloadCounts) -> String {
    let differences = counts
        .phases
        .iter()
        .flat_map(|phase| phase.differences.iter().map(move |difference| format!("{}: {difference}", phase.phase)));
    counts.failure.iter().cloned().chain(differences).collect::<Vec<_>>().join("; ")
}

/// Checks uvmd after all workloads, and stops it.
fn check_and_stop(results: &mut Results, daemon: Daemon) {
    let source = daemon.source();
    let name = format!("dropped events of {}", source.name());
    match daemon.status() {
        Ok(status) => {
            let Status { dropped_events, block_records_sampled_out, block_records_dropped, .. } = status;
            let verdict = if dropped_events == 0 { Verdict::Right } else { Verdict::Differs };
            let lost = block_records_sampled_out + block_records_dropped;
            let detail = format!("{dropped_events} events were dropped; {lost} records found no room");
            results.add(&name, verdict, detail);
        }
        Err(error) => results.add(&name, Verdict::Differs, format!("{error:#}")),
    }
    if let Err(error) = daemon.stop() {
        results.add(&exit_of(source), Verdict::Differs, format!("{error:#}"));
    }
}

/// Folder of the programs: the one of this program, unless another is given.
pub(crate) fn folder_of_programs(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    Ok(given.or(own.parent()).unwrap_or(Path::new(".")).to_owned())
}

/// Program of this name in a folder.
pub(crate) fn program_in(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = folder.join(name);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu;

    #[test]
    fn half_of_the_guards_limit_is_used_at_most() {
        let small = Gpu { free_bytes: 8 * (100 << 20), ..gpu() };
        assert_eq!(allowed_mib(&small), 32);
        assert!(allowed_mib(&gpu()) <= 4096);
        assert_eq!(allowed_mib(&Gpu { free_bytes: 0, ..gpu() }), 0);
    }
}
