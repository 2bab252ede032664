//! `uvmctl job`: reports on Slurm jobs.
//!
//! * `report`: report on a job, of one node or several
//! * `slurm`: ids and names of a job, from the environment of Slurm's scripts
//! * `spool`: folder of saved reports, which outlive the job in uvmd
//! * `page`: a report as text

mod page;
mod report;
mod slurm;
mod spool;

use std::{io::Write, path::PathBuf};

use api::{OwnerReport, Status};
use clap::{Args, Subcommand};
use model::text::parse_bytes;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use report::{JobReport, NodeReport};
use slurm::Job;
use spool::{Readers, Retention, Spool};

use crate::{
    client::{Client, Error},
    output::{Page, Screen, UsageError, View},
};

#[derive(Debug, Subcommand)]
pub(crate) enum Options {
    /// Report the cost of managed memory to a Slurm job, by step, with remedies
    ///
    /// The report is that of this node's uvmd, until `collector.owner_retention` after the job: an
    /// hour by default. With --spool, it is that of all nodes whose Epilog saved a report.
    ///
    /// FETCHED: bytes copied from host to GPU. REFETCHED: part of them that had been evicted
    /// before. EVICTED: bytes evicted from GPUs. COST: link time of refetches, which is their bytes
    /// divided by the rate of the link: a lower bound, as faults copy more slowly. PEAK: maximum
    /// of the managed memory of running processes at a GPU, divided by that GPU's memory. VERDICTS:
    /// time under each verdict, summed over processes and GPUs.
    Report(ReportOptions),
    /// Save the report of a job on this node in a folder, for Slurm's Epilog
    ///
    /// The name of the file has the job and the node. An earlier report is replaced atomically. For
    /// a job without managed memory, no file is written. Also removes reports older than --max-days,
    /// and the oldest beyond --max-bytes.
    Save(SaveOptions),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportOptions {
    #[command(flatten)]
    selection: Selection,

    /// Folders of saved reports, instead of uvmd
    #[arg(long, value_name = "DIR", num_args = 1..)]
    spool: Vec<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SaveOptions {
    #[command(flatten)]
    selection: Selection,

    /// Folder of saved reports, which only root and its owner may write
    #[arg(long, value_name = "DIR")]
    spool: PathBuf,

    /// Readers of the file: its owner alone, also the job's group (`SLURM_JOB_GID`), or all users
    #[arg(long, value_name = "READERS", value_enum, default_value_t)]
    readable_by: Readers,

    /// Age after which reports are removed
    #[arg(long, value_name = "DAYS", default_value_t = 30)]
    max_days: u32,

    /// Size of all reports beyond which the oldest are removed
    #[arg(long, value_name = "BYTES", default_value = "64MiB", value_parser = bytes)]
    max_bytes: u64,
}

/// Job, and rate of the link of its node.
#[derive(Clone, Debug, Args)]
struct Selection {
    /// Number or SLUID of the job [default: `SLURM_JOB_ID`]
    id: Option<String>,

    /// Rate of the link between host and GPU, in bytes per second [default: that of the PCIe
    /// generation and lanes, by NVML]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    link_rate: Option<u64>,
}

fn bytes(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|error| error.to_string())
}

/// The view of a report.
pub(crate) struct Report(pub(crate) ReportOptions);

impl Report {
    fn fetch(&self, client: &Client) -> anyhow::Result<JobReport> {
        let ReportOptions { selection, spool } = &self.0;
        let job = selection.job()?;
        let mut report = if spool.is_empty() { live(client, job)? } else { spool::read(spool, &job)? };
        report.set_link_rate(selection.link_rate);
        Ok(report)
    }
}

impl View for Report {
    fn page(&mut self, client: &Client, screen: Screen) -> anyhow::Result<Page> {
        let report = self.fetch(client)?;
        Ok(Page::text(page::render(&report, screen)).named(format!("job/{}", report.job.id)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        serde_json::to_writer(&mut *out, &self.fetch(client)?)?;
        Ok(writeln!(out)?)
    }
}

/// Saves the report of a job, if it used managed memory.
pub(crate) fn save(client: &Client, options: &SaveOptions) -> anyhow::Result<()> {
    let SaveOptions { selection, spool, readable_by, max_days, max_bytes } = options;
    let spool = Spool::open(spool, *readable_by)?;
    let retention = Retention::new(*max_days, *max_bytes);
    match live(client, selection.job()?) {
        Ok(mut report) => {
            report.set_link_rate(selection.link_rate);
            spool.write(&report)?;
        }
        Err(Error::NotFound { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    spool.expire(retention)
}

/// Report of this node. uvmd knows the job by the id in its cgroup: the number or the SLUID.
fn live(client: &Client, mut job: Job) -> Result<JobReport, Error> {
    let mut ids = job.ids();
    let report = loop {
        let id = ids.remove(0);
        let id = utf8_percent_encode(&id, NON_ALPHANUMERIC);
        match client.get::<OwnerReport>(&format!("/api/v1/owners/job/{id}/report")) {
            Ok(response) => break response.body,
            Err(Error::NotFound { .. }) if !ids.is_empty() => {}
            Err(error) => return Err(error),
        }
    };
    let node = match slurm::node() {
        Some(node) => node,
        None => client.get::<Status>("/api/v1/status")?.body.hostname,
    };
    job.complete(&report);
    Ok(JobReport::new(job, vec![NodeReport { node, report }]))
}

impl Selection {
    fn job(&self) -> Result<Job, UsageError> {
        let missing = || UsageError::new("no job: give its id, as SLURM_JOB_ID is not set (Slurm's Epilog sets it)");
        Job::of(self.id.as_deref(), |name| std::env::var(name).ok()).ok_or_else(missing)
    }
}
