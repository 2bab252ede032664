//! The command line.

use std::{net::SocketAddr, time::Duration};

use clap::Parser;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;

/// Watches NVIDIA's UVM driver and serves, per process and GPU, its faults and the bytes it migrates.
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Without a driver or without kprobes it waits for them, and /readyz says what is missing."
)]
pub(crate) struct Options {
    /// Address to serve on. Anyone who reaches it can read it: there is no authentication
    #[arg(long, value_name = "ADDR:PORT", env = "UVMD_LISTEN", default_value = "127.0.0.1:9477")]
    pub(crate) listen: SocketAddr,

    /// How often counters are read between requests
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(crate) interval: Duration,

    /// How long a process is listed after its end
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    pub(crate) ended_retention: Duration,

    /// Name of this node in metrics and status [default: the host's name]
    #[arg(long, value_name = "NAME", env = "UVMD_HOSTNAME")]
    pub(crate) hostname: Option<String>,

    /// What to log: off, error, warn, info, debug, trace; or by part, as in info,collector=debug
    #[arg(long, value_name = "FILTER", env = "UVMD_LOG", default_value = "info")]
    log: Targets,

    /// Log more: -v is debug, -vv is trace
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

impl Options {
    pub(crate) fn log_filter(&self) -> Targets {
        let level = match self.verbose {
            0 => return self.log.clone(),
            1 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        // The libraries' own debugging is asked for by name, with --log.
        Targets::new()
            .with_default(LevelFilter::INFO)
            .with_targets(["uvmd", "collector", "web"].map(|part| (part, level)))
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_hours(1);
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (SHORTEST..=LONGEST).contains(&interval) { Ok(interval) } else { Err("must be between 100ms and 1h".to_owned()) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Options::command().debug_assert();
    }

    #[test]
    fn by_default_only_this_machine_is_served() {
        assert!(Options::parse_from(["uvmd"]).listen.ip().is_loopback());
    }

    #[test]
    fn an_interval_is_neither_a_busy_loop_nor_forever() {
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        for bad in ["0s", "1us", "2h", "-1s", "soon", ""] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
