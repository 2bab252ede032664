//! Comparison of the model with published runs on real GPUs. Kernel times on managed memory are read
//! from the folder of published traces. The other figures are few, and are in the source.

mod gpu;
mod nvprof;
mod programs;

use std::path::Path;

use sim::{Machine, Setup, driver};
use trace::{
    Access, Iteration, Role, Tensor,
    draft::{Draft, DraftKernel},
};

use crate::{Result, g10, gib};

pub(crate) fn print() -> Result {
    println!("## GTX 1080 Ti, nvprof\n");
    let runs = nvprof::runs()?;
    nvprof::formulas(&runs)?;
    nvprof::programs(&runs)?;
    gpu_ext()?;
    match published::data() {
        Some(data) => a100(&data)?,
        None => println!("## A100: skipped, as there are no published traces"),
    }
    Ok(())
}

/// `seq_stream` on managed memory: size as a multiple of GPU memory, median ms of a pass, and set.
const SEQ_STREAM: [(f64, f64, &str); 4] =
    [(0.75, 0.861, "input"), (1.0, 137.351, "test"), (1.25, 1931.438, "calibration"), (1.5, 1973.304, "test")];
/// Duration of a pass in GPU memory, in ms, at 0.75 of its size.
const SEQ_STREAM_IDEAL_MS: f64 = 0.865;

/// Passes of a kernel that reads a byte of each page.
fn gpu_ext() -> Result {
    let machine = Machine::named("rtx5090")?;
    let memory = machine.memory.gpu_bytes.value;
    println!("## RTX 5090, gpu_ext's seq_stream\n");
    println!("| size by memory | set | measured, ms | modelled, ms | error | modelled to the GPU, GiB |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for (factor, measured_ms, set) in SEQ_STREAM {
        let bytes = to_u64(memory as f64 * factor);
        let iteration = one_kernel(to_u64(SEQ_STREAM_IDEAL_MS * 1e6 * factor / 0.75), &[(bytes, true)], &[])?;
        let setup = Setup { bytes_per_thread: 4096, iterations: 3, ..Setup::new(&machine) };
        let outcome = driver(&iteration, &setup)?;
        let ms = outcome.time_s * 1e3;
        let gib = gib(outcome.bytes_htod);
        println!("| {factor} | {set} | {measured_ms:.1} | {ms:.1} | {:+.0} % | {gib:.1} |", error(ms, measured_ms));
    }
    println!();
    Ok(())
}

/// G10's sets: added time of a kernel on managed memory, for faults on inputs and on outputs.
fn a100(data: &Path) -> Result {
    let machine = Machine::named("a100")?;
    println!("## A100, G10's kernels on managed memory\n");
    println!(
        "Kernels with 16 MiB to move at least and 1 ms longer on managed memory at least. Added: the time beyond that with all data on the GPU.\n"
    );
    println!(
        "| set | | what faults | kernels | added, s: measured | modelled | error | a kernel's error: median | nine in ten within |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    for (index, name) in published::G10_SETS.into_iter().enumerate() {
        let (set, title) = (g10::load(data, name)?, g10::title(name));
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
        for (faulting, mut added) in [("inputs", inputs), ("outputs", outputs)] {
            added.errors.sort_by(f64::total_cmp);
            let mut sizes: Vec<_> = added.errors.iter().map(|error| error.abs()).collect();
            sizes.sort_by(f64::total_cmp);
            println!(
                "| {title} | {part} | {faulting} | {} | {:.1} | {:.1} | {:+.0} % | {:+.0} % | {:.0} % |",
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
    ) -> Result {
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

/// Iteration of one kernel, with inputs and outputs as (bytes, persistent).
fn one_kernel(duration_ns: u64, inputs: &[(u64, bool)], outputs: &[(u64, bool)]) -> Result<Iteration> {
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

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "figures of runs")]
fn to_u64(figure: f64) -> u64 {
    figure as u64
}
