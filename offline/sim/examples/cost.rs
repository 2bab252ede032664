//! Run time of the model itself: `UVMD_DATA=DIR cargo run --release -p sim --example cost`.
#![expect(clippy::print_stdout, reason = "prints a report")]

use std::{error::Error, path::Path, time::Instant};

use sim::{Machine, Setup, driver};

fn main() -> Result<(), Box<dyn Error>> {
    let data = std::env::var_os("UVMD_DATA").ok_or("UVMD_DATA names no folder of published traces")?;
    let machine = Machine::named("a100")?;
    println!("| set | time, s | share of ideal | to the GPU, GiB | batches | the model's own time, s | us a batch |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (model, batch) in
        [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)]
    {
        let set = trace_sources::import::g10::load(
            &Path::new(&data).join(format!("g10/derived/{model}/{batch}.kernels.csv")),
        )?;
        let start = Instant::now();
        let outcome = driver(&set.iteration, &Setup::new(&machine))?;
        let elapsed_s = start.elapsed().as_secs_f64();
        println!(
            "| {model} {batch} | {:.1} | {:.2} | {:.1} | {} | {elapsed_s:.2} | {:.1} |",
            outcome.time_s,
            outcome.share_of_ideal,
            outcome.bytes_htod as f64 / f64::from(1 << 30),
            outcome.fault_batches,
            elapsed_s * 1e6 / (outcome.fault_batches as f64 * 2.0)
        );
    }
    Ok(())
}
