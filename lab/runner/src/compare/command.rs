//! Commands of comparisons: `plan` on the host, `run` in each guest, `tell` on the host.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;
use clap::Subcommand;

use super::{
    measured::Record,
    plan::{Plan, PlanOptions, Text, plans},
    policy::parse as parse_policy,
    run,
    table::Comparison,
};
use crate::{scenario::size::MIB, write_report};

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a plan for each scenario, and print a line for each: memory of each GPU and of the
    /// guest in MiB, number of GPUs, whether the GPUs are connected, number of runs, the plan's
    /// file, and the driver's parameters.
    Plan {
        /// Scenario files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Policies to compare with the driver alone.
        #[arg(long, value_delimiter = ',', value_parser = parse_policy, default_values_t = [model::policy::CHOOSER.to_owned()])]
        policy: Vec<String>,
        /// Number of seeds for each policy.
        #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=100))]
        seeds: u64,
        /// Factors of the access rates.
        #[arg(long, value_delimiter = ',', value_name = "FACTOR", value_parser = parse_rate, default_values_t = [0.1, 1.0, 10.0])]
        rates: Vec<f64>,
        /// Scenarios on which the control policies run too, which must miss a target.
        #[arg(long, value_delimiter = ',', value_name = "SCENARIOS")]
        controls: Vec<String>,
        /// Folder for the plans.
        #[arg(long, value_name = "FOLDER")]
        out: PathBuf,
        /// Options for uvmd's command line.
        #[arg(last = true)]
        uvmd: Vec<String>,
    },
    /// Execute the runs of a plan, and write a line of JSON for each.
    Run {
        plan: PathBuf,
        /// Number of runs to skip at the start of the plan.
        #[arg(long, value_name = "N", default_value_t = 0)]
        skip: usize,
        /// File to which the lines are appended.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Print the line for a run whose guest crashed.
    Crashed {
        plan: PathBuf,
        /// Index of the run, from 0.
        run: usize,
    },
    /// Print the table of all lines. Exits with 0 only if every row reaches its targets.
    Tell {
        /// Files of the plans.
        #[arg(long, required = true, num_args = 1..)]
        plan: Vec<PathBuf>,
        /// Files of the lines.
        #[arg(long, required = true, num_args = 1..)]
        lines: Vec<PathBuf>,
        /// File for the comparison, as JSON.
        #[arg(long, value_name = "FILE")]
        report: Option<PathBuf>,
        /// File for the table, as Markdown.
        #[arg(long, value_name = "FILE")]
        markdown: Option<PathBuf>,
    },
}

/// Memory of a guest for the kernel, the initrd in memory, uvmd and the runner.
const SYSTEM_MEM_MIB: u64 = 1536;

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| *rate > 0.0 && *rate <= 1000.0);
    rate.ok_or_else(|| format!("{text:?} is not a factor above 0 and up to 1000"))
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Self::Plan { files, policy: policies, seeds, rates, controls, out, uvmd } => {
                write_plans(&files, &PlanOptions { policies, seeds, rates, controls, uvmd }, &out)?;
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
                return print_comparison(&plan, &lines, report.as_deref(), markdown.as_deref());
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

fn write_plans(files: &[PathBuf], options: &PlanOptions, out: &Path) -> anyhow::Result<()> {
    let text = |file: &PathBuf| Ok(Text { name: file.display().to_string(), text: read(file)? });
    let texts = files.iter().map(text).collect::<anyhow::Result<Vec<Text>>>()?;
    for (at, (guest, plan)) in plans(texts, options)?.into_iter().enumerate() {
        // For readers. The name of a scenario may be invalid as the name of a file.
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

fn print_comparison(
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
                serde_json::from_str(line).with_context(|| format!("{}: not a run: {line:.60}", file.display()))?;
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
