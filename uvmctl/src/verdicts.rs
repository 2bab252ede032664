//! `uvmctl verdicts`.

use std::io::Write;

use api::{Verdict, Verdicts};
use clap::Args;

use crate::{
    client::{Client, Error, PAGE},
    filter::ProcessFilter,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    resource::Kind,
    terminal::Style,
    text, words,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// List verdicts that ended, too
    #[arg(long, short)]
    all: bool,

    #[command(flatten)]
    filter: ProcessFilter,
}

const CONCESSIONS: [Concession; 3] =
    [Concession::Shorten("OWNER", 12), Concession::Shorten("REASON", 40), Concession::Shorten("REASON", 12)];

/// The view of all verdicts.
pub(crate) struct List(pub(crate) Options);

impl List {
    fn fetch(&self, client: &Client) -> Result<Verdicts, Error> {
        let state = if self.0.all { "" } else { "&state=active" };
        client.list(&format!("/api/v1/verdicts?order=id&limit={PAGE}{state}{}", self.0.filter.query()))
    }
}

impl View for List {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let verdicts = self.fetch(client)?;
        if verdicts.active.is_empty() && verdicts.ended.is_empty() {
            return Ok(Page::nothing(if self.0.all { "no verdicts" } else { "no active verdicts" }));
        }
        Ok(Page::list(table(&verdicts, self.0.all), &CONCESSIONS))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        // Two lists, whose pages are one document.
        let json = serde_json::to_string(&self.fetch(client)?)?;
        Ok(writeln!(out, "{}", text::printable_json(&json))?)
    }

    fn columns(&self) -> Vec<String> {
        table(&Verdicts::default(), self.0.all).column_names()
    }
}

/// Owner, or the user of a process without one; `None` once it is forgotten.
fn owner(Verdict { owner, uid, user, .. }: &Verdict) -> Option<String> {
    words::owner_of(owner).or_else(|| Some(words::user_label(user.as_deref(), (*uid)?)))
}

fn table(Verdicts { time, active, ended, .. }: &Verdicts, with_ended: bool) -> Table {
    let all: Vec<&Verdict> = active.iter().chain(ended).collect();
    let cells = |cell: &dyn Fn(&Verdict) -> Cell| all.iter().map(|each| cell(each)).collect::<Vec<_>>().into_iter();
    let text = |text: &str| Cell::from(text::printable(text).into_owned());
    let age = |since: &str| Cell::age(words::age(since, time));
    let mut columns = vec![
        Column::number("PID", cells(&|each| Cell::ordinal(each.pid))),
        Column::text("PROCESS", cells(&|each| text(&each.name))),
        Column::text("OWNER", cells(&|each| Cell::optional(owner(each)))),
        Column::text("VERDICT", cells(&|each| text(&each.label))),
        Column::text("SINCE", cells(&|each| age(&each.started_at))),
    ];
    if with_ended {
        let ended = |each: &Verdict| each.ended_at.as_deref().map_or_else(|| Cell::optional(None::<String>), age);
        columns.push(Column::text("ENDED", cells(&ended)));
    }
    columns.extend([
        Column::text("GPU UUID", cells(&|each| Cell::optional(each.gpu_uuid.as_deref().map(text::printable)))).wide(),
        Column::text("REASON", cells(&|each| text(&each.reason))),
    ]);
    let style = |each: &&Verdict| if each.ended_at.is_some() { Style::Faded } else { Style::Warning };
    Table::new(columns, all.iter().map(style).collect()).named(all.iter().map(|each| Kind::Process.named(each.pid)))
}
