//! Every figure that was published and that this project can be held to, beside its own: `scripts/reproduce`. All of it, or the sections that are named: memory, g10,
//! cost, roofline, pump, cdma.
#![expect(clippy::print_stdout, reason = "prints a report of tables that are known")]

mod cost;
mod iterations;
mod launches;
mod memory;

use std::{error::Error, path::Path};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result {
    let wanted: Vec<_> = std::env::args().skip(1).collect();
    let data = published::data();
    if let (Some(cost::ALONE), Some(set), Some(data)) = (wanted.first().map(String::as_str), wanted.get(1), &data) {
        return cost::tell(data, set);
    }
    let wants = |section: &str| wanted.is_empty() || wanted.iter().any(|name| name == section);
    println!(
        "Figures that differ by more than their table allows are **bold**. Times of iterations are modelled, none is measured.\n"
    );
    if data.is_none() {
        println!("Skipped, as there are no published traces: SmartPool, MiniMalloc, AutoSwap, AppObMem, G10.\n");
    }
    if let Some(data) = data.as_deref().filter(|_| wants("memory")) {
        memory::pools(data)?;
        memory::swaps(data)?;
    }
    if let Some(data) = data.as_deref().filter(|_| wants("g10")) {
        iterations::of_g10(data)?;
    }
    if data.is_some() && wants("cost") {
        cost::beside_artifact()?;
    }
    if wants("roofline") {
        iterations::by_roofline()?;
    }
    if wants("pump") {
        launches::pump(data.as_deref())?;
    }
    if wants("cdma") {
        launches::packing(data.as_deref())?;
    }
    Ok(())
}

/// A published figure and ours; bold if they are further apart than is allowed.
fn beside(published: f64, own: f64, allowed: f64, digits: usize, unit: &str) -> String {
    let mark = if (own - published).abs() > allowed { "**" } else { "" };
    format!("{published:.digits$}{unit} | {mark}{own:.digits$}{unit}{mark}")
}

fn g10_set(data: &Path, set: &str) -> Result<trace::Iteration> {
    Ok(trace::import::g10::load(&data.join(format!("g10/derived/{set}.kernels.csv")))?.iteration)
}
