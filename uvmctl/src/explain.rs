//! `uvmctl explain`: what is wrong with a process, in words, and what its owner could do.
//!
//! * [`evidence`]: what uvmd says
//! * [`finding`], [`healthy`]: what that means
//! * [`advice`]: what would help
//! * [`page`]: all of it, to be read

pub(crate) mod advice;
pub(crate) mod case;
mod evidence;
pub(crate) mod finding;
mod healthy;
pub(crate) mod page;

use std::io::{self, Write};

use clap::Args;
pub(crate) use evidence::{Evidence, ask, path};

use crate::{
    client::Client,
    terminal::{self, Colour},
    text,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// The process
    pid: u32,

    /// Which of the processes that had this pid, by its start in clock ticks since boot [default: the living one, else the last]
    #[arg(long, value_name = "TICKS")]
    start_ticks: Option<u64>,

    /// Print the daemon's verdicts on it as JSON
    #[arg(long)]
    json: bool,
}

/// Longer lines are hard to read.
const WIDTH_MOST: usize = 100;

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let Options { pid, start_ticks, json } = options;
    if json {
        let answer = evidence::verdicts(client, pid, start_ticks)?;
        return Ok(writeln!(io::stdout(), "{}", text::printable_json(&answer.json))?);
    }
    let evidence = ask(client, pid, start_ticks)?;
    let width = terminal::width().unwrap_or(WIDTH_MOST).min(WIDTH_MOST);
    let colour = Colour::detect();
    let mut out = String::new();
    for paragraph in page::paragraphs(&evidence, Some(&client.remedy())) {
        for line in paragraph.lines(width) {
            out.push_str(&colour.paint(paragraph.style, &line));
            out.push('\n');
        }
    }
    Ok(io::stdout().write_all(out.as_bytes())?)
}
