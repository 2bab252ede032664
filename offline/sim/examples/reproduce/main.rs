//! Every figure that was published and that this project can be held to, beside its own: `scripts/reproduce`. All of it, or the sections that are named: memory, g10,
//! cost, roofline, pump, cdma.
#![expect(clippy::print_stdout, reason = "prints a report of tables that are known")]

mod cost;
mod iterations;
mod launches;
mod memory;
mod report;
mod swaps;

use std::{error::Error, path::Path};

use report::Report;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    let data = published::data();
    if let (Some(cost::ALONE), Some(set), Some(data)) = (wanted.first().map(String::as_str), wanted.get(1), &data) {
        return cost::tell(data, set);
    }
    let wants = |section: &str| wanted.is_empty() || wanted.iter().any(|name| name == section);
    let mut report = Report::default();
    println!(
        "Figures that differ by more than their table allows are **bold**; [the end](#missed) lists them. Times of iterations are modelled, none is measured.\n"
    );
    if data.is_none() {
        println!(
            "Skipped, as there are no published traces: SmartPool, MiniMalloc, pools of whole iterations, AutoSwap, AppObMem, G10's figure 11, what planning G10 costs, and of"
        );
        println!("PUMP's and cDMA's tables the rows of G10's data.\n");
    }
    if let Some(data) = data.as_deref().filter(|_| wants("memory")) {
        memory::smartpool(&mut report, data);
        memory::minimalloc(&mut report, data);
        memory::pools(&mut report, data);
        swaps::of_the_authors(&mut report, data);
    }
    if let Some(data) = data.as_deref().filter(|_| wants("g10")) {
        iterations::of_g10(&mut report, data)?;
    }
    if data.is_some() && wants("cost") {
        cost::beside_artifact(&mut report);
    }
    if wants("roofline") {
        iterations::by_roofline(&mut report)?;
    }
    if wants("pump") {
        launches::pump(&mut report, data.as_deref())?;
    }
    if wants("cdma") {
        launches::packing(&mut report, data.as_deref())?;
    }
    report.end();
    Ok(())
}

fn g10_set(data: &Path, set: &str) -> Result<trace::Iteration> {
    Ok(trace::import::g10::load(&data.join(format!("g10/derived/{set}.kernels.csv")))?.iteration)
}
