//! `uvmctl top`: live view of processes that fault, migrate and evict, in the manner of htop.

pub(crate) mod batch;
pub(crate) mod columns;
pub(crate) mod fetch;
mod keys;
mod live;
mod process_key;
mod samples;
mod screen;
pub(crate) mod state;
#[cfg(test)]
mod testing;
pub(crate) mod view;

use std::{
    env,
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use clap::{Args, builder::PossibleValuesParser, builder::TypedValueParser};
use columns::{COLUMNS, Column, Figures};
use state::{Settings, State};

use crate::{client::Client, rates};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Interval between readings in seconds
    #[arg(long, short, value_name = "SECONDS", default_value = "2", value_parser = rates::interval)]
    interval: Duration,

    /// Print one plain frame and exit; rates need a second reading, one interval after the first
    #[arg(long, conflicts_with = "batch")]
    once: bool,

    /// Print this number of plain frames and exit
    #[arg(long, short, value_name = "FRAMES", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,

    /// Show sums since uvmd counts instead of rates
    #[arg(long, short)]
    totals: bool,

    /// Sort by this column
    #[arg(long, short, value_name = "COLUMN", default_value = "faults", value_parser = column())]
    sort: &'static Column,

    /// Show only processes with this in their name, user, pid or cgroup
    #[arg(long, short, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// Show processes that ended lately, too
    #[arg(long, short)]
    all: bool,
}

pub(crate) fn run(client: Client, options: Options) -> anyhow::Result<()> {
    let Options { interval, once, batch, totals, sort, filter, all } = options;
    let figures = if totals { Figures::Totals } else { Figures::Rates };
    let settings = Settings { interval, figures, sort, inverted: false, filter, ended: all };
    let dumb = env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    let live = io::stdin().is_terminal() && io::stdout().is_terminal() && !dumb;
    // The first response precedes any change of the terminal, which an unreachable daemon leaves as
    // it is, but for this line.
    if live {
        write!(io::stdout(), "connecting to {} ...", client.endpoint()).and_then(|()| io::stdout().flush())?;
    }
    let sample = fetch::sample(&client, fetch::OptionalParts::default());
    if live {
        write!(io::stdout(), "\r\x1b[K").and_then(|()| io::stdout().flush())?;
    }
    let state = State::new(settings, *sample?, Instant::now());
    match if once { Some(1) } else { batch } {
        Some(frames) => batch::run(&client, state, Some(frames)),
        None if live => live::run(client, state),
        None => batch::run(&client, state, None),
    }
}

fn column() -> impl TypedValueParser<Value = &'static Column> {
    let names = PossibleValuesParser::new(COLUMNS.iter().map(|column| column.name));
    names.try_map(|name| columns::named(&name).ok_or("no such column"))
}
