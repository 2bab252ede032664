//! Memory savings of iterations that swap out idle tensors.

use std::path::Path;

use planner::{
    Link, Machine, appobmem,
    autoswap::{Effort, Goal, Mode, Parameters, Problem, Rule, Settle},
    machine::Store,
};
use trace::{Iteration, Lives, circle::Window};
use trace_sources::import::singa;

use super::{
    Report,
    report::{Target, or_skip},
};
use crate::Result;

/// Machine with a link of given latency and time per byte, as measured by the authors.
fn machine_with_link(out: (f64, f64), back: (f64, f64)) -> Machine {
    let link = |(latency_ns, ns_per_byte): (f64, f64)| Link { latency_ns, bytes_per_second: 1e9 / ns_per_byte };
    Machine { gpu_bytes: u64::MAX, host: Store { bytes: u64::MAX, out: link(out), back: link(back) }, flash: None }
}

pub(crate) fn author_trace(report: &mut Report, data: &Path) {
    report.section(
        "AutoSwap and AppObMem",
        "AutoSwap and AppObMem: the authors' operation trace (VGG, CIFAR-10, batch 100)",
    );
    println!(
        "AutoSwap: less memory at no cost; the paper's best of all networks is 34.2 %. AppObMem: less memory for a tenth of the time; its claim is 40 to 60 %. What each"
    );
    println!("saving from 20 to 60 % costs, on these and on other traces: [appobmem](../policies/appobmem.md).\n");
    println!(
        "| iteration | AutoSwap, first peak only | all peaks | bound | AppObMem |\n| --- | --- | --- | --- | --- |"
    );
    let autoswap = machine_with_link((47_200.0, 0.0756), (9_700.0, 0.0823));
    let appobmem = machine_with_link((8_240.0, 0.1563), (12_350.0, 0.1574));
    let load = || -> Result<_> {
        let busy = singa::load_busy(&data.join("singa/cifar10-vgg.swap-overhead.log.gz"))?;
        Ok(singa::load_ops(&data.join("singa/cifar10-vgg.vec_block_full.csv.gz"), &busy)?)
    };
    if let Some(stream) = or_skip("1 to 5", load()) {
        for turn in 1..=5 {
            let row = turn.to_string();
            let window = Window { first_malloc: 511 * turn, mallocs: 511 };
            let Some(iteration) = or_skip(&row, Iteration::of_ops(&stream, window, Lives::Used)) else {
                continue;
            };
            let ((first, _), (all, bound)) =
                (savings(&iteration, &autoswap, true), savings(&iteration, &autoswap, false));
            let tenth = saving_for_tenth(&iteration, &appobmem);
            let all = report.figure(&row, "AutoSwap, all peaks", all, (1, " %"), Target::AtLeast(34.2));
            let tenth = report.figure(&row, "AppObMem", tenth, (1, " %"), Target::AtLeast(40.0));
            println!("| {row} | {first:.1} % | {all} | {bound:.1} % | {tenth} |");
        }
    }
    println!();
}

/// Percentages of memory saved at no cost, and saved if all tensors that may leave do.
fn savings(iteration: &Iteration, machine: &Machine, first_peak_only: bool) -> (f64, f64) {
    let parameters = Parameters { settle: Settle::OF_STREAMS, first_peak_only, ..Parameters::default() };
    let problem = Problem::new(iteration, machine, &parameters);
    let vote = problem.best(Rule::Vote, Mode::Stick, Goal::LowestLimit);
    let best = problem.optimised(Mode::Stick, Goal::LowestLimit, Effort::default());
    let peak_bytes = [vote, best].into_iter().flatten().map(|plan| plan.peak_bytes).min();
    let saved = |bytes: u64| 100.0 * (1.0 - bytes as f64 / problem.peak_bytes() as f64);
    (peak_bytes.map_or(0.0, saved), saved(problem.least_bytes()))
}

/// Percentage of memory saved for at most a tenth of the time.
fn saving_for_tenth(iteration: &Iteration, machine: &Machine) -> f64 {
    let parameters = Parameters { settle: Settle::OF_STREAMS, ..Parameters::default() };
    let problem = Problem::new(iteration, machine, &parameters);
    let lowest = appobmem::lowest(&problem, iteration.duration_ns() / 10);
    lowest.map_or(0.0, |swaps| 100.0 * (1.0 - swaps.peak_bytes as f64 / problem.peak_bytes() as f64))
}
