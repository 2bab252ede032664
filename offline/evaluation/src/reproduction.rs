//! Published figures that this project can be compared with, and its own.

mod cost;
mod iterations;
mod launches;
mod memory;
mod report;
mod swaps;

pub(crate) use self::cost::print_cost;
use self::report::Report;
use crate::Result;

/// Prints the named sections, all without names.
pub(crate) fn print(sections: &[String]) -> Result {
    let data = published::data();
    let selects = |section: &str| sections.is_empty() || sections.iter().any(|name| name == section);
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
    if let Some(data) = data.as_deref().filter(|_| selects("memory")) {
        memory::smartpool(&mut report, data);
        memory::minimalloc(&mut report, data);
        memory::pools(&mut report, data);
        swaps::author_trace(&mut report, data);
    }
    if let Some(data) = data.as_deref().filter(|_| selects("g10")) {
        iterations::of_g10(&mut report, data)?;
    }
    if data.is_some() && selects("cost") {
        cost::beside_artifact(&mut report);
    }
    if selects("roofline") {
        iterations::by_roofline(&mut report)?;
    }
    if selects("pump") {
        launches::pump(&mut report, data.as_deref())?;
    }
    if selects("cdma") {
        launches::packing(&mut report, data.as_deref())?;
    }
    report.end();
    Ok(())
}
