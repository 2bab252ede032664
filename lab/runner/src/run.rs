//! `lab-runner run`: a scenario once, its truth, and what uvmd says about it.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context;

use crate::{
    figures::Figures,
    protocol::Command,
    report::{ProcessReport, Report, TotalReport, Uvmd, Verdict, inconsistencies, process_truth, total_truth},
    scenario::{Scenario, size::MIB},
    sys::counters::ProcessCounters,
    team::{Member, Team},
    truth::{Observer, kmsg},
    uvmd::{Answer, Client},
};

/// How long a uvmd that was just started may take until it counts.
const UVMD_START: Duration = Duration::from_secs(30);
/// How long a uvmd that answered before is given when it does not answer any more, or not with a newer snapshot.
const UVMD_SILENCE: Duration = Duration::from_secs(5);
const UVMD_POLL: Duration = Duration::from_millis(250);

/// Run a scenario. Fails only where there is nothing to report.
pub(crate) fn run(scenario: &Scenario, client: Option<&Client>, timeout: Duration) -> anyhow::Result<Report> {
    let deadline = Instant::now() + timeout;
    let observer = Observer::start()?;
    let before = client.map(wait_until_counting);
    let mut team = Team::start(scenario, deadline)?;
    team.order(&Command::Go, deadline)?;

    // Nothing runs from here on. The observer sees when the driver has come to rest; then all figures are taken.
    let seen = observer.observe()?;
    team.order(&Command::Figures, deadline)?;
    let quiet_since = SystemTime::now();
    let counters: Vec<Option<ProcessCounters>> = team.members().iter().map(|member| member.counters).collect();
    let mut report = Report {
        scenario: scenario.name.clone(),
        arch: observer.gpu.arch.clone(),
        driver: line_of("/sys/module/nvidia_uvm/version")?,
        kernel: line_of("/proc/sys/kernel/osrelease")?,
        gpu_mem_mib: observer.gpu.memory_bytes / MIB,
        verdict: Verdict::Fail,
        verified: false,
        processes: Vec::new(),
        total: TotalReport { truth: total_truth(&seen.driver, &counters), uvmd: Figures::default() },
        comparison: Vec::new(),
        hardware: seen.hardware,
        uvmd_absent: None,
        problems: inconsistencies(&seen, &counters),
    };
    // Without a check of memory yet: those come with the end.
    report.processes = team.members().iter().map(process_report).collect();
    let uvmd = match before {
        None => Uvmd::Unwanted,
        Some(Err(error)) => absent(&mut report, &error),
        Some(Ok(before)) => {
            let client = client.context("an answer of nobody")?;
            ask(client, &before, &mut report, team.members(), quiet_since)
                .unwrap_or_else(|error| absent(&mut report, &error))
        }
    };

    team.finish(deadline)?;
    for (process, member) in report.processes.iter_mut().zip(team.members()) {
        process.checked = member.checked.clone();
        process.verified = member.verified && member.checked.mismatches == 0;
        report.problems.extend(member.failure.as_ref().map(|failure| format!("{}: {failure}", member.name)));
        report.problems.extend(
            member
                .checked
                .first_mismatch
                .as_ref()
                .map(|first| format!("{}: {} words are wrong; first: {first}", member.name, member.checked.mismatches)),
        );
    }
    report.verified = report.processes.iter().all(|process| process.verified);
    drop(team);
    drop(observer);
    report.problems.extend(kmsg::complaints()?.into_iter().map(|line| format!("kernel: {line}")));
    report.judge(uvmd);
    Ok(report)
}

fn line_of(path: &str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(Path::new(path)).with_context(|| format!("cannot read {path}"))?.trim().to_owned())
}

fn process_report(member: &Member) -> ProcessReport {
    ProcessReport {
        name: member.name.clone(),
        pid: member.id.pid,
        truth: process_truth(member.counters),
        uvmd: Figures::default(),
        verified: false,
        checked: member.checked.clone(),
    }
}

/// uvmd attaches before the work begins, or its counts cannot be exact.
fn wait_until_counting(client: &Client) -> anyhow::Result<Answer> {
    let deadline = Instant::now() + UVMD_START;
    loop {
        match client.ask().and_then(|answer| answer.counting().map(|()| answer)) {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(UVMD_POLL),
            answer => return answer,
        }
    }
}

/// A figure that nobody gives stays null, and the report says why.
fn absent(report: &mut Report, error: &anyhow::Error) -> Uvmd {
    report.uvmd_absent = Some(format!("{error:#}"));
    for process in &mut report.processes {
        process.uvmd = Figures::default();
    }
    report.total.uvmd = Figures::default();
    Uvmd::Absent
}

/// Take uvmd's figures, once: the first answer that is newer than the end of the work must be right.
fn ask(
    client: &Client,
    before: &Answer,
    report: &mut Report,
    members: &[Member],
    quiet_since: SystemTime,
) -> anyhow::Result<Uvmd> {
    let deadline = Instant::now() + UVMD_SILENCE;
    loop {
        match client.ask() {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => {}
            // An answer from before the end of the work may be right by chance, and may yet become wrong.
            Ok(answer) if !answer.is_after(quiet_since)? => {
                anyhow::ensure!(Instant::now() < deadline, "uvmd's figures stay those of before the end of the work");
            }
            Ok(answer) => {
                report.total.uvmd = answer.total_since(before)?;
                for (process, member) in report.processes.iter_mut().zip(members) {
                    process.uvmd = answer.process(member.id).unwrap_or_default();
                }
                report.judge(Uvmd::Answered);
                return Ok(Uvmd::Answered);
            }
        }
        thread::sleep(UVMD_POLL);
    }
}
