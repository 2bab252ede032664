//! Planners on the iterations and the machine of G10's artifact, with their planning time.

use std::time::Instant;

use sim::{Freed, Outcome, Setup, planned};

use crate::{Result, g10, gib, published_traces};

/// Prints the results of the named planners, of all without names.
pub(crate) fn print(names: &[String]) -> Result {
    let data = published_traces()?;
    let machine = g10::machine()?;
    let setup = Setup { host_bytes: g10::HOST_BYTES, freed: Freed::Cached, ..Setup::new(&machine) };
    println!(
        "| set | planner | time, s | of ideal | H2D, D2H GiB | flash read, written GiB | faults | actions | planning, s |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for name in published::G10_SETS {
        let (set, title) = (g10::load(&data, name)?, g10::title(name));
        let line = |name: &str, actions: usize, plan_s: f64, outcome: &Outcome| {
            println!(
                "| {title} | {name} | {:.2} | {:.1} % | {:.1}, {:.1} | {:.1}, {:.1} | {} | {actions} | {plan_s:.3} |",
                outcome.time_s,
                outcome.share_of_ideal * 100.0,
                gib(outcome.bytes_htod),
                gib(outcome.bytes_dtoh),
                gib(outcome.bytes_ssd_read),
                gib(outcome.bytes_ssd_written),
                outcome.faults,
            );
        };
        for planner in planner::all() {
            if !(names.is_empty() || names.iter().any(|name| name == planner.name())) {
                continue;
            }
            let start = Instant::now();
            let schedule = match planner.plan(&set.iteration, &setup.for_planners()) {
                Ok(schedule) => schedule,
                Err(error) => {
                    println!("| {title} | {} | {error} |", planner.name());
                    continue;
                }
            };
            let plan_s = start.elapsed().as_secs_f64();
            let outcome = planned(&set.iteration, &setup, &schedule)?;
            line(planner.name(), schedule.actions().len(), plan_s, &outcome);
        }
    }
    Ok(())
}
