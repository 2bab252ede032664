//! Figures of a run, from the driver's counters and the software GPU, not from uvmd.

use std::time::Duration;

use gpu::swgpu::AccessCounters;
use serde::{Deserialize, Serialize};

use super::{decided::Decision, plan::Run};
use crate::{
    figures::{EVICTED_BYTES, FAULT_ENTRIES},
    member::Member,
    report::Pass,
    sys::ledger::Taker,
    truth::Counted,
};

const PAGE_BYTES: u64 = 4096;

/// Machine of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) arch: String,
    pub(super) driver: String,
    pub(super) kernel: String,
    pub(super) gpu_mem_mib: u64,
}

/// Record of a run, which the guest writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) scenario: String,
    pub(super) policy: String,
    pub(super) seed: u64,
    pub(super) rate: f64,
    pub(super) machine: Option<Machine>,
    /// Duration by the guest's clock, which is not comparable with other machines.
    pub(super) seconds: f64,
    /// Figures; `None` if the run failed.
    pub(super) measured: Option<Measured>,
    pub(super) decisions: Vec<Decision>,
    /// Reasons why the run is invalid; empty if valid.
    pub(super) problems: Vec<String>,
}

/// Figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) tenants: Vec<Tenant>,
    /// Replays of all GPUs, by the driver.
    pub(super) replays: u64,
    /// Bytes that left GPUs without a fault.
    pub(super) evicted: Bytes,
    pub(super) kernels: u64,
    /// Whether every byte of every process that was not killed was right at the end.
    pub(super) verified: bool,
    pub(super) problems: Vec<String>,
}

/// Figures of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) fault_entries: u64,
    pub(super) copied_htod_bytes: u64,
    pub(super) copied_dtoh_bytes: u64,
    pub(super) remote_htod_bytes: u64,
    pub(super) remote_dtoh_bytes: u64,
    pub(super) evicted: Bytes,
    /// Bytes of its memory evicted from frames that another process reused.
    pub(super) lost_to_others_bytes: u64,
}

/// Evicted bytes. If uvmd migrates memory, only uvmd distinguishes its migrations from evictions;
/// the figure is then an upper bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bytes {
    pub(super) bytes: u64,
    pub(super) at_most: bool,
}

impl Record {
    pub(super) fn new(
        scenario: &str,
        run: &Run,
        machine: &Machine,
        duration: Duration,
        result: anyhow::Result<(Measured, Vec<Decision>)>,
    ) -> Self {
        let Run { policy, seed, rate, .. } = run;
        let (measured, decisions, problems) = match result {
            Ok((measured, decisions)) => {
                let problems = measured.problems.clone();
                (Some(measured), decisions, problems)
            }
            Err(error) => (None, Vec::new(), vec![format!("{error:#}")]),
        };
        Self {
            scenario: scenario.to_owned(),
            policy: policy.clone(),
            seed: *seed,
            rate: *rate,
            machine: Some(machine.clone()),
            seconds: duration.as_secs_f64(),
            measured,
            decisions,
            problems,
        }
    }

    /// Record of a run whose guest crashed.
    pub(super) fn of_crash(scenario: &str, run: &Run) -> Self {
        let Run { policy, seed, rate, .. } = run;
        Self {
            scenario: scenario.to_owned(),
            policy: policy.clone(),
            seed: *seed,
            rate: *rate,
            machine: None,
            seconds: 0.0,
            measured: None,
            decisions: Vec::new(),
            problems: vec!["the guest crashed".to_owned()],
        }
    }
}

impl Measured {
    /// Figures after all steps have ended. `acted`: uvmd may have migrated memory.
    pub(super) fn new(members: &[Member], counted: &[Counted], pass: &Pass, acted: bool) -> Self {
        let driver = |figure: fn(&Counted) -> u64| counted.iter().map(figure).sum::<u64>();
        let left_bytes = driver(|gpu| gpu.driver.pages_out.saturating_sub(gpu.driver.fault_pages_out)) * PAGE_BYTES;
        let known = pass.total.truth.figures.get(&EVICTED_BYTES).filter(|_| !acted);
        let evicted = Bytes { bytes: known.unwrap_or(left_bytes), at_most: known.is_none() };
        let tenant = |(member, report): (&Member, &crate::report::ProcessReport)| {
            let counters = member.counters().unwrap_or_default();
            let (remote_htod_bytes, remote_dtoh_bytes) = remote(&member.findings.accesses);
            let alone = members.len() == 1;
            let known = report.truth.figures.get(&EVICTED_BYTES).filter(|_| !acted);
            let pid = member.id.map_or(0, |id| id.pid);
            Tenant {
                name: member.name.clone(),
                fault_entries: report.truth.figures.get(&FAULT_ENTRIES).unwrap_or(0),
                copied_htod_bytes: counters.bytes_htod,
                copied_dtoh_bytes: counters.bytes_dtoh,
                remote_htod_bytes,
                remote_dtoh_bytes,
                evicted: match known {
                    _ if alone => evicted,
                    Some(bytes) => Bytes { bytes, at_most: false },
                    None => Bytes { bytes: counters.bytes_dtoh.min(left_bytes), at_most: true },
                },
                lost_to_others_bytes: lost_to_others(counted, pid),
            }
        };
        Self {
            tenants: members.iter().zip(&pass.processes).map(tenant).collect(),
            replays: driver(|gpu| gpu.driver.replays),
            evicted,
            kernels: members.iter().map(Member::kernels).sum(),
            verified: false,
            problems: Vec::new(),
        }
    }

    /// Record the verification, after every process has read back its memory.
    pub(super) fn verify(&mut self, members: &[Member], problems: Vec<String>) {
        self.problems = problems;
        let mut verified = true;
        for member in members {
            let wrong = member.checked().mismatches;
            verified &= member.end.is_some() && wrong == 0;
            self.problems.extend(member.failure.as_ref().map(|failure| format!("{}: {failure}", member.name)));
            if wrong > 0 {
                self.problems.push(format!("{}: {wrong} words are wrong", member.name));
            }
        }
        self.verified = verified;
    }

    /// Link bytes to GPUs and from GPUs, copied and remotely accessed, with all access rates
    /// multiplied by `factor`.
    pub(super) fn link_bytes(&self, factor: f64) -> (u64, u64) {
        let each = self.tenants.iter().map(|tenant| tenant.link_bytes(factor));
        each.fold((0, 0), |sum, link| (sum.0 + link.0, sum.1 + link.1))
    }
}

impl Tenant {
    /// Link bytes of this process to GPUs and from GPUs, with all access rates multiplied by
    /// `factor`.
    pub(super) fn link_bytes(&self, factor: f64) -> (u64, u64) {
        let scaled = |bytes: u64| scale(bytes, factor);
        (
            self.copied_htod_bytes + scaled(self.remote_htod_bytes),
            self.copied_dtoh_bytes + scaled(self.remote_dtoh_bytes),
        )
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes of a run, and a factor that is not negative"
)]
fn scale(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor).round() as u64
}

fn remote(accesses: &[AccessCounters]) -> (u64, u64) {
    let sum = |figure: fn(&AccessCounters) -> u64| accesses.iter().map(figure).sum::<u64>().div_ceil(1000);
    (sum(|access| access.remote_htod_millibytes), sum(|access| access.remote_dtoh_millibytes))
}

fn lost_to_others(counted: &[Counted], pid: u32) -> u64 {
    let is_other = |taker: &Taker| matches!(taker, Taker::Managed { pid: other } | Taker::Unmanaged { pid: other } if *other != pid);
    let rows = counted.iter().flat_map(|gpu| &gpu.ledger);
    rows.filter(|((victim, taker), _)| *victim == pid && is_other(taker)).map(|(_, taken)| taken.copied_out_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_change_remote_bytes_only() {
        let tenant = |copied, remote| Tenant {
            copied_htod_bytes: copied,
            copied_dtoh_bytes: copied * 2,
            remote_htod_bytes: remote,
            ..Tenant::default()
        };
        let run = Measured { tenants: vec![tenant(100, 10), tenant(1, 0)], ..Measured::default() };
        assert_eq!(run.link_bytes(1.0), (111, 202));
        assert_eq!(run.link_bytes(0.1), (102, 202));
        assert_eq!(run.link_bytes(10.0), (201, 202));
    }
}
