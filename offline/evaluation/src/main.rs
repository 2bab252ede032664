//! Tables of the documentation that need no GPU: planners, the simulator and the codec,
//! compared with published figures. `cargo run --release -p evaluation -- TABLE`; `--help` lists the tables.

#![expect(clippy::print_stdout, reason = "prints tables")]

mod activations;
mod bound;
mod footprints;
mod g10;
mod periods;
mod planners;
mod reproduction;
mod savings;
mod simulation_cost;
mod validation;

use std::{error::Error, path::PathBuf};

use clap::Parser;

use crate::{bound::Bound, footprints::NamedLog};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const GIB: u64 = 1 << 30;

/// Tables of the documentation that need no GPU. Published traces are in the folder UVMD_DATA, or
/// in shared/data beside the project.
#[derive(Parser)]
#[expect(clippy::doc_markdown, reason = "help is no Markdown")]
enum Table {
    /// Published figures and ours, for docs/measurements/reproduction.md
    Reproduction {
        /// Sections, all by default: memory, g10, cost, roofline, pump, cdma
        sections: Vec<String>,
    },
    /// CPU seconds and peak KiB of this process, which plans and runs an iteration of G10
    #[command(hide = true)]
    CostOf { set: String },
    /// Simulator compared with published runs on real GPUs, for docs/measurements/simulator.md
    Validation,
    /// Run time of the simulator, for docs/measurements/simulator.md
    SimulationCost,
    /// Planners on G10's iterations, with their planning time, for docs/policies
    Planners {
        /// Planners, all by default
        names: Vec<String>,
    },
    /// Memory savings of AppObMem's planner, and the time lost, for docs/policies/appobmem.md
    Savings,
    /// Inferred footprints compared with accessed memory, for docs/measurements/footprints.md
    Footprints {
        /// Logs of the lab's CUDA, written with CUDA_LAB_LOG_ACCESSES=1
        #[arg(value_name = "NAME=LOG")]
        logs: Vec<NamedLog>,
    },
    /// Lower bound of the bytes over the link for an iteration of a program, as JSON
    Bound(Bound),
    /// States of the iteration detector on a recorded run
    Periods { trace: PathBuf },
    /// Compressed sizes of the activations of a network in training, for docs/measurements/zvc.md
    Activations {
        /// The same seed gives the same result on a machine
        #[arg(default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> Result {
    match Table::parse() {
        Table::Reproduction { sections } => reproduction::print(&sections),
        Table::CostOf { set } => reproduction::print_cost(&set),
        Table::Validation => validation::print(),
        Table::SimulationCost => simulation_cost::print(),
        Table::Planners { names } => planners::print(&names),
        Table::Savings => savings::print(),
        Table::Footprints { logs } => footprints::print(&logs),
        Table::Bound(bound) => bound.print(),
        Table::Periods { trace } => periods::print(&trace),
        Table::Activations { seed } => {
            activations::print(seed);
            Ok(())
        }
    }
}

/// Folder of published traces.
fn published_traces() -> Result<PathBuf> {
    published::data().ok_or_else(|| "no published traces: UVMD_DATA names their folder".into())
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB as f64
}
