//! The checks, one after the other. None waits for another to succeed: what this machine does not allow is said, and the rest is done.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use sys::Roots;
use workloads::{
    catalog::WORKLOADS,
    exit,
    guard::{self, Free},
    report::Gpu,
};

use crate::{
    counting::{self, WorkloadCounts},
    daemon::{Daemon, Launch},
    deadline::{Deadline, Ended, run},
    facts, held,
    moving::Mover,
    outside,
    results::{Results, Verdict},
    timing::{self, Condition, Unmeasured},
};

/// How long one workload may take, its process's start included.
const WORKLOAD_TIME: Duration = Duration::from_secs(40);
const COUNTED_MIB: u64 = 64;
const COUNTED_ROUNDS: u32 = 2;
/// A workload takes twice its size from the deadline's point of view; below this nothing can be seen in the times.
const LEAST_MIB: u64 = 16;

/// What to check with.
pub(crate) struct Plan {
    pub(crate) workload: PathBuf,
    pub(crate) uvmd: Option<PathBuf>,
    pub(crate) uvmctl: Option<PathBuf>,
    pub(crate) out: PathBuf,
    pub(crate) gpu: i32,
    pub(crate) timed_mib: u64,
    pub(crate) deadline: Deadline,
}

/// Tells people that it goes on.
fn say(step: &str) {
    eprintln!("==> {step}");
}

impl Plan {
    /// All of it.
    pub(crate) fn carry_out(&self, results: &mut Results) {
        let begun = Instant::now();
        self.check(results);
        results.elapsed_s = begun.elapsed().as_secs_f64();
    }

    fn check(&self, results: &mut Results) {
        say("gathering facts");
        let roots = Roots::default();
        let gpu = self.gpu(results);
        // After the GPU was opened, which loads the driver where it was not.
        results.facts = facts::gather(&roots, self.uvmctl.as_deref(), self.deadline.step(Duration::from_mins(1)));
        results.driver = sys::driver::module(&roots).and_then(|module| module.version);
        let Some(gpu) = gpu else { return };
        let allowed_mib = allowed_mib(&gpu);
        results.gpu = Some(gpu);
        if allowed_mib < LEAST_MIB {
            let detail = format!("the guard allows {allowed_mib} MiB here, and {LEAST_MIB} are needed");
            results.add("memory", Verdict::NotChecked, detail);
            return;
        }
        let with_tools = self.moving(results, COUNTED_MIB.min(allowed_mib));
        let launch = self.uvmd.as_ref().map(|uvmd| Launch { binary: uvmd.clone(), log: self.out.join("uvmd.log") });
        let daemon = self.daemon(results, launch.as_ref());
        let is_probed = daemon.is_some();
        self.counting(results, daemon.as_ref(), with_tools, COUNTED_MIB.min(allowed_mib));
        if let Some(daemon) = daemon {
            end(results, daemon);
        }
        self.timing(results, launch.filter(|_| is_probed).as_ref(), with_tools, self.timed_mib.min(allowed_mib));
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
            Ok(Ended { status: Some(status), stdout, stderr: _ }) if status.success() => {
                match serde_json::from_str(&stdout) {
                    Ok(gpu) => return Some(gpu),
                    Err(error) => (Verdict::Differs, format!("uvm-workload --facts said {stdout:?}: {error}")),
                }
            }
            Ok(Ended { status: Some(status), stdout: _, stderr }) => {
                let is_none = status.code() == Some(i32::from(exit::NO_GPU));
                (if is_none { Verdict::NotChecked } else { Verdict::Differs }, stderr.trim().to_owned())
            }
            Ok(Ended { status: None, .. }) => (Verdict::Differs, "uvm-workload --facts did not end in time".to_owned()),
            Err(error) => (Verdict::Differs, format!("cannot start {}: {error}", self.workload.display())),
        };
        results.add("GPU", verdict, reason);
        None
    }

    /// Moves another process's memory. Says whether the driver's counters can be attached.
    fn moving(&self, results: &mut Results, mib: u64) -> bool {
        say("moving another process's memory");
        let mut mover = Mover::new();
        let deadline = self.deadline.step(WORKLOAD_TIME);
        let result = held::run(&mut self.command("cpu-write-gpu-read", mib, 1), deadline, &mut mover);
        let result = result.and_then(|_report| mover.finish());
        let name = "moving another process's memory (pidfd_getfd, UVM_MIGRATE)";
        match result {
            Ok(()) => results.add(name, Verdict::Right, mover.right.join("; ")),
            Err(error) if outside::is_out_of_reach(&error) => {
                results.add(name, Verdict::NotChecked, format!("{error:#}"));
            }
            Err(error) => {
                let right = if mover.right.is_empty() { "nothing".to_owned() } else { mover.right.join("; ") };
                results.add(name, Verdict::Differs, format!("{error:#} (right until then: {right})"));
                return false;
            }
        }
        let name = "the driver's counters (UVM_TOOLS_INIT_EVENT_TRACKER)";
        match &mover.no_counters {
            None if mover.right.is_empty() => results.add(name, Verdict::NotChecked, "no process could be reached"),
            None => {
                results.add(name, Verdict::Right, "attached to another process");
                return true;
            }
            Some(error) => {
                let verdict = if outside::is_out_of_reach(error) { Verdict::NotChecked } else { Verdict::Differs };
                results.add(name, verdict, format!("{error:#}"));
            }
        }
        false
    }

    /// uvmd, if it counts here.
    fn daemon(&self, results: &mut Results, launch: Option<&Launch>) -> Option<Daemon> {
        say("starting uvmd");
        let name = "uvmd's probes";
        let Some(launch) = launch else {
            results.add(name, Verdict::NotChecked, "there is no uvmd beside this program");
            return None;
        };
        match launch.start(self.deadline) {
            Ok((daemon, status)) if status.state == "counting" => {
                let probes: Vec<&str> = status.probes.iter().map(|probe| probe.name.as_str()).collect();
                let layout = status.layout.unwrap_or_default();
                results.add(name, Verdict::Right, format!("layout {layout}; attached: {}", probes.join(", ")));
                return Some(daemon);
            }
            Ok((daemon, status)) => {
                results.add(name, Verdict::NotChecked, format!("{}: {}", status.state, status.reasons.join("; ")));
                if let Err(error) = daemon.stop() {
                    results.add("uvmd's end", Verdict::Differs, format!("{error:#}"));
                }
            }
            // Not root, for one: its log says why.
            Err(error) => {
                let log = std::fs::read_to_string(&launch.log).unwrap_or_default();
                results.add(name, Verdict::NotChecked, format!("{error:#}: {}", log.trim()));
            }
        }
        None
    }

    fn counting(&self, results: &mut Results, daemon: Option<&Daemon>, with_tools: bool, mib: u64) {
        for workload in WORKLOADS {
            say(&format!("counting {}", workload.name));
            let deadline = self.deadline.step(WORKLOAD_TIME);
            let name = format!("counts of {}", workload.name);
            if deadline.is_over() {
                results.add(&name, Verdict::NotChecked, "there was no time left");
                continue;
            }
            let command = &mut self.command(workload.name, mib, COUNTED_ROUNDS);
            let (phases, result) = counting::count(command, daemon, with_tools, deadline);
            let counts = WorkloadCounts {
                workload: workload.name.to_owned(),
                bytes: mib << 20,
                iterations: COUNTED_ROUNDS,
                phases,
                failure: result.err().map(|error| format!("{error:#}")),
            };
            let sides = match (with_tools, daemon) {
                (true, Some(_)) => "the driver's counters and uvmd",
                (true, None) => "the driver's counters",
                (false, Some(_)) => "uvmd",
                (false, None) => "nobody",
            };
            if !counts.is_right() {
                results.add(&name, Verdict::Differs, told(&counts));
            } else if sides == "nobody" {
                results.add(&name, Verdict::NotChecked, "data right; nobody could count");
            } else {
                results.add(&name, Verdict::Right, format!("data right; as predicted by {sides}"));
            }
            results.counts.push(counts);
        }
    }

    fn timing(&self, results: &mut Results, uvmd: Option<&Launch>, with_tools: bool, mib: u64) {
        say("timing");
        let mut conditions = vec![Condition::Bare, Condition::Prefetched];
        conditions.extend(uvmd.map(|_| Condition::Uvmd));
        conditions.extend(with_tools.then_some(Condition::Tools));
        results.timed_bytes = mib << 20;
        let command = |workload: &str| self.command(workload, mib, 1);
        match timing::measure(&conditions, &command, uvmd, self.deadline.step(timing::TIME)) {
            Ok(times) => results.times = times,
            Err(error @ Unmeasured::NoTime(_)) => results.add("times", Verdict::NotChecked, error.to_string()),
            Err(error @ Unmeasured::Failed(_)) => results.add("times", Verdict::Differs, error.to_string()),
        }
    }
}

/// The largest power of two that the guard allows.
fn allowed_mib(gpu: &Gpu) -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let host_bytes = guard::host_available_bytes(&meminfo);
    let mib = Free { gpu_bytes: gpu.free_bytes, host_bytes }.allowed_bytes() >> 20;
    // Half of it, so that what others take between two runs does not matter.
    mib.checked_ilog2().map_or(0, |bits| (1 << bits) / 2)
}

fn told(counts: &WorkloadCounts) -> String {
    let differences = counts
        .phases
        .iter()
        .flat_map(|phase| phase.differences.iter().map(move |difference| format!("{}: {difference}", phase.phase)));
    counts.failure.iter().cloned().chain(differences).collect::<Vec<_>>().join("; ")
}

/// What must hold of uvmd after all that.
fn end(results: &mut Results, daemon: Daemon) {
    match daemon.status() {
        Ok(status) if status.dropped_events == 0 => {
            results.add("uvmd's losses", Verdict::Right, "no event was dropped");
        }
        Ok(status) => {
            results.add("uvmd's losses", Verdict::Differs, format!("{} events were dropped", status.dropped_events));
        }
        Err(error) => results.add("uvmd's losses", Verdict::Differs, format!("{error:#}")),
    }
    if let Err(error) = daemon.stop() {
        results.add("uvmd's end", Verdict::Differs, format!("{error:#}"));
    }
}

/// A program beside this one, or in a folder.
pub(crate) fn beside(folder: &Path, name: &str) -> Option<PathBuf> {
    let path = folder.join(name);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gpu;

    #[test]
    fn never_more_than_half_of_what_the_guard_allows() {
        let small = Gpu { free_bytes: 8 * (100 << 20), ..gpu() };
        assert_eq!(allowed_mib(&small), 32);
        assert!(allowed_mib(&gpu()) <= 4096);
        assert_eq!(allowed_mib(&Gpu { free_bytes: 0, ..gpu() }), 0);
    }
}
