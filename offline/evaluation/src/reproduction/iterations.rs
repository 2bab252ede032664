//! Time of iterations: G10's figure 11, and iterations with kernel times of a roofline model.

use std::path::Path;

use planner::by_name;
use sim::{Machine, Outcome, Setup, auto_plan, bound_s, driver, planned};
use trace::Iteration;
use trace_sources::zoo::{Hardware, Recipe};

use super::{
    Report,
    report::{Target, or_skip},
};
use crate::{GIB, Result, g10};

/// Set-up of G10's artifact.
pub(crate) fn for_artifact(machine: &Machine) -> Setup<'_> {
    Setup { host_bytes: g10::HOST_BYTES, ..Setup::new(machine) }
}

/// Published seconds of an iteration with Base UVM, `FlashNeuron`, DeepUM+ and G10.
const FIGURE_11: [(&str, [Option<f64>; 4]); 5] = [
    ("BERT_Base/256", [Some(19.65), Some(10.22), Some(9.16), Some(7.311)]),
    ("VIT/1280", [Some(24.60), None, Some(7.558), Some(5.540)]),
    ("Inceptionv3/1536", [Some(281.0), None, Some(88.67), Some(61.09)]),
    ("ResNet152/1280", [Some(468.9), Some(175.3), Some(132.0), Some(114.4)]),
    ("SENet154/1024", [Some(730.8), Some(249.4), Some(193.1), Some(142.3)]),
];

pub(crate) fn of_g10(report: &mut Report, data: &Path) -> Result {
    let machine = g10::machine()?;
    let setup = for_artifact(&machine);
    report.section("G10's figure 11", "G10's figure 11: seconds of an iteration, a tenth allowed");
    println!(
        "40 GiB, 128 GiB of the host, a link of 15.754 GB/s each way, flash of 3.2 GB/s. \"-\": it fails there, as published. The model is another: faults cost what"
    );
    println!("A100s were seen to take, memory is reused, capacity holds for all.\n");
    println!(
        "| set | ideal | Base UVM | driver | FlashNeuron | flashneuron | DeepUM+ | deepum | G10 | g10 | vdnn-all | foresight | auto-plan | by | bound | auto-plan by bound |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (set, times_s) in FIGURE_11 {
        let Some(iteration) = or_skip(set, g10::load(data, set)).map(|loaded| loaded.iteration) else { continue };
        let own = [
            Some(driver(&iteration, &setup)?.time_s),
            run(&iteration, &setup, "flashneuron"),
            run(&iteration, &setup, "deepum"),
            run(&iteration, &setup, "g10"),
        ];
        let columns = ["driver", "flashneuron", "deepum", "g10"].into_iter();
        let cells: Vec<_> = columns
            .zip(times_s.into_iter().zip(own))
            .map(|(column, (published, own))| cell(report, set, column, published, own))
            .collect();
        let (vdnn, foresight) = (run(&iteration, &setup, "vdnn-all"), run(&iteration, &setup, "foresight"));
        let best = auto_plan(&iteration, &setup)?;
        let bound_s = bound_s(&iteration, &setup);
        println!(
            "| {set} | {:.2} | {} | {} | {} | {:.2} | {} | {bound_s:.2} | {:.3} |",
            best.outcome.ideal_s,
            cells.join(" | "),
            seconds(vdnn),
            seconds(foresight),
            best.outcome.time_s,
            best.by,
            best.outcome.time_s / bound_s,
        );
    }
    println!();
    Ok(())
}

/// Seconds of an iteration with a planner; `None` if there is no schedule or it does not run.
pub(crate) fn run(iteration: &Iteration, setup: &Setup<'_>, planner: &str) -> Option<f64> {
    let schedule = by_name(planner)?.plan(iteration, &setup.for_planners()).ok()?;
    planned(iteration, setup, &schedule).ok().map(|Outcome { time_s, .. }| time_s)
}

fn seconds(time_s: Option<f64>) -> String {
    time_s.map_or("-".to_owned(), |time_s| format!("{time_s:.2}"))
}

fn cell(report: &mut Report, set: &str, column: &str, published: Option<f64>, own: Option<f64>) -> String {
    let cell = match (published, own) {
        (Some(published), Some(own)) => report.figure(set, column, own, (2, " s"), Target::Within(published, 0.1)),
        (Some(published), None) => {
            report.differs(set, column, "-", &format!("published {published:.2} s, does not run here"))
        }
        (None, Some(own)) => report.differs(set, column, &format!("{own:.2} s"), "published: fails"),
        (None, None) => "-".to_owned(),
    };
    format!("{} | {cell}", seconds(published))
}

/// Recipe, machine, its memory in GiB, and whether it has the artifact's link instead of its own. A
/// mixture of experts is omitted: planners by scores take minutes for its 16 000 kernels.
const RECIPES: [(&str, &str, u64, bool); 8] = [
    ("resnet152:512", "a100", 40, true),
    ("resnet152:512", "a100", 40, false),
    ("resnet50:512", "gtx1080ti", 11, false),
    ("vgg16:256", "gtx1080ti", 11, false),
    ("gpt:8", "a100", 10, false),
    ("vit:512", "h100", 40, false),
    ("bert:256", "h200", 20, false),
    ("bert:256", "gh200", 20, false),
];

pub(crate) fn by_roofline(report: &mut Report) -> Result {
    report.section(
        "roofline",
        "Kernel times of a roofline: auto-plan is to take half of g10's time where the bound allows it",
    );
    println!(
        "| iteration | machine | GiB | ideal | driver | vdnn-all | g10 | foresight | auto-plan | by | bound | auto-plan by bound | g10 by auto-plan | g10 by bound |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (recipe, name, memory_gib, is_artifact) in RECIPES {
        let machine = if is_artifact { g10::machine()? } else { Machine::named(name)? };
        let iteration = recipe.parse::<Recipe>()?.make(&Hardware::named(name).ok_or("no such hardware")?)?;
        let setup = Setup { gpu_bytes: memory_gib * GIB, ..Setup::new(&machine) };
        let [vdnn, g10, foresight] = ["vdnn-all", "g10", "foresight"].map(|planner| run(&iteration, &setup, planner));
        let best = auto_plan(&iteration, &setup)?;
        let (best_s, bound_s) = (best.outcome.time_s, bound_s(&iteration, &setup));
        let link = if is_artifact { ", 15.754 GB/s" } else { "" };
        let row = format!("{recipe} on {name}{link}");
        let of_bound = g10.map_or("-".to_owned(), |g10| format!("{:.2}", g10 / bound_s));
        let of_best = match g10 {
            Some(g10) if g10 / bound_s >= 2.0 => {
                report.figure(&row, "g10 by auto-plan", g10 / best_s, (2, ""), Target::AtLeast(2.0))
            }
            _ => g10.map_or("-".to_owned(), |g10| format!("{:.2}", g10 / best_s)),
        };
        println!(
            "| {recipe} | {name}{link} | {memory_gib} | {:.3} | {:.3} | {} | {} | {} | {best_s:.3} | {} | {bound_s:.3} | {:.3} | {of_best} | {of_bound} |",
            best.outcome.ideal_s,
            driver(&iteration, &setup)?.time_s,
            millis(vdnn),
            millis(g10),
            millis(foresight),
            best.by,
            best_s / bound_s,
        );
    }
    println!();
    Ok(())
}

fn millis(time_s: Option<f64>) -> String {
    time_s.map_or("-".to_owned(), |time_s| format!("{time_s:.3}"))
}
