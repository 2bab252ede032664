//! `uvmctl gpus`.

use std::io::Write;

use api::{GpuDetail, Gpus, Residency};

use crate::{
    client::Client,
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    resource::Kind,
    terminal::Style,
    text, words,
};

const CONCESSIONS: [Concession; 8] = [
    Concession::DropUnknown("RESIDENT"),
    Concession::Shorten("UUID", 13),
    Concession::Drop("D2H"),
    Concession::Drop("H2D"),
    Concession::Drop("UUID"),
    Concession::Shorten("NAME", 11),
    Concession::Drop("EVICTED"),
    Concession::Drop("REFETCH%"),
];

const PATH: &str = "/api/v1/gpus";

/// The view of all GPUs.
pub(crate) struct List;

impl View for List {
    fn page(&mut self, client: &Client, _: Screen) -> anyhow::Result<Page> {
        let Gpus { gpus, .. } = client.get(PATH)?.body;
        if gpus.is_empty() {
            return Ok(Page::nothing("no GPU was seen yet"));
        }
        Ok(Page::list(table(&gpus), &CONCESSIONS))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_one::<Gpus>(PATH, out)
    }

    fn columns(&self) -> Vec<String> {
        table(&[]).column_names()
    }
}

pub(crate) fn table(gpus: &[GpuDetail]) -> Table {
    let cells = |cell: fn(&GpuDetail) -> Cell| gpus.iter().map(cell);
    let optional = |text: Option<&str>| Cell::optional(text.map(text::printable));
    let columns = vec![
        Column::number("GPU", cells(|gpu| Cell::gpu(&gpu.gpu.id))),
        Column::text("NAME", gpus.iter().map(|gpu| optional(gpu.gpu.name.as_deref()))),
        Column::number("MEMORY", cells(|gpu| Cell::known(gpu.memory_bytes, text::bytes))),
        Column::number("USED", cells(|gpu| Cell::known(gpu.memory_used_bytes, text::bytes))),
        Column::number("MANAGED", cells(|gpu| Cell::amount(gpu.managed_bytes, text::bytes))),
        Column::number(
            "RATIO",
            cells(|gpu| {
                gpu.oversubscription_ratio
                    .map_or_else(Cell::unknown, |ratio| Cell::shown_as(words::ratio(ratio), Some(ratio)))
            }),
        ),
        Column::number("RESIDENT", cells(|gpu| resident(gpu.resident))),
        Column::number("H2D", cells(|gpu| Cell::amount(gpu.gpu.counts.bytes_htod, text::bytes))),
        Column::number("D2H", cells(|gpu| Cell::amount(gpu.gpu.counts.bytes_dtoh, text::bytes))),
        Column::number("EVICTED", cells(|gpu| Cell::known(gpu.gpu.counts.evicted_bytes, text::bytes))),
        Column::number("REFETCH%", cells(|gpu| Cell::refetched(gpu.reuse))),
        Column::text("PCI", gpus.iter().map(|gpu| optional(gpu.pci_address.as_deref()))).wide(),
        Column::number("PROCESSOR", cells(|gpu| gpu.gpu.id.processor_id.map_or_else(Cell::unknown, Cell::ordinal)))
            .wide(),
        Column::text("SOURCE", gpus.iter().map(|gpu| optional(gpu.source.as_deref()))).wide(),
        Column::text("UUID", gpus.iter().map(|gpu| optional(gpu.gpu.id.uuid.as_deref()))),
    ];
    let name = |gpu: &GpuDetail| Kind::Gpu.named(gpu.gpu.id.uuid.as_deref().unwrap_or("unknown"));
    Table::new(columns, vec![Style::Plain; gpus.len()]).named(gpus.iter().map(name))
}

/// Resident bytes; marked `~` where the bounds differ from the figure as shown.
fn resident(resident: Option<Residency>) -> Cell {
    let Some(Residency { bytes, min_bytes, max_bytes }) = resident else { return Cell::unknown() };
    let shown = text::bytes(bytes);
    let is_sure = text::bytes(min_bytes) == shown && text::bytes(max_bytes) == shown;
    Cell::shown_as(if is_sure { shown } else { format!("~{shown}") }, Some(bytes as f64))
}
