//! `gpu-check program`: counts of any program, by the driver's counters and by uvmd with each source.

use std::{
    ffi::OsString,
    fs,
    io::Write,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use sys::uvm::counters::Counted;

use crate::{
    counting::{SourceCounts, differences, stable},
    daemon::{Daemon, Launch},
    deadline::{self, Deadline},
    remote::{self, RemoteProcess},
    source::Source,
    steps,
};

/// Interval of attempts to attach, until the program has opened the driver.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines for a program that waits for some. No pipe is too small for them.
const LINES: [u8; 1000] = [b'\n'; 1000];

#[derive(Args)]
pub(crate) struct Options {
    /// Folder of uvmd [default: that of this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Folder for logs of uvmd
    #[arg(long, value_name = "DIR", default_value = "gpu-check-report")]
    out: PathBuf,
    /// Time limit in seconds
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u64).range(1..=3600))]
    deadline: u64,
    /// Program with its arguments. Once it is counted, it gets lines on standard input: one that
    /// waits for them before it uses memory is counted whole
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Runs the program, and prints its counts to standard error. Fails if they differ.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let Options { bin_dir, out, deadline, program } = options;
    let deadline = Deadline::after(Duration::from_secs(*deadline));
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let launch = steps::program_in(&steps::folder_of_programs(bin_dir.as_deref())?, "uvmd")
        .map(|binary| Launch { binary, out: out.clone() });
    let daemons: Vec<_> = launch
        .iter()
        .flat_map(|launch| Source::TOGETHER.iter().filter_map(|source| start(launch, *source, deadline)))
        .collect();
    let (name, arguments) = program.split_first().context("no program")?;
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", name.display()))?;
    let result = count(&mut child, &daemons, deadline);
    deadline::kill(&mut child);
    for daemon in daemons {
        daemon.stop()?;
    }
    let (counters, uvmd) = result?;
    print(counters, &uvmd);
    let differences = differences(None, Some(counters), &uvmd);
    ensure!(differences.is_empty(), "{}", differences.join("; "));
    Ok(())
}

/// Starts uvmd with a source; none if it cannot count here, which is reported.
fn start(launch: &Launch, source: Source, deadline: Deadline) -> Option<Daemon> {
    let reason = match launch.start(source, deadline) {
        Ok((daemon, status)) if status.state == "counting" => return Some(daemon),
        Ok((_, status)) => status.reasons.join("; "),
        Err(error) => format!("{error:#}"),
    };
    eprintln!("{}: not checked: {reason}", source.name());
    None
}

/// Counts a program until its exit.
fn count(child: &mut Child, daemons: &[Daemon], deadline: Deadline) -> anyhow::Result<(Counted, Vec<SourceCounts>)> {
    let pid = child.id();
    let process = attach(child, deadline)?;
    for daemon in daemons {
        daemon.discover(pid, SystemTime::now(), deadline)?;
    }
    // A program that reads none may have closed its input.
    let _ = child.stdin.take().map(|mut input| input.write_all(&LINES));
    match deadline::wait_or_kill(child, deadline)? {
        Some(status) => ensure!(status.success(), "the program failed: {status}"),
        None => bail!("the program did not exit in time"),
    }
    stable(|| {
        let counts =
            |daemon: &Daemon| Ok(SourceCounts { source: daemon.source(), counted: daemon.counted_until_exit(pid)? });
        let uvmd = daemons.iter().map(counts).collect::<anyhow::Result<_>>()?;
        Ok((process.counted().context("nothing counts")?, uvmd))
    })
}

/// Attaches the driver's counters as soon as the program has opened the driver.
fn attach(child: &mut Child, deadline: Deadline) -> anyhow::Result<RemoteProcess> {
    loop {
        let error = match RemoteProcess::attach(child.id()) {
            Ok(process) => return Ok(process),
            Err(error) if remote::is_not_permitted(&error) => return Err(error),
            Err(error) => error,
        };
        if let Some(status) = child.try_wait()? {
            bail!("the program exited before it was counted: {status}");
        }
        if deadline.has_expired() {
            return Err(error.context("the program did not open the driver in time"));
        }
        thread::sleep(PAUSE);
    }
}

fn print(counters: Counted, uvmd: &[SourceCounts]) {
    eprintln!("| source | GPU faults | CPU faults | bytes host to GPU | bytes GPU to host |");
    eprintln!("| --- | --: | --: | --: | --: |");
    let of_uvmd = uvmd.iter().map(|counts| (counts.source.name(), counts.counted));
    for (name, counted) in [("the driver's counters", counters)].into_iter().chain(of_uvmd) {
        let Counted { fault_entries, cpu_faults, bytes_htod, bytes_dtoh } = counted;
        eprintln!("| {name} | {fault_entries} | {cpu_faults} | {bytes_htod} | {bytes_dtoh} |");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_program_that_never_opens_the_driver_is_an_error() {
        let mut child = testing::script("exit 3").stdin(Stdio::piped()).spawn().unwrap();
        let error = count(&mut child, &[], Deadline::after(Duration::from_secs(20))).unwrap_err();
        assert!(error.to_string().starts_with("the program exited before it was counted"), "{error:#}");
    }
}
