//! `uvmctl decisions`: decisions about processes, and their effects.

pub(crate) mod one;

use std::io::Write;

use api::decision::{Decision, Decisions};
use clap::Args;
use model::Stage;

use crate::{
    client::{Client, PAGE},
    completion,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    resource::{self, Kind},
    terminal::Style,
    text, words,
};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Decision to show alone, with its windows before and after
    #[arg(conflicts_with_all = ["pid", "stage", "limit"], value_parser = resource::decision, add = completion::decisions())]
    pub(crate) id: Option<u64>,

    /// Process
    #[arg(long, value_parser = resource::process, add = completion::processes())]
    pid: Option<u32>,

    /// Stage
    #[arg(long, value_parser = Stage::NAMES)]
    stage: Option<String>,

    /// Maximum number of decisions
    #[arg(long, short = 'n', value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=PAGE.into()))]
    limit: u32,
}

const PATH: &str = "/api/v1/decisions";

/// Latest decisions that match the options.
pub(crate) struct List(pub(crate) Options);

impl List {
    fn path(&self) -> String {
        let Options { pid, stage, .. } = &self.0;
        let pid = pid.map(|pid| format!("pid={pid}"));
        let stage = stage.as_ref().map(|stage| format!("stage={stage}"));
        let filter = pid.into_iter().chain(stage).collect::<Vec<_>>().join("&");
        if filter.is_empty() { PATH.to_owned() } else { format!("{PATH}?{filter}") }
    }

    const fn limit(&self) -> usize {
        self.0.limit as usize
    }
}

impl View for List {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let mut known = client.list_up_to::<Decisions>(&self.path(), Some(self.limit()))?;
        known.decisions.truncate(self.limit());
        if known.decisions.is_empty() {
            return Ok(Page::nothing("no decisions; uvmctl policy show lists what uvmd may do"));
        }
        Ok(Page::list(table(&known), &CONCESSIONS))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_up_to(&self.path(), self.limit(), "decisions", out)
    }

    fn columns(&self) -> Vec<String> {
        table(&Decisions::default()).column_names()
    }
}

/// One decision.
pub(crate) struct One(pub(crate) u64);

impl View for One {
    fn page(&mut self, client: &Client, screen: Screen) -> anyhow::Result<Page> {
        let decision = client.get::<Decision>(&format!("{PATH}/{}", self.0))?.body;
        Ok(Page::text(one::render(&decision, screen)).named(Kind::Decision.named(decision.id)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_one::<Decision>(&format!("{PATH}/{}", self.0), out)
    }
}

const CONCESSIONS: [Concession; 4] = [
    Concession::Shorten("REASON", 24),
    Concession::Shorten("PROCESS", 8),
    Concession::Drop("VERDICT"),
    Concession::Shorten("REASON", 8),
];

pub(crate) fn table(Decisions { time, decisions, .. }: &Decisions) -> Table {
    let cells = |cell: fn(&Decision) -> Cell| decisions.iter().map(cell);
    let age = |each: &Decision| Cell::age(words::age(&each.updated_at, time));
    let text = |text: &str| Cell::from(text::printable(text).into_owned());
    let optional = |text: Option<&str>| Cell::optional(text.map(text::printable));
    let columns = vec![
        Column::number("ID", cells(|each| Cell::ordinal(i64::try_from(each.id).unwrap_or(i64::MAX)))),
        Column::number("PID", cells(|each| Cell::ordinal(each.pid))),
        Column::text("PROCESS", decisions.iter().map(|each| text(&each.name))),
        Column::text("POLICY", decisions.iter().map(|each| text(&each.policy))),
        Column::text("STAGE", decisions.iter().map(|each| text(&each.stage))),
        Column::text("AGE", decisions.iter().map(age)),
        Column::text("EFFECT", cells(|each| text::printable(&each.effect).into_owned().into())),
        Column::text("VERDICT", cells(|each| Cell::optional(each.verdict_label.as_deref().map(text::printable)))),
        Column::number("MEMORY", cells(|each| Cell::amount(each.bytes, text::bytes))).wide(),
        Column::text("OVERRIDE", decisions.iter().map(|each| optional(each.override_id.as_deref()))).wide(),
        Column::text("GPU UUID", decisions.iter().map(|each| text(&each.gpu_uuid))).wide(),
        Column::text("REASON", decisions.iter().map(|each| text(each.stage_reason.as_deref().unwrap_or(&each.reason)))),
    ];
    Table::new(columns, decisions.iter().map(|each| style(&each.stage)).collect())
        .named(decisions.iter().map(|each| Kind::Decision.named(each.id)))
}

pub(crate) fn style(stage: &str) -> Style {
    match stage {
        "confirmed" => Style::Good,
        "rolled_back" | "denied" => Style::Warning,
        "ended" => Style::Faded,
        _ => Style::Plain,
    }
}
