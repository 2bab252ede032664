//! The service: reads its options, binds its address, watches the driver, serves what it sees, and stops cleanly.

mod notify;
mod options;
mod service;
mod signals;

use std::{
    env,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::Parser;
use options::Options;
use tracing_subscriber::{Layer, layer::SubscriberExt, util::SubscriberInitExt};

fn main() -> ExitCode {
    let options = Options::parse();
    let colour = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let log = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(colour);
    tracing_subscriber::registry().with(log.with_filter(options.log_filter())).init();
    match service::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            fail(&error);
            ExitCode::FAILURE
        }
    }
}

/// Not through the log, which may be off.
#[expect(clippy::print_stderr, reason = "the last word of a program that ends")]
fn fail(error: &anyhow::Error) {
    eprintln!("uvmd: {error:#}");
}
