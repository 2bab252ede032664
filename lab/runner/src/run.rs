//! `lab-runner run`: runs a scenario with the driver's counters and without, and compares its truth
//! with uvmd's figures.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, bail};
use gpu::swgpu::Gpu;

use crate::{
    access_log::Recorder,
    both::Second,
    figures::{Figures, Scope, THRASHING_PAGES, THROTTLES, UNCOUNTED},
    matrix::{self, Party},
    member::{End, Member, State},
    protocol::Command,
    report::{FrameReport, GpuReport, Pass, ProcessReport, Report, TotalReport, Uvmd, Verdict},
    residency,
    scenario::{Scenario, size::MIB},
    sys::ledger::{Ledger, Taken, Taker},
    team::Team,
    truth::{
        Counted, Observer,
        derive::{eviction_matrix, gpu_truth, inconsistencies, process_truth, total_truth},
        facts::ProcessFacts,
        kmsg,
        procfs::{self, Thrashing},
    },
    uvmd::{Answer, Client},
};

/// Options of a run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Time limit of a pass.
    pub(crate) timeout: Duration,
    /// Whether to run the scenario once more without the driver's counters.
    pub(crate) without_counters: bool,
    /// Whether to compare processes only, and no sums over all processes at work.
    pub(crate) among_others: bool,
    /// A second uvmd, which counts by the driver's tools.
    pub(crate) second: Option<Client>,
    /// File for the access log of the first pass.
    pub(crate) access_log: Option<PathBuf>,
}

/// Runs a scenario. Fails only if there is nothing to report.
pub(crate) fn run(scenario: &Scenario, client: Option<&Client>, options: &Options) -> anyhow::Result<Report> {
    let (observer, verdict, pass) = pass(scenario, client, true, options)?;
    let first = observer.gpus.first().context("no GPU")?;
    let mut report = Report {
        scenario: scenario.name.clone(),
        arch: first.arch.clone(),
        driver: line_of("/sys/module/nvidia_uvm/version")?,
        kernel: line_of("/proc/sys/kernel/osrelease")?,
        gpu_mem_mib: first.memory_bytes / MIB,
        verdict,
        pass,
        without_counters: None,
    };
    drop(observer);
    // A failed run is not repeated: the second pass would observe remains of the first.
    if options.without_counters && verdict != Verdict::Fail {
        let options = Options { access_log: None, ..options.clone() };
        let (_, verdict, pass) = self::pass(scenario, client, false, &options)?;
        report.verdict = report.verdict.max(verdict);
        report.without_counters = Some(pass);
    }
    Ok(report)
}

pub(crate) fn line_of(path: &str) -> anyhow::Result<String> {
    Ok(fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?.trim().to_owned())
}

/// Runs a scenario once, with the driver's counters or without.
fn pass(
    scenario: &Scenario,
    client: Option<&Client>,
    counters: bool,
    options: &Options,
) -> anyhow::Result<(Observer, Verdict, Pass)> {
    let deadline = Instant::now() + options.timeout;
    let observer = Observer::start()?;
    if observer.gpus.len() < scenario.gpu_count as usize {
        bail!("the scenario needs {} GPUs, and there is {}", scenario.gpu_count, observer.gpus.len());
    }
    let before = client.map(Client::ask_when_counting);
    let second = options.second.as_ref().map(|second| Ok::<_, anyhow::Error>((second, second.ask_when_counting()?)));
    let second = second.transpose().context("the second uvmd")?;
    let recorder = options
        .access_log
        .as_deref()
        .map(|path| Ok::<_, anyhow::Error>((Recorder::start(&observer.gpus)?, path)))
        .transpose()?;
    let is_of_tools = matches!(&before, Some(Ok(before)) if before.is_of_tools());
    let finder = client.filter(|_| is_of_tools).or(options.second.as_ref()).cloned();
    let mut team = Team::start_found(scenario, counters, finder, deadline)?;
    team.go(deadline)?;

    // Nothing runs from here on. The observer waits until the driver is idle; then all figures are
    // taken.
    let seen = observer.observe()?;
    team.order(&Command::Figures { residency: true }, deadline)?;
    let quiet_since = SystemTime::now();
    let mut pass = figures(&observer, &seen, team.members());
    if let Some((recorder, path)) = recorder {
        pass.access_log = Some(recorder.write(path, |pid| name_of(pid, team.members()))?);
    }
    let thrashing: Vec<Thrashing> = seen.iter().map(|gpu| gpu.thrashing).chain([observer.cpu_thrashing()?]).collect();
    let total = &mut pass.total.truth.figures;
    total.set(&THRASHING_PAGES, thrashing.iter().map(|each| each.pages).sum::<u64>());
    if !counters {
        total.set(&THROTTLES, thrashing.iter().map(|each| each.throttles).sum::<u64>());
    }
    let uvmd = match (client, before) {
        (None, _) | (_, None) => Uvmd::Unwanted,
        (_, Some(Err(error))) => pass.without_uvmd(&error),
        (Some(client), Some(Ok(before))) => match ask_after(client, quiet_since, is_of_tools) {
            Ok(answer) => fill(&mut pass, &answer, &before, team.members())
                .map(|()| compare(&mut pass, &seen, &answer, &before, team.members()))
                .map_or_else(|error| pass.without_uvmd(&error), |()| Uvmd::Answered),
            Err(error) => pass.without_uvmd(&error),
        },
    };

    if options.among_others {
        pass.leave_out_sums();
    }
    if let Some((client, before)) = second {
        let compared = ask_after(client, quiet_since, true)
            .and_then(|answer| compare_second(&pass, [&answer, &before], team.members(), counters));
        match compared {
            Ok(second) => pass.second = Some(second),
            Err(error) => pass.problems.push(format!("the second uvmd: {error:#}")),
        }
    }

    team.finish(deadline)?;
    for (process, member) in pass.processes.iter_mut().zip(team.members()) {
        (process.end, process.checked) = (member.end, member.checked());
        // A killed process verified its reads up to its end; its memory cannot be read any more.
        process.verified = member.end.is_some() && process.checked.mismatches == 0;
        pass.problems.extend(member.failure.as_ref().map(|failure| format!("{}: {failure}", member.name)));
        if process.checked.mismatches > 0 {
            let first = process.checked.first_mismatch.as_ref().map(ToString::to_string).unwrap_or_default();
            pass.problems
                .push(format!("{}: {} words are wrong; first: {first}", member.name, process.checked.mismatches));
        }
    }
    pass.verified = pass.processes.iter().all(|process| process.verified);
    drop(team);
    pass.problems.extend(kmsg::Log::whole()?.complaints()?.into_iter().map(|line| format!("kernel: {line}")));
    let verdict = pass.judge(uvmd, counters);
    Ok((observer, verdict, pass))
}

/// First state after a moment with all figures. Of the driver's tools, each reading completes the
/// events of the one before.
fn ask_after(client: &Client, moment: SystemTime, is_of_tools: bool) -> anyhow::Result<Answer> {
    let answer = client.ask_after(moment)?;
    if is_of_tools { client.ask_after(SystemTime::now()) } else { Ok(answer) }
}

/// Truth of a pass, without a verification of memory, which the end of the processes brings.
pub(crate) fn figures(observer: &Observer, seen: &[Counted], members: &[Member]) -> Pass {
    let facts: Vec<ProcessFacts> = members.iter().map(facts).collect();
    let process = |(member, own_facts): (&Member, &ProcessFacts)| ProcessReport {
        name: member.name.clone(),
        pid: member.id.map(|id| id.pid),
        end: member.end,
        truth: process_truth(seen, &facts, own_facts),
        uvmd: Figures::default(),
        verified: false,
        checked: member.checked(),
        residency: member.residency.clone(),
    };
    let gpu = |(number, (gpu, counted)): (usize, (&Gpu, &Counted))| GpuReport {
        gpu: number,
        uuid: procfs::text(&gpu.uuid),
        truth: gpu_truth(seen, number, &facts),
        uvmd: Figures::default(),
        hardware: counted.hardware,
        frames: frames(&counted.ledger, members),
    };
    let gpus = observer.gpus.iter().zip(seen).enumerate().map(gpu).collect();
    Pass {
        verified: false,
        processes: members.iter().zip(&facts).map(process).collect(),
        gpus,
        total: TotalReport { truth: total_truth(seen, &facts), uvmd: Figures::default() },
        comparison: Vec::new(),
        residency: Vec::new(),
        evictions: Vec::new(),
        evictions_not_known: None,
        second: None,
        uvmd_absent: None,
        access_log: None,
        sums_left_out: false,
        problems: inconsistencies(seen, &facts),
    }
}

/// Name of a process in the scenario.
fn name_of(pid: u32, members: &[Member]) -> String {
    let member = members.iter().find(|member| member.id.is_some_and(|id| id.pid == pid));
    member.map_or_else(|| format!("process {pid}"), |member| member.name.clone())
}

/// Ledger of frames with the processes' names.
fn frames(ledger: &Ledger, members: &[Member]) -> Vec<FrameReport> {
    let report = |((victim, taker), taken): (&(u32, Taker), &Taken)| FrameReport {
        victim: name_of(*victim, members),
        taker: match taker {
            Taker::Managed { pid } | Taker::Unmanaged { pid } => name_of(*pid, members),
            Taker::Driver => "driver".to_owned(),
        },
        unmanaged: matches!(taker, Taker::Unmanaged { .. }),
        frames: taken.frames,
        copied_out_bytes: taken.copied_out_bytes,
    };
    ledger.iter().map(report).collect()
}

fn facts(member: &Member) -> ProcessFacts {
    let killed = member.end.is_some_and(End::is_killed);
    ProcessFacts {
        pid: member.id.map(|id| id.pid),
        ended: member.end.is_some() || member.state == State::Ended,
        residency: member.residency.clone(),
        counters: member.counters(),
        accesses: (!killed).then(|| member.findings.accesses.clone()),
        calls: (member.end != Some(End::Killed)).then(|| member.calls()),
    }
}

/// Adds uvmd's figures to the truth.
fn fill(pass: &mut Pass, answer: &Answer, before: &Answer, members: &[Member]) -> anyhow::Result<()> {
    pass.total.uvmd = answer.total_since(before)?;
    for gpu in &mut pass.gpus {
        gpu.uvmd = answer.gpu_since(before, &gpu.uuid)?;
    }
    for (process, member) in pass.processes.iter_mut().zip(members) {
        process.uvmd = member.id.and_then(|id| answer.process(id)).unwrap_or_default();
    }
    if answer.is_of_tools() {
        let processes = pass.processes.iter_mut().map(|process| (&mut process.truth, &process.uvmd));
        let gpus = pass.gpus.iter_mut().map(|gpu| (&mut gpu.truth, &gpu.uvmd));
        let total = (&mut pass.total.truth, &pass.total.uvmd);
        for (truth, uvmd) in processes.chain(gpus).chain([total]) {
            truth.waive_uncounted(uvmd);
        }
    }
    Ok(())
}

/// Compares uvmd's residency and evictions by process with the truth.
fn compare(pass: &mut Pass, seen: &[Counted], answer: &Answer, before: &Answer, members: &[Member]) {
    if answer.is_of_tools() {
        pass.evictions_not_known = Some(UNCOUNTED);
        return;
    }
    for member in members {
        let (Some(id), Some(residency)) = (member.id, &member.residency) else { continue };
        pass.residency.extend(pass.gpus.iter().map(|gpu| {
            let truth_bytes = residency::bytes_at(residency, gpu.gpu);
            residency::Compared::new(&member.name, gpu.gpu, truth_bytes, answer.resident(id, &gpu.uuid))
        }));
    }
    let facts: Vec<ProcessFacts> = members.iter().map(facts).collect();
    let name = |party: &Party| {
        let is = |member: &&Member| {
            member.id.zip(party.pid.zip(party.start_ticks)).is_some_and(|(id, other)| id.is(other.0, other.1))
        };
        members.iter().find(is).map(|member| member.name.clone())
    };
    for (gpu, counted) in pass.gpus.iter().zip(seen) {
        match eviction_matrix(counted, &facts) {
            Ok(ledger) => {
                let reported = matrix::told(&answer.evictions, &before.evictions, &gpu.uuid, name);
                pass.evictions.extend(matrix::compare(gpu.gpu, ledger, &reported, |pid| name_of(pid, members)));
            }
            Err(reason) => pass.evictions_not_known = Some(reason),
        }
    }
}

/// Compares a second uvmd, by its states after and before the work, with the truth and with the first
/// one. `with_processes`: whether the truth of processes is known.
fn compare_second(
    pass: &Pass,
    [answer, before]: [&Answer; 2],
    members: &[Member],
    with_processes: bool,
) -> anyhow::Result<Second> {
    let mut second = Second::default();
    for (process, id) in pass.processes.iter().zip(members).filter_map(|(process, member)| Some((process, member.id?)))
    {
        let tools = answer.process(id).with_context(|| format!("the second uvmd does not count {}", process.name))?;
        let truth = with_processes.then_some(&process.truth);
        second.add(&process.name, Scope::Process, truth, &process.uvmd, &tools);
    }
    if pass.sums_left_out {
        return Ok(second);
    }
    // The figures of a single GPU equal the total.
    for gpu in pass.gpus.iter().filter(|_| pass.gpus.len() > 1) {
        let tools = answer.gpu_since(before, &gpu.uuid)?;
        second.add(&format!("gpu{}", gpu.gpu), Scope::Gpu, Some(&gpu.truth), &gpu.uvmd, &tools);
    }
    second.add("total", Scope::Total, Some(&pass.total.truth), &pass.total.uvmd, &answer.total_since(before)?);
    Ok(second)
}
