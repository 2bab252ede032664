//! `uvmctl owners`.

use std::io::Write;

use api::{OwnerTotals, Owners};
use clap::Args;

use crate::{
    client::{Client, PAGE},
    filter::OwnerFilter,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    terminal::Style,
    text, words,
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    #[command(flatten)]
    filter: OwnerFilter,
}

const CONCESSIONS: [Concession; 4] = [
    Concession::Drop("INDUCED"),
    Concession::Drop("D2H"),
    Concession::Shorten("OWNER", 16),
    Concession::Drop("REFETCH%"),
];

/// The view of all owners.
pub(crate) struct List(pub(crate) Options);

impl View for List {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let owners =
            client.list::<Owners>(&format!("/api/v1/owners?order=id&limit={PAGE}{}", self.0.filter.query()))?;
        if owners.owners.is_empty() {
            return Ok(Page::nothing("no owner used managed memory"));
        }
        Ok(Page::list(table(owners), &CONCESSIONS))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        let first = format!("/api/v1/owners?limit={PAGE}{}", self.0.filter.query());
        client.pass_on(&first, &format!("{first}&order=id"), "owners", out)
    }

    fn columns(&self) -> Vec<String> {
        table(Owners::default()).column_names()
    }

    fn has_names(&self) -> bool {
        false
    }
}

fn table(Owners { time, mut owners, .. }: Owners) -> Table {
    owners.sort_by_key(|owner| std::cmp::Reverse(owner.counts.bytes_htod.saturating_add(owner.counts.bytes_dtoh)));
    let cells = |cell: fn(&OwnerTotals) -> Cell| owners.iter().map(cell);
    let label = |owner: &OwnerTotals| {
        Cell::from(text::printable(if owner.label.is_empty() { &owner.kind } else { &owner.label }).into_owned())
    };
    let age = |owner: &OwnerTotals| Cell::age(words::age(&owner.last_active_at, &time));
    let columns = vec![
        Column::text("OWNER", cells(label)),
        Column::number("PROCESSES", cells(|owner| Cell::amount(owner.processes, text::count))),
        Column::number("FAULTS", cells(|owner| Cell::amount(owner.counts.fault_entries, text::count))),
        Column::number("H2D", cells(|owner| Cell::amount(owner.counts.bytes_htod, text::bytes))),
        Column::number("D2H", cells(|owner| Cell::amount(owner.counts.bytes_dtoh, text::bytes))),
        Column::number("EVICTED", cells(|owner| Cell::known(owner.counts.evicted_bytes, text::bytes))),
        Column::number("INDUCED", cells(|owner| Cell::known(owner.counts.induced_eviction_bytes, text::bytes))),
        Column::number("REFETCH%", cells(|owner| Cell::refetched(owner.reuse))),
        Column::text("IDLE", owners.iter().map(age)),
        Column::text("ID", cells(|owner| text::printable(&owner.id).into_owned().into())).wide(),
    ];
    Table::new(columns, vec![Style::Plain; owners.len()])
}
