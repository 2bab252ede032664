//! A process that maps and unmaps managed memory all the while, beside memory that it holds: for tests of what others do to that meanwhile.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};

use crate::sys::{
    process,
    swgpu::Gpu,
    uvm::{Managed, VaSpace},
};

const HELD_BASE: u64 = 0x200_0000_0000;
const OTHER_BASE: u64 = 0x300_0000_0000;
/// A block of the driver's.
const OTHER_BYTES: u64 = 2 << 20;
const WORDS_PER_PAGE: usize = 512;

/// What to do.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Memory that is held.
    #[arg(long, value_name = "N", default_value_t = 16)]
    mib: u64,
    /// How many calls to make.
    #[arg(long, value_name = "N")]
    calls: u64,
    /// Where to write when each call began and ended, a line of two times in ns since 1970 each.
    #[arg(long, value_name = "FILE")]
    log: std::path::PathBuf,
    /// Unmap the held memory after so many calls.
    #[arg(long, value_name = "N")]
    release_after: Option<u64>,
    /// Rest for so long before the calls.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    rest: u64,
    /// Make a VA space that belongs to no process's memory, as MPS does.
    #[arg(long)]
    shared: bool,
    /// Have the driver let go of this process's memory, once this file is there, and remove it.
    #[arg(long, value_name = "FILE")]
    forget_when: Option<std::path::PathBuf>,
    /// Do not write to the held memory, so that there is none in the host.
    #[arg(long)]
    untouched: bool,
    /// Have so many more descriptors of the VA space.
    #[arg(long, value_name = "N", default_value_t = 0)]
    descriptors: usize,
    /// Let the first thread exit, and go on in another.
    #[arg(long)]
    without_first_thread: bool,
}

/// Prints `held BEGIN END` when it begins. In the end every word of the held memory must be what it was.
pub(crate) fn churn(options: Options) -> anyhow::Result<()> {
    if !options.without_first_thread {
        return work(&options);
    }
    thread::spawn(move || {
        let status = match work(&options) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{error:#}");
                1
            }
        };
        std::process::exit(status)
    });
    process::exit_thread()
}

fn work(options: &Options) -> anyhow::Result<()> {
    let gpu = Gpu::open(0)?;
    let mut va_space = if options.shared { VaSpace::shared([&gpu.uuid]) } else { VaSpace::new([&gpu.uuid]) }?;
    va_space.use_address_space()?;
    let space = gpu.space()?;
    va_space.attach(&gpu.uuid, &space)?;

    let bytes = options.mib << 20;
    let mut held = Some(Managed::map(&va_space, HELD_BASE, bytes)?);
    let words = usize::try_from(bytes)? / size_of::<u64>();
    let values = || (0..words).step_by(WORDS_PER_PAGE).zip(1..).filter(|_| !options.untouched);
    for (at, value) in values() {
        held.as_ref().context("it is there")?.write(at, value);
    }
    let _more = va_space.duplicates(options.descriptors)?;
    println!("held {HELD_BASE:#x} {:#x}", HELD_BASE + bytes);
    if let Some(file) = &options.forget_when {
        while !file.exists() {
            thread::sleep(Duration::from_millis(10));
        }
        va_space.forget_address_space();
        fs::remove_file(file)?;
    }
    thread::sleep(Duration::from_secs(options.rest));

    let mut times = Vec::new();
    let mut other = None;
    for made in 0..options.calls {
        if options.release_after == Some(made) {
            held.take().context("it is there")?.unmap()?;
        }
        let begun = now();
        match other.take() {
            None => other = Some(Managed::map(&va_space, OTHER_BASE, OTHER_BYTES)?),
            Some(mapped) => Managed::unmap(mapped)?,
        }
        times.push((begun, now()));
        if let Some(mapped) = &other {
            mapped.write(0, made);
        }
    }
    if let Some(held) = &held {
        for (at, value) in values() {
            ensure!(held.read(at) == value, "word {at} of the held memory is {} and not {value}", held.read(at));
        }
    }
    write(&options.log, &times)
}

fn write(path: &Path, times: &[(Duration, Duration)]) -> anyhow::Result<()> {
    let mut text = String::new();
    for (begun, ended) in times {
        writeln!(text, "{} {}", begun.as_nanos(), ended.as_nanos())?;
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// By the clock that the other side reads too; nobody sets it in a guest.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
