//! Runs one workload on a GPU, verifies its data, and says exactly what it did.

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
    guard::{self, Free, Refused},
    report::{Event, Header, PhaseReport, Report},
    run::Run,
};

/// Runs a CUDA program on managed memory whose faults and copies are known beforehand, and verifies its data.
///
/// Exits with 0 when all is right; 1 when data is wrong or a call failed; 2 for a wrong command line; 3 without a GPU; 4 when the guard refuses the
/// size; 5 when the GPU does not take page faults.
#[derive(Parser)]
#[command(name = "uvm-workload", version)]
#[expect(clippy::struct_excessive_bools, reason = "the switches of a command line")]
struct Options {
    /// The workload; see --list
    #[arg(required_unless_present_any = ["list", "facts"], value_parser = workload)]
    name: Option<Workload>,
    /// Managed memory
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mib: u64,
    /// How often the workload's round is done
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: u32,
    /// Another pattern, and another shuffle
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// CUDA's number of the GPU
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..))]
    gpu: i32,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// A line of JSON before and after each phase, and wait for a line on standard input after each: figures can be taken at rest
    #[arg(long, conflicts_with = "json")]
    hold: bool,
    /// Ask for more memory than the guard allows: 8 GiB, an eighth of what is free on the GPU, a quarter of what is available on the host
    #[arg(long)]
    force: bool,
    /// List the workloads
    #[arg(long)]
    list: bool,
    /// Print what the GPU is, as JSON, and end
    #[arg(long, conflicts_with = "list")]
    facts: bool,
}

fn workload(name: &str) -> Result<Workload, String> {
    let names = || WORKLOADS.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ");
    Workload::named(name).ok_or_else(|| format!("there are {}", names()))
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
        _ if error.is::<Refused>() => exit::REFUSED,
        _ => exit::FAILED,
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    if options.list {
        for Workload { name, about, .. } in WORKLOADS {
            println!("{name:20} {about}");
        }
        return Ok(());
    }
    if let Some(name) = options.name.filter(|name| name.is_shuffled() && !options.mib.is_power_of_two()) {
        let problem = format!("{} needs a --mib that is a power of two, not {}", name.name, options.mib);
        Options::command().error(ErrorKind::ValueValidation, problem).exit();
    }
    let device = cuda::open(options.gpu)?;
    let Some(workload) = options.name.filter(|_| !options.facts) else {
        println!("{}", serde_json::to_string_pretty(device.about())?);
        return Ok(());
    };
    let bytes = options.mib << 20;
    let gpu = device.about().clone();
    if !options.force {
        let host_bytes = fs::read_to_string("/proc/meminfo").ok().and_then(|text| guard::host_available_bytes(&text));
        Free { gpu_bytes: gpu.free_bytes, host_bytes }.allow(bytes)?;
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
    let hold = |event| if options.hold { tell(&event).and_then(|()| wait()) } else { Ok(()) };
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
        tell(&Event::Ended(report))
    } else if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
        Ok(())
    } else {
        print(&report);
        Ok(())
    }
}

fn tell(event: &Event) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let line = serde_json::to_string(event)?;
    writeln!(out, "{line}").and_then(|()| out.flush()).context("nobody listens")
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
    fn each_way_of_having_no_gpu_has_the_same_exit_code_and_a_refusal_another() {
        assert_eq!(exit_code(&CudaError::NoLibrary.into()), exit::NO_GPU);
        assert_eq!(exit_code(&CudaError::NoDevice { index: 0, count: 0 }.into()), exit::NO_GPU);
        assert_eq!(exit_code(&CudaError::Unsupported { gpu: String::new(), lack: "" }.into()), exit::UNSUPPORTED);
        let refused = Free { gpu_bytes: 8, host_bytes: None }.allow(2).unwrap_err();
        assert_eq!(exit_code(&refused.into()), exit::REFUSED);
        assert_eq!(exit_code(&anyhow::anyhow!("the data is wrong")), exit::FAILED);
    }

    #[test]
    fn an_unknown_workload_is_refused_with_the_known_ones() {
        assert!(workload("fill-the-card").unwrap_err().contains("ping-pong"));
    }
}
