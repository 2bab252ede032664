//! Run time of the simulator.

use std::time::Instant;

use sim::{Machine, Setup, driver};

use crate::{Result, g10, gib, published_traces};

pub(crate) fn print() -> Result {
    let data = published_traces()?;
    let machine = Machine::named("a100")?;
    println!("| set | time, s | share of ideal | to the GPU, GiB | batches | the model's own time, s | us a batch |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for name in published::G10_SETS {
        let (set, title) = (g10::load(&data, name)?, g10::title(name));
        let start = Instant::now();
        let outcome = driver(&set.iteration, &Setup::new(&machine))?;
        let elapsed_s = start.elapsed().as_secs_f64();
        println!(
            "| {title} | {:.1} | {:.2} | {:.1} | {} | {elapsed_s:.2} | {:.1} |",
            outcome.time_s,
            outcome.share_of_ideal,
            gib(outcome.bytes_htod),
            outcome.fault_batches,
            elapsed_s * 1e6 / (outcome.fault_batches as f64 * 2.0)
        );
    }
    Ok(())
}
