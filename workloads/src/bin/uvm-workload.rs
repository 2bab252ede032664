//! Runs one workload on a GPU, verifies its data, and reports its exact accesses.

use std::{
    fs,
    io::{self, BufRead, Write},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::{CommandFactory, Parser, error::ErrorKind};
use workloads::{
    PAGE_BYTES,
    catalog::{WORKLOADS, Workload},
    cuda::{self, CudaError},
    exit,
    guard::{self, Denied, FreeMemory},
    report::{Event, Header, PhaseReport, Report},
    run::Run,
};

/// Runs a CUDA program with known faults and copies on managed memory, and verifies its data.
///
/// Exits with 0 on success; 1 for wrong data or a failed call; 2 for a wrong command line; 3
/// without a GPU; 4 if the guard denies the size; 5 if the GPU does not support page faults.
#[derive(Parser)]
#[command(name = "uvm-workload", version)]
#[expect(clippy::struct_excessive_bools, reason = "the switches of a command line")]
struct Options {
    /// The workload; see --list
    #[arg(required_unless_present_any = ["list", "facts"], value_parser = workload)]
    name: Option<Workload>,
    /// Managed memory in MiB
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: u64,
    /// Rounds of the workload
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: u32,
    /// Seed of the pattern and the shuffle
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CUDA's number of the GPU
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    gpu: i32,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print a line of JSON before and after each phase, and wait for a line on standard input
    /// after each, so that observers can take figures at rest
    #[arg(long, conflicts_with = "json")]
    hold: bool,
    /// Allow more memory than the guard: 8 GiB, an eighth of the GPU's free memory, a quarter of
    /// the host's available memory
    #[arg(long)]
    force: bool,
    /// List the workloads
    #[arg(long)]
    list: bool,
    /// Print facts about the GPU, as JSON, and exit
    #[arg(long, conflicts_with = "list")]
    facts: bool,
}

fn workload(name: &str) -> Result<Workload, String> {
    let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    Workload::named(name).ok_or_else(|| format!("the workloads are {}", names()))
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uvm-workload: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<CudaError>() {
        Some(CudaError::NoLibrary | CudaError::NoFunction(_) | CudaError::NoDriver(_) | CudaError::NoDevice { .. }) => {
            exit::NO_GPU
        }
        Some(CudaError::Unsupported { .. }) => exit::UNSUPPORTED,
        _ if error.is::<Denied>() => exit::DENIED,
        _ => exit::FAILED,
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        for Workload { name, description, .. } in WORKLOADS {
            println!("{name:20} {description}");
        }
        return Ok(());
    }
    if let Some(name) = options.name.filter(|name| name.is_shuffled() && !options.mib.is_power_of_two()) {
        let problem = format!("{} needs a --mib that is a power of two, not {}", name.name, options.mib);
        Options::command().error(ErrorKind::ValueValidation, problem).exit();
    }
    let device = cuda::open(options.gpu)?;
    let Some(workload) = options.name.filter(|_| !options.facts) else {
        println!("{}", serde_json::to_string_pretty(device.gpu())?);
        return Ok(());
    };
    let bytes = options.mib << 20;
    let gpu = device.gpu().clone();
    if !options.force {
        let host_bytes = fs::read_to_string("/proc/meminfo").ok().and_then(|text| guard::host_available_bytes(&text));
        FreeMemory { gpu_bytes: gpu.free_bytes, host_bytes }.check(bytes)?;
    }
    let phases = workload.phases(options.iterations);
    let machine = device.managed(bytes)?;
    let header = Header {
        workload: workload.name.to_owned(),
        pid: std::process::id(),
        gpu,
        address: machine.address(),
        bytes,
        pages: bytes / PAGE_BYTES,
        iterations: options.iterations,
        seed: options.seed,
        phases: phases.iter().map(ToString::to_string).collect(),
    };
    let hold = |event| if options.hold { emit(&event).and_then(|()| wait()) } else { Ok(()) };
    hold(Event::Begun(header.clone()))?;
    let mut run = Run::new(machine, options.seed);
    let mut done = Vec::with_capacity(phases.len());
    for phase in phases {
        hold(Event::Ready { phase: phase.to_string() })?;
        let report = run.phase(phase)?;
        hold(Event::Done(report.clone()))?;
        done.push(report);
    }
    let report = Report::new(header, done);
    if options.hold {
        emit(&Event::Ended(report))
    } else if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(())
    } else {
        print(&report);
        Ok(())
    }
}

fn emit(event: &Event) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let line = serde_json::to_string(event)?;
    writeln!(out, "{line}").and_then(|()| out.flush()).context("cannot write to standard output")
}

fn wait() -> anyhow::Result<()> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).context("cannot wait for a line")? == 0 {
        bail!("standard input ended before the workload did");
    }
    Ok(())
}

fn print(report: &Report) {
    let Header { workload, gpu, bytes, pages, .. } = &report.header;
    println!("{workload} on {} ({}): {} MiB, {pages} pages; the data is right", gpu.name, gpu.uuid, bytes >> 20);
    println!(
        "{:24} {:>12} {:>12} {:>9} {:>11}  predicted: host to GPU, GPU to host, GPU faults",
        "phase", "read", "written", "pages", "ms"
    );
    for PhaseReport { phase, toucher: _, read_bytes, written_bytes, pages_touched, elapsed_ms, predicted } in
        &report.done
    {
        let faults = if predicted.gpu_faults { "some" } else { "none" };
        println!(
            "{phase:24} {read_bytes:>12} {written_bytes:>12} {pages_touched:>9} {elapsed_ms:>11.3}  {:>12} {:>12} {faults}",
            predicted.bytes_htod, predicted.bytes_dtoh
        );
    }
    println!(
        "written by the CPU: {} bytes; read by the GPU: {} bytes",
        report.cpu_written_bytes, report.gpu_read_bytes
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn every_lack_of_a_gpu_has_one_exit_code_and_a_denial_another() {
        assert_eq!(exit_code(&CudaError::NoLibrary.into()), exit::NO_GPU);
        assert_eq!(exit_code(&CudaError::NoDevice { index: 0, count: 0 }.into()), exit::NO_GPU);
        assert_eq!(exit_code(&CudaError::Unsupported { gpu: String::new(), missing: "" }.into()), exit::UNSUPPORTED);
        let denied = FreeMemory { gpu_bytes: 8, host_bytes: None }.check(2).unwrap_err();
        assert_eq!(exit_code(&denied.into()), exit::DENIED);
        assert_eq!(exit_code(&anyhow::anyhow!("the data is wrong")), exit::FAILED);
    }

    #[test]
    fn the_error_for_an_unknown_workload_lists_the_known_ones() {
        assert!(workload("fill-the-card").unwrap_err().contains("ping-pong"));
    }
}
