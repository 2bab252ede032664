//! Planners on published iterations, with their planning time: `UVMD_DATA=DIR cargo run --release
//! -p sim --example planners [PLANNER...]`.
//!
//! The machine is that of G10's artifact, as far as the model represents it: an A100 with 40 GiB on
//! a link of 15.754 GB/s, 128 GiB of host memory, flash of 3.2 GB/s.
#![expect(clippy::print_stdout, reason = "prints a report")]

use std::{error::Error, path::Path, time::Instant};

use sim::{Freed, Machine, Outcome, Setup, planned};

fn main() -> Result<(), Box<dyn Error>> {
    let data = std::env::var_os("UVMD_DATA").ok_or("UVMD_DATA names no folder of published traces")?;
    let selected: Vec<_> = std::env::args().skip(1).collect();
    let mut machine = Machine::named("a100")?;
    machine.link_to_gpu.peak_bytes_per_s.value = 15.754e9;
    machine.link_to_host.peak_bytes_per_s.value = 15.754e9;
    let setup = Setup { host_bytes: 128 << 30, freed: Freed::Cached, ..Setup::new(&machine) };
    println!(
        "| set | planner | time, s | of ideal | H2D, D2H GiB | flash read, written GiB | faults | actions | planning, s |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (model, batch) in
        [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)]
    {
        let set = trace_sources::import::g10::load(
            &Path::new(&data).join(format!("g10/derived/{model}/{batch}.kernels.csv")),
        )?;
        let line = |name: &str, actions: usize, plan_s: f64, outcome: &Outcome| {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            println!(
                "| {model} {batch} | {name} | {:.2} | {:.1} % | {:.1}, {:.1} | {:.1}, {:.1} | {} | {actions} | {plan_s:.3} |",
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
            if !(selected.is_empty() || selected.iter().any(|name| name == planner.name())) {
                continue;
            }
            let start = Instant::now();
            let schedule = match planner.plan(&set.iteration, &setup.for_planners()) {
                Ok(schedule) => schedule,
                Err(error) => {
                    println!("| {model} {batch} | {} | {error} |", planner.name());
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
