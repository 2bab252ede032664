//! `uvmctl gpus`.

use std::io::{self, Write};

use clap::Args;
use model::api::{GpuDetail, Gpus, Residency};

use crate::{
    client::Client,
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text, words,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

const CONCESSIONS: [Concession; 9] = [
    Concession::Drop("TOLD BY"),
    Concession::Drop("PCI"),
    Concession::Shorten("UUID", 13),
    Concession::Drop("D2H"),
    Concession::Drop("H2D"),
    Concession::Drop("UUID"),
    Concession::Shorten("NAME", 11),
    Concession::Drop("EVICTED"),
    Concession::Drop("REFETCH%"),
];

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let answer = client.get::<Gpus>("/api/v1/gpus")?;
    if options.json {
        return Ok(writeln!(io::stdout(), "{}", text::printable_json(&answer.json))?);
    }
    let Gpus { gpus, .. } = answer.body;
    if gpus.is_empty() {
        terminal::note("no GPU was seen yet");
        return Ok(());
    }
    let table = table(&gpus).fit(terminal::width(), &CONCESSIONS);
    Ok(io::stdout().write_all(table.render(Colour::detect()).as_bytes())?)
}

pub(crate) fn table(gpus: &[GpuDetail]) -> Table {
    let cells = |cell: fn(&GpuDetail) -> String| gpus.iter().map(cell);
    let unknown = || "-".to_owned();
    let optional = move |text: Option<&str>| text.map_or_else(unknown, |text| text::printable(text).into_owned());
    let columns = vec![
        Column::number("GPU", cells(|gpu| text::gpu(gpu.gpu.gpu))),
        Column::number("INDEX", cells(|gpu| text::gpu(gpu.index))),
        Column::text("NAME", gpus.iter().map(|gpu| optional(gpu.gpu.name.as_deref()))),
        Column::number("MEMORY", gpus.iter().map(|gpu| gpu.memory_bytes.map_or_else(unknown, text::bytes))),
        Column::number("USED", gpus.iter().map(|gpu| gpu.memory_used_bytes.map_or_else(unknown, text::bytes))),
        Column::number("MANAGED", cells(|gpu| text::bytes(gpu.managed_bytes))),
        Column::number("RATIO", gpus.iter().map(|gpu| gpu.oversubscription_ratio.map_or_else(unknown, words::ratio))),
        Column::number("RESIDENT", cells(|gpu| resident(gpu.resident))),
        Column::number("H2D", cells(|gpu| text::bytes(gpu.gpu.counts.bytes_htod))),
        Column::number("D2H", cells(|gpu| text::bytes(gpu.gpu.counts.bytes_dtoh))),
        Column::number("EVICTED", cells(|gpu| text::bytes(gpu.gpu.counts.evicted_bytes))),
        Column::number("REFETCH%", cells(|gpu| text::share(gpu.reuse.refetched_bytes, gpu.reuse.fetched_bytes))),
        Column::text("PCI", gpus.iter().map(|gpu| optional(gpu.pci_address.as_deref()))),
        Column::text("TOLD BY", gpus.iter().map(|gpu| optional(gpu.source.as_deref()))),
        Column::text("UUID", gpus.iter().map(|gpu| optional(gpu.gpu.uuid.as_deref()))),
    ];
    Table::new(columns, vec![Style::Plain; gpus.len()])
}

/// Marked where the bounds are further apart than can be seen in the figure.
fn resident(resident: Option<Residency>) -> String {
    let Some(Residency { bytes, min_bytes, max_bytes }) = resident else { return "-".to_owned() };
    let shown = text::bytes(bytes);
    if text::bytes(min_bytes) == shown && text::bytes(max_bytes) == shown { shown } else { format!("~{shown}") }
}
