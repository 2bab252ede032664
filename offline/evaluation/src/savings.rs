//! Memory savings of `AppObMem`'s planner, and the time lost.

use std::path::Path;

use planner::{
    Link,
    appobmem::{self, Extremes},
    autoswap::{Parameters, Problem, Settle},
    machine::Store,
};
use sim::{Machine, Setup};
use trace::{Iteration, Lives, circle::Window};
use trace_sources::{
    import::singa,
    zoo::{Hardware, Recipe},
};

use crate::{Result, g10, gib, published_traces};

const SAVINGS_PERCENT: [u64; 5] = [20, 30, 40, 50, 60];

pub(crate) fn print() -> Result {
    let data = published_traces()?;
    println!("| trace | peak | bound | long, share of idle bytes by time | {} | free | 10 % lost |", {
        SAVINGS_PERCENT.map(|saving| format!("{saving} %: time lost, moved each way")).join(" | ")
    });
    println!("|{}", " --- |".repeat(11));
    authors(&data)?;
    let machine = Machine::named("a100")?;
    let a100 = Setup::new(&machine).for_planners_within(u64::MAX);
    for name in published::G10_SETS {
        let set = g10::load(&data, name)?;
        line(&g10::title(name), &set.iteration, &a100, Settle::AT_ONCE);
    }
    let hardware = Hardware::named("a100").ok_or("no such GPU")?;
    for recipe in ["resnet50:256", "resnet152:512", "vgg16:256", "bert:256", "gpt:16", "vit:256", "moe:2"] {
        let iteration = recipe.parse::<Recipe>()?.make(&hardware)?;
        line(recipe, &iteration, &a100, Settle::AT_ONCE);
    }
    Ok(())
}

/// Prints the authors' operation trace, on the link that they measured.
fn authors(data: &Path) -> Result {
    let busy = singa::load_busy(&data.join("singa/cifar10-vgg.swap-overhead.log.gz"))?;
    let stream = singa::load_ops(&data.join("singa/cifar10-vgg.vec_block_full.csv.gz"), &busy)?;
    let link = |latency_ns, ns_per_byte: f64| Link { latency_ns, bytes_per_second: 1e9 / ns_per_byte };
    let host = Store { bytes: u64::MAX, out: link(8240.0, 0.1563), back: link(12350.0, 0.1574) };
    let machine = planner::Machine { gpu_bytes: u64::MAX, host, flash: None };
    for (lives, name) in [(Lives::Used, "used"), (Lives::Allocated, "allocated")] {
        for turn in 1..=5 {
            let window = Window { first_malloc: turn * 511, mallocs: 511 };
            let iteration = Iteration::of_ops(&stream, window, lives)?;
            line(&format!("VGG CIFAR-10, iteration {turn}, {name}"), &iteration, &machine, Settle::OF_STREAMS);
        }
    }
    Ok(())
}

fn line(name: &str, iteration: &Iteration, machine: &planner::Machine, settle: Settle) {
    let problem = Problem::new(iteration, machine, &Parameters { settle, ..Parameters::default() });
    let (peak, duration_ns) = (problem.peak_bytes(), iteration.duration_ns());
    let saved = |bytes: u64| 100.0 * (1.0 - bytes as f64 / peak as f64);
    let lost = |ns: u64| 100.0 * ns as f64 / duration_ns as f64;
    let cells = SAVINGS_PERCENT.map(|percent| {
        let plan = appobmem::keep(&problem, peak - peak / 100 * percent);
        plan.map_or("-".to_owned(), |it| format!("{:.1} %, {:.1} GiB", lost(it.overhead_ns), gib(it.moved_bytes)))
    });
    let lowest = [0, duration_ns / 10].map(|max_lost_ns| {
        let plan = appobmem::lowest(&problem, max_lost_ns);
        plan.map_or("-".to_owned(), |it| format!("{:.1} %", saved(it.peak_bytes)))
    });
    let extremes = Extremes::of(&problem);
    println!(
        "| {name} | {:.2} GiB | {:.1} % | {:.0} % | {} | {} |",
        gib(peak),
        saved(problem.least_bytes()),
        100.0 * extremes.bytes_by_time_share,
        cells.join(" | "),
        lowest.join(" | ")
    );
}
