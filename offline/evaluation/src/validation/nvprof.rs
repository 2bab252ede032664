//! Seven programs on a GTX 1080 Ti with as much memory as they use, and with 1.25 and 1.5 times
//! less: nvprof logs of Ganguly et al. (`gpgpu-sim_UVMSmart`).

use sim::{Machine, units::BLOCK_BYTES};

use super::{error, gpu::Process, mean_abs, programs, to_u64};
use crate::Result;

/// Figures of each log, in columns: program; divisor of the memory; bytes that the run allocated
/// beforehand, which leave the rest to the program; MiB to the GPU, KiB per transfer, GiB/s; MiB to
/// the host; fault groups, us per group; ms in kernels; CPU faults.
const LOGS: &str = "
backprop 1    11525881856 26.688  71.352 9.6  22.625  69    155.3  11.117  114
backprop 1.25 11529564980 26.812  72.252 9.6  24.750  68    161.2  11.308  106
backprop 1.5  11532020395 30.688  47.757 9.1  30.500  102   142.8  14.675  101
fdtd     1    11525357568 102.312 77.035 9.7  92.312  205   182.2  37.514  73
fdtd     1.25 11529145549 176.812 80.576 9.7  168.812 331   190.4  62.643  68
fdtd     1.5  11531670870 215.000 77.712 9.8  210.938 364   200.3  70.986  63
hotspot  1    11531714560 44.000  128.73 10.1 42.000  99    198.1  20.324  36
hotspot  1.25 11534860288 56.188  55.644 9.2  56.188  169   176.9  29.651  31
hotspot  1.5  11535908864 63.312  49.152 9.1  63.312  187   167.9  31.577  31
nw       1    11535777792 134.578 31.797 8.6  50.625  153   571.5  154.002 32
nw       1.25 11537481728 540.676 34.028 8.7  710.125 528   600.5  245.430 32
nw       1.5  11538617686 5077.69 36.099 8.9  5074.00 3467  645.6  1515.23 32
sssp     1    11514937344 291.000 38.789 8.7  279.000 395   295.0  88.659  72
sssp     1.25 11521228800 331.812 38.800 8.8  325.812 416   312.4  98.538  72
sssp     1.5  11525423104 267.543 35.910 8.5  436.250 343   314.5  131.434 72
ra       1    11531714560 16.000  25.401 8.1  14.000  18    484.6  6.328   36
ra       1.25 11534860288 197.398 24.881 8.0  2.375   66    1108.0 96.339  29
ra       1.5  11535908864 85.207  24.176 7.6  21.188  30    1015.7 131.790 36
bfs      1    11534073856 6397.24 20.647 7.6  6478.69 5305  560.2  2180.61 37
bfs      1.25 11536118580 28407.0 18.095 7.1  28259.2 18219 723.0  9718.21 37
bfs      1.5  11537481728 91267.6 17.065 6.9  90791.9 72888 601.2  33502.1 37
";

/// Free GPU memory before the run's own allocation, equal in all logs.
const FREE_BYTES: u64 = 11_544_297_472;

/// Run, with the figures of its log.
pub(crate) struct Run {
    program: &'static str,
    divisor: f64,
    allocated_bytes: u64,
    htod_mib: f64,
    transfer_kib: f64,
    htod_gib_per_s: f64,
    dtoh_mib: f64,
    groups: f64,
    group_us: f64,
    kernels_ms: f64,
    cpu_faults: f64,
}

impl Run {
    fn parse(line: &'static str) -> Result<Self> {
        let mut fields = line.split_whitespace();
        let program = fields.next().unwrap_or_default();
        let mut number = || -> Result<f64> { Ok(fields.next().ok_or("a figure is missing")?.parse()?) };
        Ok(Self {
            program,
            divisor: number()?,
            allocated_bytes: to_u64(number()?),
            htod_mib: number()?,
            transfer_kib: number()?,
            htod_gib_per_s: number()?,
            dtoh_mib: number()?,
            groups: number()?,
            group_us: number()?,
            kernels_ms: number()?,
            cpu_faults: number()?,
        })
    }

    fn memory(&self) -> String {
        if self.divisor > 1.0 { format!("1/{}", self.divisor) } else { "1".to_owned() }
    }

    /// Whether parameters were fitted to the run: one with as much memory as the program uses.
    fn calibrates(&self) -> bool {
        self.divisor <= 1.0
    }

    fn set(&self) -> &'static str {
        if self.calibrates() { "calibration" } else { "test" }
    }

    /// Blocks of 2 MiB left for managed memory.
    fn blocks(&self, has_device_memory: bool) -> u64 {
        let left = FREE_BYTES.saturating_sub(self.allocated_bytes.next_multiple_of(BLOCK_BYTES));
        (left / BLOCK_BYTES).saturating_sub(u64::from(has_device_memory))
    }
}

/// All runs.
pub(crate) fn runs() -> Result<Vec<Run>> {
    LOGS.lines().filter(|line| !line.is_empty()).map(Run::parse).collect()
}

/// Compares the link's rate and the time of a fault group. Bytes, transfers and groups are the
/// run's own inputs to the model.
pub(crate) fn formulas(runs: &[Run]) -> Result {
    let machine = Machine::named("gtx1080ti")?;
    println!("### Two formulas\n");
    println!(
        "| program | memory | set | link, GiB/s: measured | modelled | error | group of faults, us: measured | modelled | error |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let (mut link_errors, mut calibration, mut test) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        let transfer_ns = machine.link_to_gpu.transfer_ns(to_u64(run.transfer_kib * 1024.0)) as f64;
        let gib_per_s = run.transfer_kib / f64::from(1 << 20) * 1e9 / transfer_ns;
        let transfers = run.htod_mib * 1024.0 / run.transfer_kib / run.groups;
        let faults = &machine.faults;
        let group_us = (faults.batch_ns.value + transfers * (faults.transfer_ns.value + transfer_ns)) / 1e3;
        let (link, group) = (error(gib_per_s, run.htod_gib_per_s), error(group_us, run.group_us));
        link_errors.push(link);
        if run.calibrates() { &mut calibration } else { &mut test }.push(group);
        println!(
            "| {} | {} | {} | {} | {gib_per_s:.1} | {link:+.0} % | {:.0} | {group_us:.0} | {group:+.0} % |",
            run.program,
            run.memory(),
            run.set(),
            run.htod_gib_per_s,
            run.group_us
        );
    }
    println!("\nMean absolute error: link {:.1} % (21 runs, none of them for calibration); ", mean_abs(&link_errors));
    println!(
        "group of faults {:.1} % (7 for calibration), {:.1} % (14 for test).\n",
        mean_abs(&calibration),
        mean_abs(&test)
    );
    Ok(())
}

/// Compares the programs themselves, run page by page on the model of the driver.
pub(crate) fn programs(runs: &[Run]) -> Result {
    let machine = Machine::named("gtx1080ti")?;
    println!("### The programs themselves\n");
    println!(
        "A field: measured, modelled, error. *: the log has lost records, as H2D and D2H are further apart than all that the program allocates.\n"
    );
    println!(
        "| program | memory | 2 MiB left | set | H2D, MiB | KiB in a transfer | groups of faults | us each | kernels, ms | D2H, MiB | faults of the CPU |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut errors: Vec<(bool, bool, f64)> = Vec::new();
    let mut thrashing_pages = 0;
    for program in programs::ALL {
        let program = program();
        for run in runs.iter().filter(|run| run.program == program.name) {
            let blocks = run.blocks(program.has_device_memory);
            let mut process = Process::new(&machine, blocks, &program.space);
            program.run(&mut process)?;
            let counts = process.counts();
            thrashing_pages += counts.thrashing_pages;
            let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
            let (time_us, groups) = (process.kernels_ns() as f64 / 1e3, counts.replays as f64);
            let mark = if (run.htod_mib - run.dtoh_mib).abs() > mib(program.space.bytes()) { "*" } else { "" };
            println!(
                "| {} | {} | {blocks} | {} | {} | {} | {} | {} | {} | {} | {} |",
                program.name,
                run.memory(),
                run.set(),
                cell(run.htod_mib, mib(counts.bytes_htod), mark),
                cell(run.transfer_kib, mib(counts.bytes_htod) * 1024.0 / counts.transfers_htod as f64, ""),
                cell(run.groups, groups, mark),
                cell(run.group_us, time_us / groups, ""),
                cell(run.kernels_ms, time_us / 1e3, ""),
                cell(run.dtoh_mib, mib(counts.bytes_dtoh), mark),
                cell(run.cpu_faults, counts.cpu_faults as f64, ""),
            );
            errors.push((program.has_own_data, run.calibrates(), error(time_us / 1e3, run.kernels_ms)));
        }
    }
    println!("\nPages found thrashing, in all runs: {thrashing_pages}. Mean absolute error of the kernels' time:");
    for (programs, own_data) in [("backprop, fdtd, hotspot, nw", false), ("sssp, ra, bfs, of our own data", true)] {
        let mean_error = |calibrates: bool| {
            let errors = errors.iter().filter(|error| (error.0, error.1) == (own_data, calibrates));
            mean_abs(&errors.map(|error| error.2).collect::<Vec<_>>())
        };
        println!("{programs}: {:.0} % (calibration), {:.0} % (test).", mean_error(true), mean_error(false));
    }
    println!();
    Ok(())
}

fn cell(measured: f64, modelled: f64, mark: &str) -> String {
    let digits = usize::from(measured < 100.0);
    format!("{measured:.digits$}{mark}, {modelled:.digits$}, {:+.0} %", error(modelled, measured))
}
