//! Service: reads its configuration, binds its address, monitors the driver, serves the results,
//! and stops cleanly.
//!
//! Exit codes: 0 stopped, valid configuration, or no advice left in force; 1 failure, or advice
//! left in force; 2 mistake in the configuration or on the command line.

mod acting;
mod admin_file;
mod audit;
mod claimed_file;
mod control;
mod crosscheck_exemptions;
mod instance;
mod listeners;
mod log;
mod notify;
mod options;
mod own_names;
mod owner_names;
mod recording;
mod rules;
mod service;
mod signals;
mod state_file;
mod switch;
mod token;
mod verdicts;
mod web_config;
mod withdraw;

use std::{
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::anyhow;
use clap::{CommandFactory, Parser};
use config::Loaded;
use log::{Logging, print};
use options::Options;
use signals::Hangup;

/// Version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const EXIT_MISTAKE: u8 = 2;

fn main() -> ExitCode {
    if let Some(ended) = sys::actor::run_if_spawner() {
        return ended;
    }
    if let Some(ended) = followers::run_if_planner() {
        return ended;
    }
    sys::shared_memory::set_accessor_program(sys::executable::Program::this());
    // Before any other thread starts. Without it, uvmd uses more memory than it needs.
    let _ = sys::memory::return_freed_memory();
    // First of all, before there are threads.
    let hangup = match Hangup::catch() {
        Ok(hangup) => hangup,
        Err(error) => {
            print(&format!("cannot handle signals: {}", sys::reason(&error)));
            return ExitCode::FAILURE;
        }
    };
    let options = Options::parse();
    if let Some(folder) = &options.man {
        return man(folder);
    }
    if options.withdraw {
        // Without it, users can make reads of /proc hang.
        let _ = sys::private_proc::mount_own();
        return withdraw(&options);
    }
    let loaded = match options.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            print(&error.to_string());
            return ExitCode::from(EXIT_MISTAKE);
        }
    };
    match if options.check_config { show(&loaded) } else { run(&options, loaded, hangup) } {
        Ok(()) => ExitCode::SUCCESS,
        // Not through the log, which may be off.
        Err(error) => {
            print(&sys::message(error.chain()));
            ExitCode::FAILURE
        }
    }
}

/// Writes uvmd.8, from the options.
fn man(folder: &Path) -> ExitCode {
    let page = clap_mangen::Man::new(Options::command().name("uvmd")).section("8");
    match page.generate_to(folder) {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            print(&format!("cannot write the man page into {}: {}", folder.display(), sys::reason(&error)));
            ExitCode::FAILURE
        }
    }
}

fn withdraw(options: &Options) -> ExitCode {
    let state_dir = match options.state_dir() {
        Ok(state_dir) => state_dir,
        Err(error) => {
            print(&format!("{error}; so the journal's folder is unknown: name it with --set policy.state_dir=FOLDER"));
            return ExitCode::from(EXIT_MISTAKE);
        }
    };
    match withdraw::run(&state_dir) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            print(&sys::message(error.chain()));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, loaded: Loaded, hangup: Hangup) -> anyhow::Result<()> {
    // Before there are threads.
    let own_proc = sys::private_proc::mount_own();
    let cgroup_namespace = sys::cgroup_namespace::enter_initial();
    let log = Logging::start(&loaded.config.log)?;
    if let Err(error) = own_proc {
        tracing::debug!("no /proc of its own: {}", sys::reason(&error));
    }
    // What follows from it is a state of the collector.
    if let Err(error) = cgroup_namespace {
        tracing::debug!("the node's cgroup namespace cannot be entered: {}", sys::reason(&error));
    }
    service::run(options, loaded, &log, hangup).inspect_err(|error| log.failed(error))
}

/// Prints the configuration as TOML, to be used as a file, with warnings separately.
fn show(loaded: &Loaded) -> anyhow::Result<()> {
    for warning in loaded.config.warnings().into_iter().chain(web_config::check(&loaded.config)?) {
        print(&format!("warning: {warning}"));
    }
    // It can be fixed while uvmd runs, but better before.
    config::overrides::load(&loaded.config.policy.overrides_file.0)?;
    let files = loaded.names().unwrap_or_else(|| "no file".to_owned());
    let text = toml::to_string(&loaded.config)?;
    let text = format!("# ok: {files}; in effect, with the command line:\n{text}");
    io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("cannot print it: {}", sys::reason(&error)))
}
