//! `uvmctl decisions`: what was decided about processes, and how it went.

pub(crate) mod follow;
pub(crate) mod one;

use std::io::{self, Write};

use clap::Args;
use model::{
    Stage,
    api::decision::{Decision, Decisions},
};

use crate::{
    client::{Client, PAGE},
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text, words,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Show this decision, with everything that is known of it
    #[arg(conflicts_with_all = ["pid", "stage", "limit", "follow"])]
    id: Option<u64>,

    /// Those about this process
    #[arg(long)]
    pid: Option<u32>,

    /// Those that stand there
    #[arg(long, value_parser = Stage::NAMES)]
    stage: Option<String>,

    /// How many at most
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=PAGE.into()))]
    limit: u32,

    /// Say what happens from now on, line by line
    #[arg(long, short, conflicts_with_all = ["stage", "limit"])]
    follow: bool,

    /// Print the daemon's answer as JSON; with --follow, an object a line
    #[arg(long)]
    json: bool,
}

const PATH: &str = "/api/v1/decisions";

pub(crate) fn run(client: &Client, options: &Options) -> anyhow::Result<()> {
    let Options { id, pid, ref stage, limit, follow, json } = *options;
    if follow {
        return follow::run(client, pid, json);
    }
    if let Some(id) = id {
        let answer = client.get::<Decision>(&format!("{PATH}/{id}"))?;
        if json {
            return Ok(writeln!(io::stdout(), "{}", text::printable_json(&answer.json))?);
        }
        return Ok(io::stdout().write_all(one::render(&answer.body, Colour::detect()).as_bytes())?);
    }
    let pid = pid.map(|pid| format!("pid={pid}"));
    let stage = stage.as_ref().map(|stage| format!("stage={stage}"));
    let filter = pid.into_iter().chain(stage).collect::<Vec<_>>().join("&");
    let path = if filter.is_empty() { PATH.to_owned() } else { format!("{PATH}?{filter}") };
    if json {
        return client.pass_on_up_to(&path, limit as usize, "decisions", &mut io::stdout().lock());
    }
    let mut known = client.list_up_to::<Decisions>(&path, Some(limit as usize))?;
    known.decisions.truncate(limit as usize);
    if known.decisions.is_empty() {
        terminal::note("nothing was decided; uvmctl policy show says whether anything is wanted");
        return Ok(());
    }
    let output = table(&known).fit(terminal::width(), &CONCESSIONS).render(Colour::detect());
    Ok(io::stdout().write_all(output.as_bytes())?)
}

const CONCESSIONS: [Concession; 4] = [
    Concession::Shorten("REASON", 24),
    Concession::Shorten("PROCESS", 8),
    Concession::Drop("VERDICT"),
    Concession::Shorten("REASON", 8),
];

pub(crate) fn table(Decisions { time, decisions, .. }: &Decisions) -> Table {
    let cells = |cell: fn(&Decision) -> String| decisions.iter().map(cell);
    let age = |each: &Decision| words::age(&each.updated_at, time).map_or_else(|| "-".to_owned(), words::clock);
    let columns = vec![
        Column::number("ID", cells(|each| each.id.to_string())),
        Column::number("PID", cells(|each| each.pid.to_string())),
        Column::text("PROCESS", cells(|each| text::printable(&each.name).into_owned())),
        Column::text("POLICY", cells(|each| text::printable(&each.policy).into_owned())),
        Column::text("STAGE", cells(|each| text::printable(&each.stage).into_owned())),
        Column::text("FOR", decisions.iter().map(age)),
        Column::text("EFFECT", cells(words::effect)),
        Column::text(
            "VERDICT",
            cells(|each| each.verdict.as_deref().map_or_else(|| "-".to_owned(), |kind| words::kind(kind).into_owned())),
        ),
        Column::text(
            "REASON",
            cells(|each| text::printable(each.stage_reason.as_deref().unwrap_or(&each.reason)).into_owned()),
        ),
    ];
    Table::new(columns, decisions.iter().map(|each| style(&each.stage)).collect())
}

fn style(stage: &str) -> Style {
    match stage {
        "confirmed" => Style::Good,
        "rolled_back" | "denied" => Style::Warning,
        "ended" => Style::Faded,
        _ => Style::Plain,
    }
}
