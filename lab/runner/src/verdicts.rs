//! `lab-runner verdicts` ([`command`]): variants with known labels, one after the other, and uvmd's
//! verdicts on them.
//!
//! * [`variant`], [`program`]: the variants
//! * [`pages`], [`facts`], [`timeline`]: page events, from the software GPU's log; [`label`]: their
//!   label by docs/verdicts.md
//! * [`episodes`]: uvmd's verdicts; [`outcome`]: comparison of label and verdict; [`table`]: output
//!   for readers

pub(crate) mod command;
mod episodes;
mod facts;
mod label;
mod outcome;
mod pages;
mod program;
mod table;
mod timeline;
mod variant;

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, bail};
use gpu::swgpu::Gpu;
use model::verdict::UNJUDGED;
use serde::{Deserialize, Serialize};

use self::{
    episodes::Poller,
    outcome::{Case, Outcome, UvmdFacts},
    timeline::{Recorder, Watched},
    variant::Variant,
};
use crate::{
    figures::{BYTES_HTOD, EVICTED_BYTES, EVICTED_BYTES_CAUSED, POPULATED_BYTES, THROTTLES},
    member::Member,
    scenario::{parse::parse, size::MIB},
    team::Team,
    truth::{Observer, kmsg::Log},
    uvmd::{Answer, Client, ProcessId},
};

/// Time limit of a variant.
const VARIANT: Duration = Duration::from_mins(3);

/// Outcomes of all variants in one guest.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    /// Variants that could not be judged, with the reason.
    pub(crate) failures: Vec<String>,
}

/// Run the variants for this guest. `throttling`: whether its driver detects slow thrashing.
pub(crate) fn run(variants: &[Variant], throttling: bool, client: &Client) -> anyhow::Result<Report> {
    // Holds the GPU in use: the driver deletes its statistics with the last user.
    let observer = Observer::start()?;
    let gpu = observer.gpus.first().context("no GPU")?;
    let is_for_this =
        |variant: &&Variant| variant.throttling == throttling && variant.gpu_mem_mib == gpu.memory_bytes / MIB;
    let mut log = Log::whole()?;
    let mut report = Report::default();
    for variant in variants.iter().filter(is_for_this) {
        match outcomes(variant, gpu, client) {
            Ok(outcomes) => {
                for outcome in &outcomes {
                    eprintln!("{}", table::line(outcome));
                }
                report.outcomes.extend(outcomes);
            }
            Err(error) => {
                eprintln!("{}: {error:#}", variant.name);
                report.failures.push(format!("{}: {error:#}", variant.name));
            }
        }
        report.failures.extend(log.complaints()?.into_iter().map(|line| format!("{}: kernel: {line}", variant.name)));
    }
    Ok(report)
}

/// Run a variant, and judge each of its processes.
fn outcomes(variant: &Variant, gpu: &Gpu, client: &Client) -> anyhow::Result<Vec<Outcome>> {
    let deadline = Instant::now() + VARIANT;
    let scenario = parse(&variant.name, &variant.text)?;
    client.ask_when_counting()?;
    let mut team = Team::start(&scenario, true, deadline)?;
    let watched = |member: &Member| Some(Watched { pid: member.id?.pid, pages: member.shared_pages()? });
    let recorder = Recorder::start(gpu, team.members().iter().filter_map(watched).collect())?;
    let poller = Poller::start(client.clone());
    let begin = SystemTime::now();
    team.go(deadline)?;
    let answer = client.ask_after(SystemTime::now())?;
    team.finish(deadline)?;
    let unjudged = team.members().iter().map(|member| unjudged(client, member)).collect::<anyhow::Result<Vec<_>>>()?;
    let (verdicts, end, timeline) = (poller.stop()?, SystemTime::now(), recorder.stop()?);
    if timeline.dropped_events > 0 {
        bail!("the software GPU's log dropped {} events", timeline.dropped_events);
    }
    let case = |(member, unjudged): (&Member, &Vec<String>)| {
        if let Some(failure) = &member.failure {
            bail!("{}: {failure}", member.name);
        }
        if member.checked().mismatches > 0 {
            bail!("{}: words are wrong", member.name);
        }
        let id = member.id.context("a process that was never started")?;
        let episodes = verdicts.of(id);
        let uvmd = uvmd_facts(&answer, id).with_context(|| format!("uvmd does not list {}", member.name))?;
        Ok(outcome::judge(&Case {
            variant: &variant.name,
            process: &member.name,
            pid: id.pid,
            gpu_bytes: gpu.memory_bytes,
            timeline: &timeline,
            begin,
            end,
            episodes: &episodes,
            uvmd,
            unjudged,
        }))
    };
    team.members().iter().zip(&unjudged).map(case).collect()
}

/// uvmd's remarks on windows of a process that it could not judge.
fn unjudged(client: &Client, member: &Member) -> anyhow::Result<Vec<String>> {
    let Some(ProcessId { pid, .. }) = member.id else { return Ok(Vec::new()) };
    let Remarks { remarks } = client.get(&format!("/api/v1/processes/{pid}/verdict"))?;
    Ok(remarks.into_iter().filter(|remark| remark.contains(UNJUDGED)).collect())
}

/// Compared part of the body of `/api/v1/processes/{pid}/verdict`.
#[derive(Deserialize)]
struct Remarks {
    remarks: Vec<String>,
}

fn uvmd_facts(answer: &Answer, id: ProcessId) -> Option<UvmdFacts> {
    let figures = answer.process(id)?;
    let reuse = answer.reuse(id)?;
    Some(UvmdFacts {
        fetched_bytes: figures.get(&BYTES_HTOD)?,
        recorded_bytes: reuse.fetched_bytes,
        populated_bytes: figures.get(&POPULATED_BYTES)?,
        evicted_bytes: figures.get(&EVICTED_BYTES)?,
        induced_eviction_bytes: figures.get(&EVICTED_BYTES_CAUSED)?,
        refetched_bytes: reuse.refetched_bytes,
        cpu_reclaimed_bytes: reuse.cpu_reclaimed_bytes,
        bounces: reuse.bounces,
        throttles: figures.get(&THROTTLES)?,
    })
}
