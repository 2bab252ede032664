//! The model beside published runs on real GPUs: `cargo run --release -p sim --example published`. docs/measurements/simulator.md holds what it prints.
//!
//! Kernel times on managed memory are read from the folder of published traces that `UVMD_DATA` names; the other figures are few and stand here.
#![expect(clippy::print_stdout, reason = "prints a report")]

use std::{error::Error, ffi::OsString, path::Path};

use sim::{Machine, Setup, driver};
use trace::{
    Access, Iteration, Role, Tensor,
    draft::{Draft, DraftKernel},
    import::g10,
};

fn main() -> Result<(), Box<dyn Error>> {
    nvprof()?;
    gpu_ext()?;
    match std::env::var_os("UVMD_DATA") {
        Some(data) => a100(&data)?,
        None => println!("## A100: skipped, UVMD_DATA names no folder of published traces"),
    }
    Ok(())
}

/// One nvprof run on a GTX 1080 Ti.
struct Profile {
    htod_mib: f64,
    mean_kib: f64,
    htod_gib_per_s: f64,
    groups: f64,
    group_us: f64,
}

const fn run(htod_mib: f64, mean_kib: f64, htod_gib_per_s: f64, groups: f64, group_us: f64) -> Profile {
    Profile { htod_mib, mean_kib, htod_gib_per_s, groups, group_us }
}

/// Seven programs with as much memory as they use, and with 1.25 and 1.5 times less: from the logs published by Ganguly et al. (`gpgpu-sim_UVMSmart`).
const PROFILES: [(&str, [Profile; 3]); 7] = [
    (
        "backprop",
        [run(26.7, 71.0, 9.6, 69.0, 155.0), run(26.8, 72.0, 9.6, 68.0, 161.0), run(30.7, 48.0, 9.1, 102.0, 143.0)],
    ),
    (
        "fdtd",
        [run(102.0, 77.0, 9.7, 205.0, 182.0), run(177.0, 81.0, 9.7, 331.0, 190.0), run(215.0, 78.0, 9.8, 364.0, 200.0)],
    ),
    (
        "hotspot",
        [run(44.0, 129.0, 10.1, 99.0, 198.0), run(56.0, 56.0, 9.2, 169.0, 177.0), run(63.0, 49.0, 9.1, 187.0, 168.0)],
    ),
    (
        "sssp",
        [run(291.0, 39.0, 8.7, 395.0, 295.0), run(332.0, 39.0, 8.8, 416.0, 312.0), run(268.0, 36.0, 8.5, 343.0, 315.0)],
    ),
    (
        "nw",
        [
            run(135.0, 32.0, 8.6, 153.0, 572.0),
            run(541.0, 34.0, 8.7, 528.0, 601.0),
            run(5078.0, 36.0, 8.9, 3467.0, 646.0),
        ],
    ),
    (
        "ra",
        [run(16.0, 25.0, 8.1, 18.0, 485.0), run(197.0, 25.0, 8.0, 66.0, 1108.0), run(85.0, 24.0, 7.6, 30.0, 1016.0)],
    ),
    (
        "bfs",
        [
            run(6397.0, 21.0, 7.6, 5305.0, 560.0),
            run(28407.0, 18.0, 7.1, 18219.0, 723.0),
            run(91268.0, 17.0, 6.9, 72888.0, 601.0),
        ],
    ),
];

/// Rate of the link, and time of a group of faults: of the runs' own bytes, transfers and groups, which the model is given.
fn nvprof() -> Result<(), Box<dyn Error>> {
    let machine = Machine::named("gtx1080ti")?;
    println!("## GTX 1080 Ti, nvprof\n");
    println!(
        "| program | memory | set | link, GiB/s: measured | modelled | error | group of faults, us: measured | modelled | error |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut link_errors, mut calibration, mut test) = (Vec::new(), Vec::new(), Vec::new());
    for (program, profiles) in &PROFILES {
        for (index, (profile, memory)) in profiles.iter().zip(["1", "1/1.25", "1/1.5"]).enumerate() {
            let transfer_ns = machine.link_to_gpu.transfer_ns(bytes(profile.mean_kib)) as f64;
            let gib_per_s = profile.mean_kib / f64::from(1 << 20) * 1e9 / transfer_ns;
            let transfers = profile.htod_mib * 1024.0 / profile.mean_kib / profile.groups;
            let faults = &machine.faults;
            let group_us = (faults.batch_ns.value + transfers * (faults.transfer_ns.value + transfer_ns)) / 1e3;
            let (link, group) = (error(gib_per_s, profile.htod_gib_per_s), error(group_us, profile.group_us));
            link_errors.push(link);
            let (set, errors) = if index == 0 { ("calibration", &mut calibration) } else { ("test", &mut test) };
            errors.push(group);
            println!(
                "| {program} | {memory} | {set} | {} | {gib_per_s:.1} | {link:+.0} % | {} | {group_us:.0} | {group:+.0} % |",
                profile.htod_gib_per_s, profile.group_us
            );
        }
    }
    println!("\nMean absolute error: link {:.1} % (21 runs, none of them for calibration); ", mean_abs(&link_errors));
    println!(
        "group of faults {:.1} % (7 for calibration), {:.1} % (14 for test).\n",
        mean_abs(&calibration),
        mean_abs(&test)
    );
    Ok(())
}

/// `seq_stream` on managed memory: size by the GPU's memory, median ms of a pass.
const SEQ_STREAM: [(f64, f64, &str); 4] =
    [(0.75, 0.861, "input"), (1.0, 137.351, "test"), (1.25, 1931.438, "calibration"), (1.5, 1973.304, "test")];
/// How long a pass takes in the GPU's memory, at 0.75 of its size.
const SEQ_STREAM_IDEAL_MS: f64 = 0.865;

/// A kernel reads a byte of each page; one pass after the other.
fn gpu_ext() -> Result<(), Box<dyn Error>> {
    let machine = Machine::named("rtx5090")?;
    let memory = machine.memory.gpu_bytes.value;
    println!("## RTX 5090, gpu_ext's seq_stream\n");
    println!("| size by memory | set | measured, ms | modelled, ms | error | modelled to the GPU, GiB |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (factor, measured_ms, set) in SEQ_STREAM {
        let bytes = whole(memory as f64 * factor);
        let iteration = one_kernel(whole(SEQ_STREAM_IDEAL_MS * 1e6 * factor / 0.75), &[(bytes, true)], &[])?;
        let setup = Setup { bytes_per_thread: 4096, iterations: 3, ..Setup::new(&machine) };
        let outcome = driver(&iteration, &setup)?;
        let ms = outcome.time_s * 1e3;
        let gib = outcome.bytes_htod as f64 / f64::from(1 << 30);
        println!("| {factor} | {set} | {measured_ms:.1} | {ms:.1} | {:+.0} % | {gib:.1} |", error(ms, measured_ms));
    }
    println!();
    Ok(())
}

/// G10's sets: how much longer a kernel takes on managed memory, all of it faulting, and its outputs alone.
fn a100(data: &OsString) -> Result<(), Box<dyn Error>> {
    let machine = Machine::named("a100")?;
    println!("## A100, G10's kernels on managed memory\n");
    println!(
        "Kernels with 16 MiB to move at least and 1 ms longer on managed memory at least. Added: the time beyond that with all data on the GPU.\n"
    );
    println!(
        "| set | | what faults | kernels | added, s: measured | modelled | error | a kernel's error: median | nine in ten within |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (index, (model, batch)) in
        [("BERT_Base", 256), ("VIT", 1280), ("Inceptionv3", 1536), ("ResNet152", 1280), ("SENet154", 1024)]
            .iter()
            .enumerate()
    {
        let set = g10::load(&Path::new(data).join(format!("g10/derived/{model}/{batch}.kernels.csv")))?;
        let part = if index == 0 { "calibration" } else { "test" };
        let mut outputs = Added::default();
        let mut inputs = Added::default();
        for (id, kernel) in set.iteration.kernels().iter() {
            let faulting = set.faulting[id];
            let bytes = |reads: bool| {
                let operands =
                    set.iteration.operands(id).iter().filter(move |operand| (operand.access != Access::Write) == reads);
                let tensors = operands.map(|operand| &set.iteration.tensors()[operand.tensor]);
                tensors
                    .filter(|tensor| tensor.role != Role::Workspace)
                    .map(|tensor| (tensor.bytes, false))
                    .collect::<Vec<_>>()
            };
            let duration_ns = kernel.duration_ns;
            outputs.add(&machine, duration_ns, &[], &bytes(false), measured_s(faulting.outputs_ns, duration_ns))?;
            inputs.add(&machine, duration_ns, &bytes(true), &[], measured_s(faulting.all_ns, faulting.outputs_ns))?;
        }
        for (what, mut added) in [("inputs", inputs), ("outputs", outputs)] {
            added.errors.sort_by(f64::total_cmp);
            let mut sizes: Vec<_> = added.errors.iter().map(|error| error.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            println!(
                "| {model} {batch} | {part} | {what} | {} | {:.1} | {:.1} | {:+.0} % | {:+.0} % | {:.0} % |",
                sizes.len(),
                added.measured_s,
                added.modelled_s,
                error(added.modelled_s, added.measured_s),
                added.errors.get(sizes.len() / 2).unwrap_or(&f64::NAN),
                sizes.get(sizes.len() * 9 / 10).unwrap_or(&f64::NAN),
            );
        }
    }
    Ok(())
}

#[derive(Default)]
struct Added {
    measured_s: f64,
    modelled_s: f64,
    errors: Vec<f64>,
}

impl Added {
    fn add(
        &mut self,
        machine: &Machine,
        duration_ns: u64,
        inputs: &[(u64, bool)],
        outputs: &[(u64, bool)],
        measured_s: f64,
    ) -> Result<(), Box<dyn Error>> {
        let bytes: u64 = inputs.iter().chain(outputs).map(|(bytes, _)| bytes).sum();
        if bytes < 16 << 20 || measured_s < 1e-3 || bytes > machine.memory.gpu_bytes.value {
            return Ok(());
        }
        let iteration = one_kernel(duration_ns, inputs, outputs)?;
        let modelled_s = driver(&iteration, &Setup { iterations: 1, ..Setup::new(machine) })?.stall_s;
        self.measured_s += measured_s;
        self.modelled_s += modelled_s;
        self.errors.push(error(modelled_s, measured_s));
        Ok(())
    }
}

/// An iteration of one kernel, with inputs and outputs of so many bytes, which stay or do not.
fn one_kernel(duration_ns: u64, inputs: &[(u64, bool)], outputs: &[(u64, bool)]) -> Result<Iteration, Box<dyn Error>> {
    let mut draft = Draft::default();
    let mut tensors = |list: &[(u64, bool)]| {
        let tensor = |&(bytes, persistent)| Tensor { name: String::new(), bytes, role: Role::Other, persistent };
        list.iter().map(|entry| draft.tensor(tensor(entry))).collect::<Vec<_>>()
    };
    let (inputs, outputs) = (tensors(inputs), tensors(outputs));
    draft.kernel(DraftKernel { name: String::new(), duration_ns, inputs, outputs });
    Ok(draft.check()?)
}

fn measured_s(with_ns: u64, without_ns: u64) -> f64 {
    (with_ns as f64 - without_ns as f64) / 1e9
}

fn error(modelled: f64, measured: f64) -> f64 {
    (modelled / measured - 1.0) * 100.0
}

fn mean_abs(errors: &[f64]) -> f64 {
    errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64
}

fn bytes(kib: f64) -> u64 {
    whole(kib * 1024.0)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures of runs")]
fn whole(figure: f64) -> u64 {
    figure as u64
}
