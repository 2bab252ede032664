//! Methods that depend on launches, and on the compression ratio of data: PUMP and cDMA.

use std::path::Path;

use planner::{Planner, pump::Pump};
use sim::{Machine, Setup, driver, planned};
use trace_sources::zoo::{Hardware, Recipe};

use super::{
    Report,
    iterations::run,
    report::{Target, or_skip},
};
use crate::{GIB, Result, g10};

pub(crate) fn pump(report: &mut Report, data: Option<&Path>) -> Result {
    report.section("PUMP", "PUMP: faster than the driver alone, by how far ahead kernels are launched");
    println!(
        "Published: twice as fast in the mean; it is not said with which lead. Leads seen in published traces of training are 0.002 to 164 ms at the median.\n"
    );
    println!(
        "| iteration | GiB | driver, s | lead 0 | 0.6 ms | 10 ms | 76 ms | 164 ms |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let machine = Machine::named("a100")?;
    let hardware = Hardware::named("a100").ok_or("no such hardware")?;
    let mut iterations = vec![];
    for recipe in ["resnet50:256", "bert:256", "gpt:8"] {
        iterations.push((recipe.to_owned(), recipe.parse::<Recipe>()?.make(&hardware)?));
    }
    for set in ["BERT_Base/256", "VIT/1280"] {
        let Some(data) = data else { break };
        iterations.extend(or_skip(set, g10::load(data, set)).map(|loaded| (set.to_owned(), loaded.iteration)));
    }
    let (mut product, mut count) = ([1.0_f64; 5], 0.0);
    for (name, iteration) in iterations {
        for share in [0.8, 0.6] {
            let peak_bytes = iteration.peak().bytes;
            let gpu_bytes = gib_of(peak_bytes, share) * GIB;
            let setup = Setup { gpu_bytes, ..Setup::new(&machine) };
            let driver_s = driver(&iteration, &setup)?.time_s;
            let mut gains = Vec::new();
            for (lead_ns, product) in [0, 600_000, 10_000_000, 76_000_000, 164_000_000].into_iter().zip(&mut product) {
                let schedule = Pump { lead_ns, ..Pump::default() }.plan(&iteration, &setup.for_planners())?;
                let gain = driver_s / planned(&iteration, &setup, &schedule)?.time_s;
                *product *= gain;
                gains.push(format!("{gain:.2}"));
            }
            count += 1.0;
            println!("| {name} | {} | {driver_s:.2} | {} |", gpu_bytes / GIB, gains.join(" | "));
        }
    }
    let mean = |(product, lead): (&f64, _)| {
        report.figure("geometric mean", lead, product.powf(1.0 / count), (2, ""), Target::AtLeast(2.0))
    };
    let means: Vec<_> = product.iter().zip(["lead 0", "0.6 ms", "10 ms", "76 ms", "164 ms"]).map(mean).collect();
    println!("| geometric mean | | | {} |\n", means.join(" | "));
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
fn gib_of(bytes: u64, share: f64) -> u64 {
    ((bytes as f64 * share / GIB as f64) as u64).max(1)
}

pub(crate) fn packing(report: &mut Report, data: Option<&Path>) -> Result {
    report.section("cDMA", "cDMA: faster than the same planner without packing");
    println!(
        "Published over vDNN: 1.32 in the mean and 1.61 at most (arXiv, first version); 1.53 and 1.79 (HPCA'18, Titan Xp), at a ratio of 2.6 in the mean. All that crosses"
    );
    println!(
        "the link is packed here at one ratio, by the engine's rate; ratios of real data stand in measurements/zvc.md.\n"
    );
    println!(
        "| iteration | machine | GiB | planner | time, s | ratio 1.9 | 2.6 | 13.8 |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut rows = Vec::new();
    for (recipe, name, memory_gib) in
        [("vgg16:128", "gtx1080ti", 11), ("resnet50:128", "gtx1080ti", 11), ("resnet152:512", "a100", 40)]
    {
        let hardware = Hardware::named(name).ok_or("no such hardware")?;
        rows.push((recipe, name, memory_gib, recipe.parse::<Recipe>()?.make(&hardware)?));
    }
    if let Some(data) = data {
        let set = or_skip("VIT/1280", g10::load(data, "VIT/1280"));
        rows.extend(set.map(|set| ("VIT/1280", "a100", 40, set.iteration)));
    }
    let mut over_vdnn = Vec::new();
    for (recipe, name, memory_gib, iteration) in rows {
        let machine = Machine::named(name)?;
        for planner in ["vdnn-all", "vdnn-conv", "g10"] {
            let time_s = |machine: &Machine| {
                let setup = Setup { gpu_bytes: memory_gib * GIB, ..Setup::new(machine) };
                run(&iteration, &setup, planner)
            };
            let Some(plain_s) = time_s(&machine) else {
                println!("| {recipe} | {name} | {memory_gib} | {planner} | - | | | |");
                continue;
            };
            let gains =
                [1.9, 2.6, 13.8].map(|ratio| time_s(&machine.packing(ratio)).map(|packed_s| plain_s / packed_s));
            if planner != "g10" {
                over_vdnn.extend(gains[1]);
            }
            let gains = gains.map(|gain| gain.map_or("-".to_owned(), |gain| format!("{gain:.2}")));
            println!("| {recipe} | {name} | {memory_gib} | {planner} | {plain_s:.3} | {} |", gains.join(" | "));
        }
    }
    let mean = (over_vdnn.iter().map(|gain| gain.ln()).sum::<f64>() / over_vdnn.len() as f64).exp();
    let mean = report.figure("geometric mean over vDNN", "ratio 2.6", mean, (2, ""), Target::AtLeast(1.32));
    println!("| geometric mean over vDNN | | | | | | {mean} | |\n");
    Ok(())
}
