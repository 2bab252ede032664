//! What a run came to: by the driver's own counters and the software GPU, not by uvmd.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{decided::Decided, plan::Run};
use crate::{
    figures::{EVICTED_BYTES, FAULT_ENTRIES},
    member::Member,
    report::Pass,
    sys::{ledger::Taker, swgpu::AccessCounters},
    truth::Counted,
};

const PAGE_BYTES: u64 = 4096;

/// What it ran on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Machine {
    pub(super) arch: String,
    pub(super) driver: String,
    pub(super) kernel: String,
    pub(super) gpu_mem_mib: u64,
}

/// A run, as the guest tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) scenario: String,
    pub(super) policy: String,
    pub(super) seed: u64,
    pub(super) rate: f64,
    pub(super) machine: Option<Machine>,
    /// Of the guest's time, which says nothing of any other machine.
    pub(super) seconds: f64,
    /// Nothing, if it could not be done.
    pub(super) measured: Option<Measured>,
    pub(super) decisions: Vec<Decided>,
    /// Why it does not count, if it does not.
    pub(super) problems: Vec<String>,
}

/// Its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) tenants: Vec<Tenant>,
    /// By the driver, of all GPUs.
    pub(super) replays: u64,
    /// What left GPUs and no fault took.
    pub(super) evicted: Bytes,
    pub(super) kernels: u64,
    /// Every byte of every process that lived to the end.
    pub(super) verified: bool,
    pub(super) problems: Vec<String>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tenant {
    pub(super) name: String,
    pub(super) fault_entries: u64,
    pub(super) copied_htod_bytes: u64,
    pub(super) copied_dtoh_bytes: u64,
    pub(super) remote_htod_bytes: u64,
    pub(super) remote_dtoh_bytes: u64,
    pub(super) evicted: Bytes,
    /// Of its memory, what left frames that another process took then.
    pub(super) lost_to_others_bytes: u64,
}

/// A number of bytes. When uvmd moves memory, nobody but uvmd tells that from evictions: then it is the most that can have been evicted.
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
        took: Duration,
        result: anyhow::Result<(Measured, Vec<Decided>)>,
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
            seconds: took.as_secs_f64(),
            measured,
            decisions,
            problems,
        }
    }

    /// Of a run in which the guest died.
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
            problems: vec!["the guest died".to_owned()],
        }
    }
}

impl Measured {
    /// Once nothing runs any more. `acted`: uvmd may have moved memory.
    pub(super) fn new(members: &[Member], seen: &[Counted], pass: &Pass, acted: bool) -> Self {
        let driver = |figure: fn(&Counted) -> u64| seen.iter().map(figure).sum::<u64>();
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
                lost_to_others_bytes: lost_to_others(seen, pid),
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

    /// Once every process has read back all it has.
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

    /// To GPUs and from them, copied and remotely accessed, with all access rates this many times what they were.
    pub(super) fn link_bytes(&self, factor: f64) -> (u64, u64) {
        let each = self.tenants.iter().map(|tenant| tenant.link_bytes(factor));
        each.fold((0, 0), |sum, link| (sum.0 + link.0, sum.1 + link.1))
    }
}

impl Tenant {
    /// The same of this process.
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

fn lost_to_others(seen: &[Counted], pid: u32) -> u64 {
    let is_other =
        |taker: &Taker| matches!(taker, Taker::Managed { pid: it } | Taker::Unmanaged { pid: it } if *it != pid);
    let rows = seen.iter().flat_map(|gpu| &gpu.ledger);
    rows.filter(|((victim, taker), _)| *victim == pid && is_other(taker)).map(|(_, taken)| taken.copied_out_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_change_what_is_accessed_remotely_and_nothing_else() {
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
