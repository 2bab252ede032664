//! Cost of planning and simulating G10, beside its artifact. Each set has a separate process that
//! does nothing else. The kernel accounts the peak of memory by address space, which excludes the
//! parent's; getrusage's peak would include it.

use std::{
    fs,
    process::{Command, Stdio},
};

use super::{
    Report,
    iterations::{for_artifact, run},
    report::{Target, or_skip},
};
use crate::{Result, g10, published_traces};

/// CPU seconds and resident memory in GiB of the artifact's runs of G10, if it was run.
const ARTIFACT: [(&str, Option<(f64, f64)>); 5] = [
    ("BERT_Base/256", Some((90.57, 3.04))),
    ("VIT/1280", Some((133.83, 3.53))),
    ("Inceptionv3/1536", Some((679.73, 10.31))),
    ("ResNet152/1280", None),
    ("SENet154/1024", None),
];

pub(crate) fn beside_artifact(report: &mut Report) {
    report.section(
        "cost of G10",
        "Planning and simulating G10 beside its artifact: a hundredth of the CPU and a fiftieth of the memory",
    );
    println!(
        "Two iterations each, from the trace's file on, each set in a process of its own: CPU seconds, and the most memory resident at once (VmHWM). The"
    );
    println!("artifact's are of runs of it on another day, with jemalloc.\n");
    println!("| set | artifact, s | ours, s | ratio | artifact, MiB | ours, MiB | ratio |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for (set, artifact) in ARTIFACT {
        let Some((own_s, own_kib)) = or_skip(set, child_cost(set)) else { continue };
        let mut ratio = |column, artifact: Option<f64>, own: f64, minimum, digits: usize| {
            let Some(artifact) = artifact else { return format!("- | {own:.digits$} | not run") };
            let times = report.figure(set, column, artifact / own, (0, ""), Target::AtLeast(minimum));
            format!("{artifact:.digits$} | {own:.digits$} | {times}")
        };
        let cpu = ratio("CPU", artifact.map(|(s, _)| s), own_s, 100.0, 2);
        let memory = ratio("memory", artifact.map(|(_, gib)| gib * 1024.0), own_kib / 1024.0, 50.0, 1);
        println!("| {set} | {cpu} | {memory} |");
    }
    println!();
}

/// CPU seconds and peak KiB of a process that plans and runs a set.
fn child_cost(set: &str) -> Result<(f64, f64)> {
    let child = Command::new(std::env::current_exe()?).args(["cost-of", set]).stderr(Stdio::inherit()).output()?;
    if !child.status.success() {
        return Err(format!("the process for {set} failed: {}", child.status).into());
    }
    let text = String::from_utf8(child.stdout)?;
    let (seconds, kib) = text.trim().split_once(' ').ok_or("the process printed no figures")?;
    Ok((seconds.parse()?, kib.parse()?))
}

/// Plans and runs a set in that process, and prints the cost by the kernel's accounting.
pub(crate) fn print_cost(set: &str) -> Result {
    let iteration = g10::load(&published_traces()?, set)?.iteration;
    let machine = g10::machine()?;
    run(&iteration, &for_artifact(&machine), "g10").ok_or("no schedule, or it does not run")?;
    let scheduled = fs::read_to_string("/proc/self/schedstat")?;
    let cpu_s = scheduled.split_whitespace().next().ok_or("schedstat is empty")?.parse::<f64>()? / 1e9;
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel keeps no VmHWM")?;
    println!("{cpu_s} {}", peak.trim().trim_end_matches(" kB"));
    Ok(())
}
