//! The command `uvmd-fleet`.

use std::process::ExitCode;

use clap::Parser;
use fleet::{
    options::{Command, Options},
    resources, run,
};
use tracing_subscriber::{Layer, filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(Command::Crds) = options.command {
        return print_definitions();
    }
    // Without log lines of libraries: failures are reported here, once.
    let own = Targets::new().with_target("fleet", options.run.log).with_target("uvmd_fleet", options.run.log);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(false);
    tracing_subscriber::registry().with(lines.with_filter(own)).init();
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run::run(options.run)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the command's output")]
fn print_definitions() -> ExitCode {
    match resources::definitions() {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("uvmd-fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
