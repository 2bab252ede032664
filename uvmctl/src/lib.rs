//! Command line of uvmd. Queries the daemon over HTTP, on its Unix socket or by TCP, and prints the
//! response. Only `doctor` reads the node directly, `plan` and `sim` read a
//! trace, and `run` runs a program.
//!
//! Exit codes: 0 done, 1 failed, 2 usage, 3 daemon unreachable; `status --check` has more.
//!
//! A library, so that fuzz targets can reach the parsers of the daemon's responses.

mod action;
mod client;
mod completion;
mod cpu;
mod decisions;
mod doctor;
mod events;
mod evictions;
mod explain;
mod filter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gpus;
mod heat;
mod job;
mod look;
mod machine;
mod ops;
mod output;
mod owners;
mod plan;
mod policy;
mod ps;
mod rates;
mod report;
mod resource;
mod run;
mod show;
mod simulate;
mod source;
mod status;
mod summary;
mod terminal;
mod text;
mod top;
mod verdicts;
mod words;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use client::Client;
use doctor::Doctor;
use output::UsageError;

const FAILED: u8 = 1;
const USAGE: u8 = 2;
const UNREACHABLE: u8 = 3;

/// Queries uvmd: which processes fault on, migrate and evict managed GPU memory.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage, 3 daemon unreachable; a status check: 4 waiting, 5 refused, 6 degraded. NO_COLOR is obeyed."
)]
struct Options {
    #[command(flatten)]
    client: client::Options,

    #[command(flatten)]
    output: output::Options,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the processes that use managed memory, busiest first
    ///
    /// Shows rates over one second; --totals shows sums since uvmd counts. A narrow terminal shows
    /// fewer columns, -o wide all of them, and -o json every count.
    ///
    /// OWNER: pod, job, container, unit or user of the process. MANAGED: managed memory mapped.
    /// RESIDENT: estimate of it in GPU memory. INSTANCES: faults before the driver merges equal
    /// ones. H2D, D2H: bytes copied from host to GPU and back. EVICTED: bytes of the process
    /// evicted from GPUs. INDUCED: bytes of any process evicted because this one needed memory.
    /// THRASH: pages that the driver found thrashing. REMOTE: bytes mapped remotely. VERDICT: the
    /// worst verdict and its age, or the evictor of a victim (see uvmctl explain).
    Ps(ps::Options),
    /// Show one process: owner, counts, fault batches, and the busiest 2 MiB blocks of its memory
    ///
    /// Counts are sums since uvmd counts.
    Show(show::Options),
    /// Explain the verdicts on a process: cause, victims, and remedies
    ///
    /// Each remedy comes with the evidence for it, and with objections that cannot be observed.
    Explain(explain::Options),
    /// List evictions by victim and evictor
    ///
    /// The evictor is the process that needs memory, which may be the victim itself. CAUSE is the
    /// reason of the need: a GPU fault, the process's own call (api), a call by another process
    /// such as uvmd (tool), memory that is not managed (device allocation). Sums since uvmd counts;
    /// -i 5 shows rates over 5 seconds.
    Evictions(evictions::Options),
    /// List owners of processes: pods, jobs, containers and units, with their sums
    ///
    /// Sums since uvmd counts, of processes that have exited, too. IDLE: time since the last count.
    Owners(owners::Options),
    /// List the verdicts on all processes, with their reasons
    ///
    /// uvmctl explain PID has the remedies.
    Verdicts(verdicts::Options),
    /// List the GPUs, their memory and the managed memory on them
    ///
    /// GPU: NVML's index, as in nvidia-smi. PROCESSOR: the driver's processor id. MANAGED: managed
    /// memory of the running processes that use the GPU. RATIO: that over the GPU's memory.
    /// RESIDENT: bytes of it in GPU memory (~ where the bounds are wide; -o json has them).
    /// REFETCH%: share of the fetched bytes that had been evicted before. H2D, D2H, EVICTED and
    /// REFETCH% are since uvmd counts.
    Gpus,
    /// Show faults, copies and residency of a process by address
    ///
    /// One line for each range of managed memory, in the order of addresses; the hotter a cell, the
    /// taller its character. Counts are since the start of the process, or since uvmd saw it first.
    Heatmap(heat::Options),
    /// Report on Slurm jobs, and save these reports
    #[command(subcommand)]
    Job(job::Options),
    /// List the calls of a process to the CUDA driver, or write them as a trace
    ///
    /// Of a process that runs with the helper: see uvmctl run. MS: milliseconds since the first of
    /// the calls shown.
    Ops(ops::Options),
    /// Show and change overrides, and switch acting off and on
    ///
    /// uvmd acts only with policy.enabled, on processes whose override or the configuration has
    /// mode act. Changes require write permission: root, the group `socket.write_group`, or the
    /// token of `auth.write_token_file`.
    #[command(subcommand)]
    Policy(policy::Options),
    /// List decisions, their stages and their effects
    ///
    /// STAGE: denied (by the guard), shadow (not executed), trial (in effect, not verified yet),
    /// confirmed (verified), `rolled_back` (did not help), ended (its cause is over). AGE: time in
    /// that stage. EFFECT: change of the bytes over the GPU's link for the same work, between the
    /// window before and the one that verified it; or the expected change.
    Decisions(decisions::Options),
    /// Follow events: verdicts that start and end, decisions, calls, and the switch
    ///
    /// One line for each event from now on, and one object a line with -o json. A stream that ends
    /// is continued from where it ended; a line says how many events were dropped because they were
    /// read too slowly.
    Events(events::Options),
    /// Check the node for all that uvmd needs, with remedies
    ///
    /// Needs neither the daemon nor root, and names checks that it lacks the permission for. Exits
    /// with 1 if something is missing.
    Doctor(doctor::Options),
    /// Run a program with the helper in it, which records its calls to the CUDA driver
    ///
    /// Needs neither the daemon nor root. Has the helper preloaded, and becomes the program. Exits
    /// with 125 if the helper cannot be in it, as in a static or setuid program.
    Run(run::Options),
    /// Simulate the cost of a trace's iteration on managed memory
    ///
    /// Needs neither the daemon nor a GPU. All figures are modelled: docs/simulator.md has the
    /// model and its limitations.
    ///
    /// TIME: duration of an iteration. EFFICIENCY: share of it that the kernels alone take. STALL:
    /// the rest. H2D, D2H: bytes copied to the GPU and back. FLASH: bytes of those to or from
    /// flash. FAULTS: pages that kernels faulted on. BATCHES: fault batches. PEAK: the most GPU
    /// memory in use at once.
    Sim(simulate::Options),
    /// Show the state of uvmd, its driver, probes, dropped events and totals
    ///
    /// Exits with 0 when uvmd responds, counting or not; --check has exit codes for incomplete
    /// counts.
    Status(status::Options),
    /// Plan the memory of an iteration from a trace
    ///
    /// Needs neither the daemon nor a GPU.
    #[command(subcommand)]
    Plan(plan::Options),
    /// Print the completion script of a shell
    ///
    /// Completes commands, options, PIDs, and the ids of overrides and decisions. In ~/.bashrc:
    /// source <(uvmctl completions bash)
    Completions {
        /// Name of the shell
        shell: Shell,
    },
    /// Write the man pages to a directory, one for each command
    Man {
        /// Directory, which must exist
        directory: PathBuf,
    },
    /// Show processes live
    ///
    /// Sorts, filters, and shows one process down to the blocks of its memory; F1 or ? lists the
    /// keys. Rates are since the previous reading; --totals shows sums. Without a terminal it
    /// prints plain frames.
    Top(top::Options),
}

/// Entry point of the program.
#[must_use]
pub fn main() -> ExitCode {
    completion::complete_if_requested();
    let matches = command(Options::command()).get_matches();
    let Options { client, output, command } = Options::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = run(client.by_source(&matches), &output, command);
    match result.and_then(|code| Ok(io::stdout().flush().map(|()| code)?)) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::note(&sys::message(error.chain()));
            ExitCode::from(code(&error))
        }
    }
}

fn code(error: &anyhow::Error) -> u8 {
    if error.is::<UsageError>() {
        USAGE
    } else if matches!(error.downcast_ref(), Some(client::Error::Unreachable { .. })) {
        UNREACHABLE
    } else {
        FAILED
    }
}

/// Global options by what they are for.
const CONNECTION: [&str; 4] = ["url", "socket", "socket_owner", "token_file"];
const FORMAT: [&str; 1] = ["format"];
const LIST: [&str; 2] = ["no_headers", "sort_by"];
const REPETITION: [&str; 1] = ["watch"];

/// Global options that a command does not obey.
fn unused_options(command: &str) -> Vec<&'static str> {
    let groups: &[&[&str]] = match command {
        "sim" | "pool" | "swap" => &[&CONNECTION, &LIST, &REPETITION],
        "plan" | "run" | "completions" | "man" => &[&CONNECTION, &FORMAT, &LIST, &REPETITION],
        "top" | "policy" | "save" => &[&FORMAT, &LIST, &REPETITION],
        "set" | "unset" | "apply" | "export" | "on" | "off" | "events" => &[&LIST, &REPETITION],
        "job" | "report" | "show" | "explain" | "heatmap" | "doctor" | "status" => &[&LIST],
        _ => &[],
    };
    groups.concat()
}

/// Command line, whose help for a command has only the options that it obeys.
fn command(mut command: clap::Command) -> clap::Command {
    // Global options are those of commands, too, after this.
    command.build();
    let subcommands: Vec<String> = command.get_subcommands().map(|each| each.get_name().to_owned()).collect();
    subcommands.iter().fold(command, |command, name| command.mut_subcommand(name, hide_unused_options))
}

/// Hides the global options that a command and its subcommands do not obey.
fn hide_unused_options(command: clap::Command) -> clap::Command {
    // `policy show` is a list.
    let is_list = command.get_bin_name().is_some_and(|name| name.ends_with("policy show"));
    let hidden = if is_list { Vec::new() } else { unused_options(command.get_name()) };
    let hide = |arg: clap::Arg| if hidden.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg };
    let command = command.mut_args(hide);
    let subcommands: Vec<String> = command.get_subcommands().map(|each| each.get_name().to_owned()).collect();
    subcommands.iter().fold(command, |command, name| command.mut_subcommand(name, hide_unused_options))
}

fn run(client: client::Options, output: &output::Options, command: Command) -> anyhow::Result<ExitCode> {
    // A command without uvmd reads no token.
    let client = || Client::new(client);
    match command {
        Command::Doctor(options) => {
            let mut doctor = Doctor::new(options);
            output.show(&client()?, &mut doctor)?;
            return Ok(if doctor.is_something_missing() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS });
        }
        Command::Explain(options) => output.show(&client()?, &mut explain::Explanation(options)),
        Command::Policy(options) => policy::run(&client()?, options, output),
        Command::Decisions(options) => match options.id {
            Some(id) => output.show(&client()?, &mut decisions::One(id)),
            None => output.show(&client()?, &mut decisions::List(options)),
        },
        Command::Events(options) => events::run(&client()?, options, output),
        Command::Evictions(options) => output.show(&client()?, &mut evictions::Pairs::new(options)),
        Command::Owners(options) => output.show(&client()?, &mut owners::List(options)),
        Command::Verdicts(options) => output.show(&client()?, &mut verdicts::List(options)),
        Command::Gpus => output.show(&client()?, &mut gpus::List),
        Command::Job(job::Options::Report(options)) => output.show(&client()?, &mut job::Report(options)),
        Command::Job(job::Options::Save(options)) => {
            output.reject("job save").map_err(Into::into).and_then(|()| job::save(&client()?, &options))
        }
        Command::Heatmap(options) => output.show(&client()?, &mut heat::Map(options)),
        Command::Ops(options) => match options.trace.clone() {
            Some(path) => {
                output.reject("ops --trace").map_err(Into::into).and_then(|()| ops::write(&client()?, &options, &path))
            }
            None => output.show(&client()?, &mut ops::List(options)),
        },
        Command::Plan(options) => plan::run(options, output),
        Command::Ps(options) => output.show(&client()?, &mut ps::Ps::new(options)),
        Command::Show(options) => output.show(&client()?, &mut show::One(options)),
        Command::Run(options) => {
            output.reject("run")?;
            return Ok(run::run(&options));
        }
        Command::Sim(mut options) => {
            options.json = output.report_file("sim", options.json.take())?;
            return simulate::run(&options);
        }
        Command::Status(status::Options { check: true }) => {
            output.reject("status --check")?;
            return status::check(&client()?);
        }
        Command::Status(status::Options { check: false }) => output.show(&client()?, &mut status::State),
        Command::Completions { shell } => completion::script(shell),
        Command::Man { directory } => man(&directory),
        Command::Top(options) => output.reject("top").map_err(Into::into).and_then(|()| top::run(client()?, options)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn man(directory: &Path) -> anyhow::Result<()> {
    clap_mangen::generate_to(command(Options::command().disable_help_subcommand(true)).name("uvmctl"), directory)
        .with_context(|| format!("cannot write man pages into {}", directory.display()))
}

/// Whether the reader of the output closed the pipe, as in `uvmctl ps | head -1`.
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

    #[test]
    fn the_command_line_is_that_of_the_golden_file() {
        surface::hold("uvmctl.txt", &surface::commands(&Options::command().name("uvmctl")));
    }

    #[test]
    fn the_help_of_a_command_ends_with_the_global_options_that_it_obeys() {
        let help = |path: &[&str]| {
            let command = command(Options::command());
            let command = path.iter().fold(&command, |command, name| command.find_subcommand(name).unwrap());
            command.clone().render_long_help().to_string()
        };
        let ps = help(&["ps"]);
        let at = |text: &str| ps.find(text).unwrap_or_else(|| panic!("{text} is not in {ps}"));
        assert!(at("--interval") < at("Output:") && at("--interval") < at("Connection:"), "{ps}");
        assert!(at("Connection:") < at("--token-file") && at("Output:") < at("--sort-by"), "{ps}");
        for (path, absent, present) in [
            (&["sim"][..], &["--token-file", "--url", "--sort-by", "--watch"][..], "--output"),
            (&["plan", "swap"], &["--token-file", "--watch"], "--output"),
            (&["run"], &["--token-file", "--output"], "--helper"),
            (&["top"], &["--output", "--sort-by", "--watch"], "--token-file"),
            (&["policy", "set"], &["--sort-by", "--watch"], "--output"),
            (&["explain"], &["--sort-by", "--no-headers"], "--watch"),
            (&["policy", "show"], &[], "--sort-by"),
        ] {
            let help = help(path);
            assert!(absent.iter().all(|option| !help.contains(option)), "{path:?}: {help}");
            assert!(help.contains(present), "{path:?}: {help}");
        }
    }

    #[test]
    fn the_help_has_the_words_of_the_field() {
        assert_eq!(surface::refused_in_help(&Options::command()), Vec::<String>::new());
    }
}
