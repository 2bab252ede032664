//! The commands about comparisons: `plan` outside, `run` in each guest, `tell` outside again.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Subcommand;

use super::{
    measured::Record,
    plan::{Plan, Text, Wanted, plans},
    policy::parse as parse_policy,
    run,
    table::Comparison,
};
use crate::{scenario::size::MIB, write_report};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a plan for each scenario, and print a line for each: its GPUs' memory in MiB, its guest's, how many GPUs, whether they are connected, its
    /// runs, the plan's file, and the driver's parameters.
    Plan {
        /// The scenarios.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// The policies, beside the driver alone.
        #[arg(long, value_delimiter = ',', value_parser = parse_policy, default_values_t = [model::policy::CHOOSER.to_owned()])]
        policy: Vec<String>,
        /// How often each, every time from another seed.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
        seeds: u64,
        /// What access rates are multiplied by.
        #[arg(long, value_delimiter = ',', value_name = "FACTOR", value_parser = parse_rate, default_values_t = [0.1, 1.0, 10.0])]
        rates: Vec<f64>,
        /// On these scenarios, the policies that must miss a target, too.
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        controls: Vec<String>,
        /// Where to write the plans.
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Words for uvmd's command line.
        #[arg(last = true)]
        uvmd: Vec<String>,
    },
    /// Do the runs of a plan, a line of JSON each.
    Run {
        plan: PathBuf,
        /// Not the first so many.
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: usize,
        /// Where to add the lines.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the line for a run in which the guest died.
    Crashed {
        plan: PathBuf,
        /// Which, from 0.
        run: usize,
    },
    /// Print the table of all lines. Exits with 0 only if every row reaches its targets.
    Tell {
        /// The plans.
        #[arg(long, required = true, num_args = 1..)]
        plan: Vec<PathBuf>,
        /// The lines.
        #[arg(long, required = true, num_args = 1..)]
        lines: Vec<PathBuf>,
        /// Where to write everything, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// Where to write the table, as Markdown.
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
}

/// For the kernel, the initrd in memory, uvmd and the runner.
const SYSTEM_MEM_MIB: u64 = 1536;

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1000.0);
    rate.ok_or_else(|| format!("{text:?} is no factor: above 0, and at most 1000"))
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Plan { files, policy: policies, seeds, rates, controls, out, uvmd } => {
                write_plans(&files, &Wanted { policies, seeds, rates, controls, uvmd }, &out)?;
            }
            Self::Run { plan, skip, out } => {
                let lines = OpenOptions::new().create(true).append(true).open(&out);
                run(&read_plan(&plan)?, skip, lines.with_context(|| format!("cannot write {}", out.display()))?)?;
            }
            Self::Crashed { plan, run } => {
                let plan = read_plan(&plan)?;
                let run = plan.runs.get(run).context("no such run")?;
                println!("{}", serde_json::to_string(&Record::of_crash(&plan.scenario.name, run))?);
            }
            Self::Tell { plan, lines, report, markdown } => {
                return tell(&plan, &lines, report.as_deref(), markdown.as_deref());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn read_plan(file: &Path) -> anyhow::Result<Plan> {
    Plan::parse(&read(file)?).with_context(|| file.display().to_string())
}

fn write_plans(files: &[PathBuf], wanted: &Wanted, out: &Path) -> anyhow::Result<()> {
    let text = |file: &PathBuf| Ok(Text { name: file.display().to_string(), text: read(file)? });
    let texts = files.iter().map(text).collect::<anyhow::Result<Vec<Text>>>()?;
    for (at, (guest, plan)) in plans(texts, wanted)?.into_iter().enumerate() {
        // For people: what a scenario is named is not always a file's name.
        let name: String =
            plan.scenario.name.chars().map(|each| if each.is_ascii_alphanumeric() { each } else { '_' }).collect();
        let file = out.join(format!("plan-{at:03}-{name}.json"));
        write_report(&plan, Some(&file))?;
        let machine_mem_mib =
            SYSTEM_MEM_MIB + guest.gpu_mem_mib * u64::from(guest.gpus) + 2 * guest.managed_bytes.div_ceil(MIB);
        let nvlink = if guest.nvlink { "yes" } else { "no" };
        println!(
            "{} {machine_mem_mib} {} {nvlink} {} {} {}",
            guest.gpu_mem_mib,
            guest.gpus,
            plan.runs.len(),
            file.display(),
            guest.parameters()
        );
    }
    Ok(())
}

fn tell(
    plans: &[PathBuf],
    lines: &[PathBuf],
    report: Option<&Path>,
    markdown: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    let plans = plans.iter().map(|file| read_plan(file)).collect::<anyhow::Result<Vec<Plan>>>()?;
    let mut records = Vec::new();
    for file in lines {
        for line in read(file)?.lines() {
            let record =
                serde_json::from_str(line).with_context(|| format!("{}: no run: {line:.60}", file.display()))?;
            records.push(record);
        }
    }
    let comparison = Comparison::new(&plans, records)?;
    print!("{comparison}");
    write_report(&comparison, report)?;
    if let Some(file) = markdown {
        fs::write(file, comparison.markdown()).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(if comparison.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
