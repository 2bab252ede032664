//! `uvmctl explain`: the verdicts on a process and remedies, in uvmd's words.
//!
//! * `evidence`: what uvmd reports
//! * `finding`, `healthy`: figures around its words
//! * `page`: all of it as text

mod evidence;
pub(crate) mod finding;
mod healthy;
pub(crate) mod page;

use std::io::Write;

use clap::Args;
pub(crate) use evidence::{Evidence, fetch, path};

use api::Verdicts;

use crate::{
    client::Client,
    completion,
    output::{Page, Screen, View},
    resource::{self, Kind},
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Process
    #[arg(value_parser = resource::process, add = completion::processes())]
    pid: u32,

    /// Start time of the process in clock ticks since boot [default: the running process, else the
    /// last one]
    #[arg(long, value_name = "TICKS")]
    start_ticks: Option<u64>,
}

/// Maximum width of lines.
const WIDTH_MAX: usize = 100;

/// The explanation of one process.
pub(crate) struct Explanation(pub(crate) Options);

impl View for Explanation {
    fn page(&mut self, client: &Client, Screen { width, colour }: Screen) -> anyhow::Result<Page> {
        let Options { pid, start_ticks } = self.0;
        let evidence = fetch(client, pid, start_ticks)?;
        let width = width.unwrap_or(WIDTH_MAX).min(WIDTH_MAX);
        let mut out = String::new();
        for paragraph in page::paragraphs(&evidence, Some(&client.remedy())) {
            for line in paragraph.lines(width) {
                out.push_str(&colour.paint(paragraph.style, &line));
                out.push('\n');
            }
        }
        Ok(Page::text(out).named(Kind::Process.named(pid)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        let Options { pid, start_ticks } = self.0;
        client.pass_on_one::<Verdicts>(&path(pid, start_ticks, "/verdict"), out)
    }
}
