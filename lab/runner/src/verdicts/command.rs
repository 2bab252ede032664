//! Commands of verdicts.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{
    Report, run,
    variant::{self, Variant},
};
use crate::{uvmd::Client, write_report};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the variants that `verdicts` runs: memory of the GPU in MiB, whether the driver must
    /// throttle, and the name.
    Variants {
        #[command(flatten)]
        choice: Choice,
        /// Print the scenario of this variant instead.
        #[arg(long, value_name = "NAME")]
        print: Option<String>,
    },
    /// Run the variants for this machine's GPU, and compare uvmd's verdicts with the labels from
    /// the software GPU's log.
    ///
    /// Exits with 0 if all variants could be judged, whether the verdicts are right or not;
    /// `confusion` checks them.
    Verdicts {
        #[command(flatten)]
        choice: Choice,
        /// The driver is configured to detect slow thrashing.
        #[arg(long)]
        throttling: bool,
        /// File for the report, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// URL of uvmd.
        #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:9477")]
        uvmd: String,
    },
    /// Print the table and the confusion matrix of reports of `verdicts`. Exits with 0 only if no
    /// verdict is wrong.
    Confusion {
        /// Files of the reports.
        #[arg(required = true)]
        reports: Vec<PathBuf>,
        /// File for all reports as one, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
    },
}

/// Selection of variants.
#[derive(Args)]
pub(crate) struct Choice {
    /// Seed of sizes, orders and strides.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only a few variants, one of each kind.
    #[arg(long)]
    quick: bool,
    /// Only variants whose name begins with this.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

impl Choice {
    fn variants(&self) -> Vec<Variant> {
        let mut variants = variant::all(self.seed, self.quick);
        variants.retain(|variant| self.only.as_ref().is_none_or(|only| variant.name.starts_with(only)));
        variants
    }
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Variants { choice, print } => print_variants(&choice.variants(), print.as_deref()),
            Self::Verdicts { choice, throttling, report: file, uvmd } => {
                let report = run(&choice.variants(), throttling, &Client::new(&uvmd))?;
                write_report(&report, file.as_deref())?;
                Ok(if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Self::Confusion { reports, report } => confusion(&reports, report.as_deref()),
        }
    }
}

fn print_variants(variants: &[Variant], print: Option<&str>) -> anyhow::Result<ExitCode> {
    if let Some(name) = print {
        let variant = variants.iter().find(|variant| variant.name == name);
        print!("{}", variant.with_context(|| format!("no variant is named {name:?}"))?.text);
    } else {
        for Variant { name, gpu_mem_mib, throttling, .. } in variants {
            println!("{gpu_mem_mib} {} {name}", if *throttling { "yes" } else { "no" });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn confusion(files: &[PathBuf], report_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let mut all = Report::default();
    for file in files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let report: Report = serde_json::from_str(&text).with_context(|| format!("{} is no report", file.display()))?;
        all.outcomes.extend(report.outcomes);
        all.failures.extend(report.failures);
    }
    print!("{all}");
    write_report(&all, report_file)?;
    Ok(if all.is_right() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
