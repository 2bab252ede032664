//! The command line of uvmd. It asks the daemon over HTTP, on its Unix socket or by TCP, and prints what it says; only `doctor` looks at the node itself,
//! and `plan` and `sim` at a trace.
//!
//! Exit codes: 0 done, 1 failed, 2 usage, 3 daemon unreachable.
//!
//! A library only so that fuzz targets reach what reads the daemon's answers.

mod card;
mod client;
mod cpu;
mod decisions;
mod doctor;
mod evictions;
mod explain;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gpus;
mod heat;
mod machine;
mod plan;
mod policy;
mod ps;
mod rates;
mod report;
mod show;
mod simulate;
mod source;
mod status;
mod summary;
mod table;
mod terminal;
mod text;
mod top;
mod words;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use client::Client;

const FAILED: u8 = 1;
const UNREACHABLE: u8 = 3;

/// Shows what uvmd knows: which processes fault, migrate and evict managed GPU memory.
#[derive(Debug, Parser)]
#[command(version, after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 daemon unreachable. NO_COLOR is obeyed.")]
struct Options {
    #[command(flatten)]
    client: client::Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the processes that use managed memory, busiest first
    ///
    /// Counters are shown as rates, measured over a second; --totals shows sums since uvmd counts, at once. A narrow terminal shows fewer columns than
    /// there are (see --wide); --json has everything.
    ///
    /// OWNER is the pod, job, container, unit or user that it works for; MANAGED is managed memory mapped, and RESIDENT an estimate of what of it is in
    /// GPU memory; INSTANCES are FAULTS before the driver merged equal ones; H2D and D2H are bytes copied from host to GPU and back; EVICTED is memory of
    /// the process that was pushed out of GPUs, CAUSED is anybody's memory pushed out because this process needed room; THRASH counts pages that the
    /// driver found to be thrashing; REMOTE is memory that it mapped where it stays; VERDICT is what is wrong and for how long, or who pushes its memory
    /// out (see uvmctl explain).
    Ps(ps::Options),
    /// Show one process: whom it works for, what it did, its fault batches, and the busiest 2 MiB blocks of its memory
    ///
    /// Figures are sums since uvmd counts.
    Show(show::Options),
    /// Say in words what is wrong with a process, whom that costs, and what its owner could do
    ///
    /// Each piece of advice comes with what was seen that speaks for it, and with what would speak against it and cannot be seen.
    Explain(explain::Options),
    /// Show who pushed whose memory out of GPUs
    ///
    /// Memory is pushed out for whoever needs room: a process for its own sake, or another. CAUSE is what it was needed for: a GPU fault, the
    /// process's own call (api), a call by another process such as uvmd (tool), memory that is not managed (device allocation). Sums since uvmd counts;
    /// --over 5 measures rates over 5 seconds.
    Evictions(evictions::Options),
    /// List the GPUs, their memory and what managed memory takes of it
    ///
    /// GPU is the driver's number, INDEX that of nvidia-smi. MANAGED is managed memory of the living processes that use the GPU, RATIO that over the card's
    /// memory, RESIDENT what of it is there (~ where its bounds are wide; --json has them), REFETCH% the part of what was fetched that had been pushed
    /// out before. H2D, D2H, EVICTED and REFETCH% are since uvmd counts.
    Gpus(gpus::Options),
    /// Show where in a process's memory it happens, by address
    ///
    /// A line for each range of managed memory, in the order of addresses; the hotter a place, the taller its character. Counts are since the process
    /// began, or since uvmd saw it first.
    Heatmap(heat::Options),
    /// Say what uvmd is to do for which processes, and stop it
    ///
    /// It acts only where it is wanted, by override or by its configuration, and only if policy.enabled lets it. To change anything takes write authority:
    /// that of root, of the group that the configuration names, or of the token for it.
    #[command(subcommand)]
    Policy(policy::Options),
    /// Show what was decided about processes, what was done, and what that brought
    ///
    /// STAGE: refused (the guard said no), shadow (told, not done), trial (in force, not judged yet), kept (it helps), undone (it did not, and was
    /// taken back), over (what it was for has ended), for so long. EFFECT is by how much less, or more, went over the GPU's link a second in the window it was
    /// judged by than before, all programs together; or what is expected.
    Decisions(decisions::Options),
    /// Check what this node has and lacks of what uvmd needs, and what to do about it
    ///
    /// It needs neither the daemon nor root; what may not be seen is not checked, and said so. It exits with 1 if something is missing.
    Doctor(doctor::Options),
    /// Say what an iteration of a trace would cost on managed memory, by a model
    ///
    /// It needs neither the daemon nor a GPU. All figures are modelled: docs/simulator.md says how, and what is left out.
    ///
    /// TIME is that of an iteration, EFFICIENCY how much of it the kernels alone take, STALL the rest; H2D and D2H are bytes copied to the GPU and back,
    /// FLASH is what of them goes to flash or comes from it; FAULTS are pages that kernels faulted on, BATCHES how often the driver serviced some;
    /// PEAK is the most GPU memory in use at once.
    Sim(simulate::Options),
    /// Show whether uvmd counts, on which driver, and the sums over everything
    ///
    /// It exits with 0 when uvmd answers, counting or not; to check that it counts, ask URL/readyz.
    Status(status::Options),
    /// Plan the memory of an iteration from a trace of it
    ///
    /// It needs neither the daemon nor a GPU.
    #[command(subcommand)]
    Plan(plan::Options),
    /// Print completions for a shell, to be put where it looks for them
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Write man pages into a directory, one for each command
    Man {
        /// Where to; it must exist
        directory: PathBuf,
    },
    /// Watch who faults, migrates and evicts, live
    ///
    /// Sorts, filters, and shows one process down to the blocks of its memory; F1 or ? tells the keys. Rates are those since the look before.
    /// Where the output is no terminal, it prints plain frames. Sums: --totals.
    Top(top::Options),
}

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    let Options { client, command } = Options::parse();
    let result = Client::new(client).and_then(|client| run(client, command));
    match result.and_then(|code| Ok(io::stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(&format!("{error:#}"));
            let unreachable = matches!(error.downcast_ref(), Some(client::Error::Unreachable { .. }));
            ExitCode::from(if unreachable { UNREACHABLE } else { FAILED })
        }
    }
}

fn run(client: Client, command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Doctor(options) => return doctor::run(&client, options),
        Command::Explain(options) => explain::run(&client, options),
        Command::Policy(options) => policy::run(&client, options),
        Command::Decisions(options) => decisions::run(&client, &options),
        Command::Evictions(options) => evictions::run(&client, options),
        Command::Gpus(options) => gpus::run(&client, options),
        Command::Heatmap(options) => heat::run(&client, options),
        Command::Plan(options) => plan::run(options),
        Command::Ps(options) => ps::run(&client, options),
        Command::Show(options) => show::run(&client, options),
        Command::Sim(options) => return simulate::run(&options),
        Command::Status(options) => status::run(&client, options),
        Command::Completions { shell } => completions(shell),
        Command::Man { directory } => man(&directory),
        Command::Top(options) => top::run(client, options),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn completions(shell: Shell) -> anyhow::Result<()> {
    // Written at once: the generator itself panics where nobody reads any more.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "uvmctl", &mut text);
    Ok(io::stdout().write_all(&text)?)
}

fn man(directory: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(Options::command().name("uvmctl"), directory)
        .with_context(|| format!("cannot write man pages into {}", directory.display()))
}

/// Whoever reads the output has enough, as in `uvmctl ps | head -1`.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }
}
