//! `lab-runner compare` ([`command`]): the same scenario under the driver alone and under policies
//! of uvmd, and the check of the policies' targets (docs/lab.md).
//!
//! * [`plan`]: the runs; [`policy`]: options of uvmd in each run
//! * [`measured`]: figures of a run, from sources other than uvmd; [`decided`]: decisions that uvmd
//!   reports
//! * [`model`]: modelled time of a run on a machine
//! * [`rows`]: medians over the seeds; [`judge`]: checks of the targets; [`table`]: output for
//!   readers

mod check;
pub(crate) mod command;
pub(crate) mod decided;
mod judge;
mod measured;
mod model;
mod plan;
pub(crate) mod policy;
mod rows;
mod table;

use std::{
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use self::{
    decided::Decision,
    measured::{Machine, Measured, Record},
    plan::{Plan, Run},
};
use crate::{
    protocol::Command,
    scenario::{
        Variation,
        parse::parse_varied,
        size::{MIB, human},
    },
    service::{self, Service},
    team::Team,
    truth::{
        Observer,
        free::{all_is_free, gpus},
        kmsg::Log,
    },
    uvmd::Client,
};

/// Time limit of a run.
const RUN: Duration = Duration::from_mins(4);

/// Execute the runs of a plan after the first `skip`, and write a line for each as soon as it ends,
/// so that the line survives a later crash of the guest.
fn run(plan: &Plan, skip: usize, mut out: impl Write) -> anyhow::Result<()> {
    let gpus = gpus()?;
    let first = gpus.first().context("no GPU")?;
    let machine = Machine {
        arch: first.arch.clone(),
        driver: crate::run::line_of("/sys/module/nvidia_uvm/version")?,
        kernel: crate::run::line_of("/proc/sys/kernel/osrelease")?,
        gpu_mem_mib: first.memory_bytes / MIB,
    };
    let mut log = Log::whole()?;
    for (at, run) in plan.runs.iter().enumerate().skip(skip) {
        let begin = Instant::now();
        let result = measure(plan, run);
        let mut record = Record::new(&plan.scenario.name, run, &machine, begin.elapsed(), result);
        record.problems.extend(all_is_free(&gpus).err().map(|error| format!("{error:#}")));
        record.problems.extend(log.complaints()?.into_iter().map(|line| format!("kernel: {line}")));
        eprintln!("{}", progress(at, plan, &record));
        serde_json::to_writer(&mut out, &record)?;
        out.write_all(b"\n").and_then(|()| out.flush()).context("cannot write the record of a run")?;
    }
    Ok(())
}

/// Execute a run with a separate uvmd: the scenario, its figures, and the verification of every
/// byte.
fn measure(plan: &Plan, run: &Run) -> anyhow::Result<(Measured, Vec<Decision>)> {
    let deadline = Instant::now() + RUN;
    let variation = Variation { seed: run.seed, access_rate_factor: run.rate };
    let scenario = parse_varied(&plan.scenario.name, &plan.scenario.text, variation)?;
    let uvmd = Service::start(&policy::options(&run.policy, &plan.uvmd)?)?;
    let client = Client::new(service::URL);
    let observer = Observer::start()?;
    if observer.gpus.len() < scenario.gpu_count as usize {
        bail!("the scenario needs {} GPUs, and the machine has {}", scenario.gpu_count, observer.gpus.len());
    }
    let mut team = Team::start(&scenario, true, deadline)?;
    team.go(deadline)?;
    let counted = observer.observe()?;
    team.order(&Command::Figures { residency: false }, deadline)?;
    let pass = crate::run::figures(&observer, &counted, team.members());
    let mut measured = Measured::new(team.members(), &counted, &pass, policy::acts(&run.policy));
    let decisions = if policy::acts(&run.policy) { decided::ask(&client)? } else { Vec::new() };
    // Before uvmd stops, so that its actions during the verification are checked too.
    team.finish(deadline)?;
    measured.verify(team.members(), pass.problems);
    drop(team);
    uvmd.stop()?;
    Ok((measured, decisions))
}

fn progress(at: usize, plan: &Plan, record: &Record) -> String {
    let Record { scenario, policy, rate, seed, seconds, measured, problems, .. } = record;
    let name = format!("{scenario} {policy} {rate}x, seed {seed}");
    let summary = measured.as_ref().map_or_else(
        || "FAILED".to_owned(),
        |measured| {
            let (htod, dtoh) = measured.link_bytes(1.0);
            format!("{:>6} replays, {:>9} in, {:>9} out", measured.replays, human(htod), human(dtoh))
        },
    );
    let line = format!("{:>4}/{} {name:<44} {seconds:>5.1} s {summary}", at + 1, plan.runs.len());
    [&line].into_iter().chain(problems).map(String::as_str).collect::<Vec<_>>().join("\n    ")
}
