//! `lab-runner churn`: process that maps and unmaps managed memory repeatedly beside memory that
//! stays mapped, for tests of concurrent actions on that memory.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context, ensure};
use gpu::{swgpu::Gpu, uvm::VaSpace, words::Words};

use crate::sys::process;

const HELD_BASE: u64 = 0x200_0000_0000;
const OTHER_BASE: u64 = 0x300_0000_0000;
/// Size of a VA block.
const OTHER_BYTES: u64 = 2 << 20;
const WORDS_PER_PAGE: usize = 512;

/// Options of `churn`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Size of the held memory, in MiB.
    #[arg(long, value_name = "N", default_value_t = 16)]
    mib: u64,
    /// Number of calls at least.
    #[arg(long, value_name = "N")]
    calls: u64,
    /// Continue the calls until this file exists.
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,
    /// File for the times of the calls: a line per call, with begin and end in ns since 1970.
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Unmap the held memory once this file exists.
    #[arg(long, value_name = "FILE")]
    release_when: Option<PathBuf>,
    /// Time to sleep before the calls.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    rest: u64,
    /// Create a VA space without a process's address space, as MPS does.
    #[arg(long)]
    shared: bool,
    /// Wait for this file, then detach the process's address space from the VA space and remove the
    /// file.
    #[arg(long, value_name = "FILE")]
    forget_when: Option<PathBuf>,
    /// Do not write to the held memory, so that no host memory backs it.
    #[arg(long)]
    untouched: bool,
    /// Number of additional descriptors of the VA space.
    #[arg(long, value_name = "N", default_value_t = 0)]
    descriptors: usize,
    /// Exit the first thread, and continue in another.
    #[arg(long)]
    without_first_thread: bool,
}

/// Prints `held BEGIN END` at its start. At the end every word of the held memory must be
/// unchanged.
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
    va_space.attach_address_space()?;
    let space = gpu.space()?;
    va_space.attach(&gpu.uuid, &space)?;

    let bytes = options.mib << 20;
    let mut held = Some(Words::managed(&va_space, HELD_BASE, bytes)?);
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
        va_space.detach_address_space();
        fs::remove_file(file)?;
    }
    thread::sleep(Duration::from_secs(options.rest));

    let mut times = Vec::new();
    let mut other = None;
    let has_ended = || options.until.as_ref().is_none_or(|file| file.exists());
    for call in (0_u64..).take_while(|call| *call < options.calls || !has_ended()) {
        if options.release_when.as_ref().is_some_and(|file| file.exists())
            && let Some(held) = held.take()
        {
            held.unmap()?;
        }
        let begun = now();
        match other.take() {
            None => other = Some(Words::managed(&va_space, OTHER_BASE, OTHER_BYTES)?),
            Some(mapped) => Words::unmap(mapped)?,
        }
        times.push((begun, now()));
        if let Some(mapped) = &other {
            mapped.write(0, call);
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

/// Time of the clock that the other side reads too. In a guest it is never set.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
