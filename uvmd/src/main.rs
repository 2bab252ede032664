//! The service: reads its configuration, binds its address, watches the driver, serves what it sees, and stops cleanly.
//!
//! Exit codes: 0 stopped, or the configuration is in order, or nothing is left in force; 1 failed, or something is; 2 a mistake in the configuration or on the command line.

mod acting;
mod audit;
mod control;
mod instance;
mod listeners;
mod log;
mod notify;
mod options;
mod own_names;
mod rules;
mod service;
mod signals;
mod state_file;
mod switch;
mod token;
mod verdicts;
mod withdraw;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::anyhow;
use clap::Parser;
use config::Loaded;
use log::{Logging, say};
use options::Options;
use signals::Hangup;

/// Version of this build.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

const MISTAKEN: u8 = 2;

fn main() -> ExitCode {
    if let Some(ended) = sys::actor::run_if_spawner() {
        return ended;
    }
    // Before there is another thread. Where it cannot be had, uvmd takes more memory than it needs.
    let _ = sys::memory::return_freed_memory();
    // Before anything else, and before there are threads.
    let hangup = match Hangup::catch() {
        Ok(hangup) => hangup,
        Err(error) => {
            say(&format!("cannot handle signals: {}", sys::reason(&error)));
            return ExitCode::FAILURE;
        }
    };
    let options = Options::parse();
    if options.withdraw {
        return withdraw(&options);
    }
    let loaded = match options.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::from(MISTAKEN);
        }
    };
    match if options.check_config { show(&loaded) } else { run(&options, loaded, hangup) } {
        Ok(()) => ExitCode::SUCCESS,
        // Not through the log, which may be off.
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn withdraw(options: &Options) -> ExitCode {
    let state_dir = match options.state_dir() {
        Ok(state_dir) => state_dir,
        Err(error) => {
            say(&format!("{error}; so the journal's folder is unknown: name it with --set policy.state_dir=FOLDER"));
            return ExitCode::from(MISTAKEN);
        }
    };
    match withdraw::run(&state_dir) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, loaded: Loaded, hangup: Hangup) -> anyhow::Result<()> {
    let log = Logging::start(&loaded.config.log)?;
    service::run(options, loaded, &log, hangup).inspect_err(|error| log.failed(error))
}

/// As TOML, so that it can be used as a file; warnings apart from it.
fn show(loaded: &Loaded) -> anyhow::Result<()> {
    for warning in loaded.config.warnings() {
        say(&format!("warning: {warning}"));
    }
    // It can be mended while uvmd runs, and is best in order before.
    config::overrides::load(&loaded.config.policy.overrides_file.0)?;
    let files = loaded.names().unwrap_or_else(|| "no file".to_owned());
    let text = toml::to_string(&loaded.config)?;
    let text = format!("# ok: {files}; in effect, with the command line:\n{text}");
    io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("cannot print it: {}", sys::reason(&error)))
}
