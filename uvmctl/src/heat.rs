//! Faults, copies and residency by address: `uvmctl heatmap`, and the strips of `uvmctl top`.

use std::io::Write;

use api::{HeatCell, HeatMap, HeatRange};
use clap::{Args, ValueEnum};
use model::text::parse_address;

use crate::{
    client::Client,
    completion,
    look::Look,
    output::{Page, Screen, View},
    resource::{self, Kind},
    terminal, text,
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

    /// Measure of heat
    // -b is that of top; scripts may have it.
    #[arg(long, short_alias = 'b', value_enum, default_value_t)]
    by: Measure,
}

/// Measure of a cell's heat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Measure {
    /// Pages faulted on or copied
    #[default]
    Activity,
    /// Bytes refetched after an eviction
    Refetched,
    /// Bytes evicted
    Evicted,
    /// GPU faults
    Faults,
    /// CPU faults
    CpuFaults,
    /// Share in GPU memory now
    Resident,
}

const PAGE_BYTES: u64 = 4096;
/// Cells in a line without a terminal.
const CELLS: usize = 64;
/// Maximum of cells that the API reports for a range.
const CELLS_MAX: usize = 4096;
/// `0x7f2a40000000  48.0 GiB  `
const LABEL_WIDTH: usize = 26;

impl Measure {
    /// Heat of a cell; `None` if it is not counted.
    pub(crate) fn of(self, cell: &HeatCell) -> Option<u64> {
        match self {
            Self::Activity => {
                let pages = cell.fetched_bytes.saturating_add(cell.bytes_dtoh) / PAGE_BYTES;
                Some([cell.fault_entries, cell.cpu_faults].into_iter().flatten().fold(pages, u64::saturating_add))
            }
            Self::Refetched => Some(cell.refetched_bytes),
            Self::Evicted => Some(cell.evicted_bytes),
            Self::Faults => cell.fault_entries,
            Self::CpuFaults => cell.cpu_faults,
            Self::Resident => cell.resident.map(|resident| resident.bytes),
        }
    }

    /// Whether any cell is counted. Of a map without cells, nothing is known.
    fn is_counted(self, map: &HeatMap) -> bool {
        let mut cells = map.ranges.iter().flat_map(|range| &range.cells).peekable();
        cells.peek().is_none() || cells.any(|cell| self.of(cell).is_some())
    }

    /// Highest heat of any cell; for residency, the size of the largest cell.
    pub(crate) fn most(self, map: &HeatMap) -> u64 {
        let cells = map.ranges.iter().flat_map(|range| range.cells.iter().map(move |cell| (range, cell)));
        let heat = |(range, cell): (&HeatRange, &HeatCell)| match self {
            Self::Resident => Some(range.cell_bytes),
            measure => measure.of(cell),
        };
        cells.filter_map(heat).max().unwrap_or(0)
    }
}

/// Heat of a range with one character per cell. In a narrow strip, cells share a character, which
/// shows the hottest. Blank cells had no event.
pub(crate) fn strip(range: &HeatRange, measure: Measure, most: u64, width: usize, look: Look) -> String {
    let cells = &range.cells;
    let columns = cells.len().min(width);
    let column = |at: usize| {
        let shared = cells.get(at * cells.len() / columns..(at + 1) * cells.len() / columns).unwrap_or_default();
        let seen = shared.iter().filter(|cell| cell.idle_seconds.is_some());
        seen.filter_map(|cell| measure.of(cell)).map(|heat| heat as f64).reduce(f64::max)
    };
    look.sparkline((0..columns).map(column), most as f64)
}

pub(crate) fn path(pid: u32, start_ticks: Option<u64>, cells: usize) -> String {
    let query = start_ticks.map(|ticks| format!("&start_ticks={ticks}")).unwrap_or_default();
    format!("/api/v1/processes/{pid}/heatmap?cells={cells}{query}")
}

/// The heat map of one process.
pub(crate) struct Map(pub(crate) Options);

impl Map {
    fn path(&self, cells: usize) -> String {
        let Options { pid, start_ticks, .. } = self.0;
        path(pid, start_ticks, cells)
    }
}

/// Number of cells in a line of a terminal of this width.
fn cells(width: Option<usize>) -> usize {
    width.map_or(CELLS, |width| width.saturating_sub(LABEL_WIDTH + 1).clamp(1, CELLS_MAX))
}

impl View for Map {
    fn page(&mut self, client: &Client, Screen { width, .. }: Screen) -> anyhow::Result<Page> {
        let width = cells(width);
        let map = client.get::<HeatMap>(&self.path(width))?.body;
        if map.ranges.is_empty() {
            return Ok(Page::nothing("no range of its managed memory is known"));
        }
        if !self.0.by.is_counted(&map) {
            return Ok(Page::nothing("not counted by address with this source and driver (see uvmctl status)"));
        }
        let text = render(&map, self.0.by, width, Look::detect());
        Ok(Page::text(text).named(Kind::Process.named(self.0.pid)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_one::<HeatMap>(&self.path(cells(terminal::width())), out)
    }
}

pub(crate) fn render(map: &HeatMap, by: Measure, width: usize, look: Look) -> String {
    let most = by.most(map);
    let line = |range: &HeatRange| {
        let length = || Some(parse_address(&range.end).ok()?.saturating_sub(parse_address(&range.begin).ok()?));
        let bytes = length().map_or_else(|| "-".to_owned(), text::bytes);
        let strip = strip(range, by, most, width, look);
        format!("{:<14}  {bytes:>8}  {strip}", look.text(&range.begin)).trim_end().to_owned() + "\n"
    };
    let lines: String = map.ranges.iter().map(line).collect();
    let [nothing, little, much] = look.levels_shown();
    let shown = match by {
        Measure::CpuFaults | Measure::Faults => text::count(most),
        Measure::Activity if Measure::Faults.is_counted(map) => format!("{} pages", text::count(most)),
        Measure::Activity => format!("{} copied pages", text::count(most)),
        _ => text::bytes(most),
    };
    let legend = format!("blank: never seen; {nothing} nothing, {little} little, {much} {shown} a cell");
    let omitted = match map.ranges_omitted {
        0 => String::new(),
        ranges => format!("; {} omitted", text::counted(ranges, "range")),
    };
    lines + &legend + &omitted + "\n"
}
