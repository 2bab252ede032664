//! How much memory: pools and swapping on the traces of SINGA and MiniMalloc.

use std::{path::Path, time::Instant};

use policy::planner::{
    Link, Machine, appobmem,
    autoswap::{Effort, Goal, Mode, Parameters, Problem, Rule, Settle},
    machine::Store,
    optimal,
    smartpool::{self, Fit},
};
use trace::{
    Alignment, Circle, Iteration, Lives,
    circle::Window,
    import::{minimalloc, singa},
};

use crate::{Result, beside};

const MIB: f64 = (1 << 20) as f64;

/// Log, mallocs of an iteration, `CnMem`'s pool in MiB, the saving in percent as computed from the same logs before.
const LOGS: [(&str, usize, f64, f64); 4] = [
    ("imagenet-vgg-batch-16", 511, 3592.0, 11.2),
    ("cifar-100-vgg-batch-128", 511, 768.0, 13.6),
    ("imagenet-resnet-batch-16", 635, 1642.0, 8.6),
    ("imagenet-googlenet-batch-64", 1122, 3384.0, 15.5),
];

pub(crate) fn pools(data: &Path) -> Result {
    println!("## SmartPool: less than the pool of the authors' framework, 0.2 points allowed\n");
    println!("| run | saved: known | ours | pool by the most alive at once |\n| --- | --- | --- | --- |");
    for (name, period, pool_mib, saving) in LOGS {
        let stream = singa::load_log(&data.join(format!("singa/{name}.mem-info.log.gz")))?;
        let window = Window { first_malloc: 3 * period, mallocs: period };
        let circle = Circle::of_ops(&stream, window, Alignment::NONE)?;
        let best = optimal::place(&circle, optimal::Effort { rounds: 20, nodes: 0 }).placement;
        let own_mib = (best.pool_bytes + circle.persistent_bytes) as f64 / MIB;
        let own = 100.0 * (1.0 - own_mib / pool_mib);
        println!("| {name} | {} | {:.4} |", beside(saving, own, 0.2, 1, " %"), best.ratio(&circle));
    }
    println!(
        "\nThe paper's best is 13.3 %. What is known was computed on one iteration cut out of the run, which counts blocks that cross the cut twice (docs/policies/smartpool.md).\n"
    );
    println!("## MiniMalloc: 1.000 is what an instance is known to fit; less is better\n");
    println!("| instance | by size: known | ours | searched | s |\n| --- | --- | --- | --- | --- |");
    for (name, known) in [("A", 1.311), ("B", 1.347), ("C", 1.364), ("E", 1.401), ("K", 1.327)] {
        let circle = minimalloc::load(&data.join(format!("minimalloc/{name}.1048576.csv")))?;
        let by_size = smartpool::place(&circle, Fit::Best).ratio(&circle);
        let began = Instant::now();
        let best = optimal::place(&circle, optimal::Effort::default());
        let took_s = began.elapsed().as_secs_f64();
        let ratio = best.placement.pool_bytes as f64 / 1_048_576.0;
        let mark = if ratio > 1.0 { "**" } else { "" };
        println!("| {name} | {} | {mark}{ratio:.3}{mark} | {took_s:.2} |", beside(known, by_size, 0.001, 3, ""));
    }
    println!();
    Ok(())
}

pub(crate) fn swaps(data: &Path) -> Result {
    println!("## AutoSwap and AppObMem: the authors' operation trace (VGG, CIFAR-10, batch 100)\n");
    println!(
        "AutoSwap: less memory at no cost; the paper's best of all networks is 34.2 %. AppObMem: less memory for a tenth of the time; its claim is 40 to 60 %.\n"
    );
    println!(
        "| iteration | AutoSwap, first peak only | all peaks | bound | AppObMem |\n| --- | --- | --- | --- | --- |"
    );
    let busy = singa::load_busy(&data.join("singa/cifar10-vgg.swap-overhead.log.gz"))?;
    let stream = singa::load_ops(&data.join("singa/cifar10-vgg.vec_block_full.csv.gz"), &busy)?;
    let out = Link { latency_ns: 47_200.0, bytes_per_second: 1e9 / 0.0756 };
    let back = Link { latency_ns: 9_700.0, bytes_per_second: 1e9 / 0.0823 };
    let machine = Machine { gpu_bytes: u64::MAX, host: Store { bytes: u64::MAX, out, back }, flash: None };
    // That of AppObMem's authors.
    let out = Link { latency_ns: 8_240.0, bytes_per_second: 1e9 / 0.1563 };
    let back = Link { latency_ns: 12_350.0, bytes_per_second: 1e9 / 0.1574 };
    let slower = Machine { host: Store { bytes: u64::MAX, out, back }, ..machine };
    for turn in 1..=5 {
        let window = Window { first_malloc: 511 * turn, mallocs: 511 };
        let iteration = Iteration::of_ops(&stream, window, Lives::Used)?;
        let saved = |first_peak_only| {
            let parameters = Parameters { settle: Settle::OF_STREAMS, first_peak_only, ..Parameters::default() };
            let problem = Problem::new(&iteration, &machine, &parameters);
            let vote = problem.best(Rule::Vote, Mode::Stick, Goal::LowestLimit);
            let best = problem.optimised(Mode::Stick, Goal::LowestLimit, Effort::default());
            let peak_bytes = [vote, best].into_iter().flatten().map(|plan| plan.peak_bytes).min();
            let share = |bytes: u64| 100.0 * (1.0 - bytes as f64 / problem.peak_bytes() as f64);
            (peak_bytes.map_or(0.0, share), share(problem.least_bytes()))
        };
        let (first, _) = saved(true);
        let (all, bound) = saved(false);
        let parameters = Parameters { settle: Settle::OF_STREAMS, ..Parameters::default() };
        let problem = Problem::new(&iteration, &slower, &parameters);
        let tenth = appobmem::lowest(&problem, iteration.duration_ns() / 10);
        let lost = tenth.map_or(0.0, |swaps| 100.0 * (1.0 - swaps.peak_bytes as f64 / problem.peak_bytes() as f64));
        let mark = |missed| if missed { "**" } else { "" };
        let (free, tenth) = (mark(all < 34.2), mark(lost < 40.0));
        println!("| {turn} | {first:.1} % | {free}{all:.1} %{free} | {bound:.1} % | {tenth}{lost:.1} %{tenth} |");
    }
    println!();
    Ok(())
}
