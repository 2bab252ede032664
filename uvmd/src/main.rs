//! The service: reads its configuration, binds its address, watches the driver, serves what it sees, and stops cleanly.
//!
//! Exit codes: 0 stopped, or the configuration is in order; 1 failed; 2 a mistake in the configuration or on the command line.

mod acting;
mod audit;
mod control;
mod kept;
mod listeners;
mod log;
mod notify;
mod options;
mod rules;
mod service;
mod signals;
mod switch;
mod token;
mod verdicts;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::anyhow;
use clap::Parser;
use config::Loaded;
use log::{Logging, say};
use options::Options;

const MISTAKEN: u8 = 2;

fn main() -> ExitCode {
    let options = Options::parse();
    let check_config = options.check_config;
    let loaded = match options.load() {
        Ok(loaded) => loaded,
        Err(error) => {
            say(&error.to_string());
            return ExitCode::from(MISTAKEN);
        }
    };
    match if check_config { show(&loaded) } else { run(loaded) } {
        Ok(()) => ExitCode::SUCCESS,
        // Not through the log, which may be off.
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(loaded: Loaded) -> anyhow::Result<()> {
    let log = Logging::start(&loaded.config.log)?;
    service::run(loaded, log.dropped()).inspect_err(|error| log.failed(error))
}

/// As TOML, so that it can be used as a file; warnings apart from it.
fn show(loaded: &Loaded) -> anyhow::Result<()> {
    for warning in loaded.config.warnings() {
        say(&format!("warning: {warning}"));
    }
    // It can be mended while uvmd runs, and is best in order before.
    config::overrides::load(&loaded.config.policy.overrides_file.0)?;
    let file = loaded.file.as_ref().map_or_else(|| "no file".to_owned(), |file| file.display().to_string());
    let text = toml::to_string(&loaded.config)?;
    let text = format!("# ok: {file}; in force, with the command line:\n{text}");
    io::stdout().write_all(text.as_bytes()).map_err(|error| anyhow!("cannot print it: {}", sys::reason(&error)))
}
