//! Evictors and victims: `uvmctl evictions`, and a page of `uvmctl top`.

mod matrix;

use std::{collections::HashMap, io::Write, thread, time::Duration};

use api::{Counts, EvictionPair, Evictions, Gpu, Party, Status};
use clap::Args;
pub(crate) use matrix::matrix;

use crate::{
    client::{Client, Error, PAGE},
    output::{
        Page, Screen, View,
        cell::Cell,
        table::{Column, Concession, Table},
    },
    rates::{self, Moment},
    terminal::Style,
    text, words,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Show rates over this window in seconds, instead of totals since uvmd started
    #[arg(long, short, alias = "window", value_name = "SECONDS", value_parser = rates::interval)]
    interval: Option<Duration>,

    /// Show victims by evictors, sums over GPUs and causes
    #[arg(long, short)]
    matrix: bool,
}

/// Victim and evictor, with the rate of eviction if it is known.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) pair: EvictionPair,
    pub(crate) bytes_per_second: Option<f64>,
}

pub(crate) const CONCESSIONS: [Concession; 4] = [
    Concession::Drop("CHUNKS"),
    Concession::Shorten("VICTIM", 14),
    Concession::Shorten("EVICTOR", 14),
    Concession::Drop("GPU"),
];

/// Note on the certainty of evictors.
pub(crate) const INFERRED: &str =
    "evictors are inferred from the order of the driver's events, which is not yet checked on hardware";

/// The view of pairs, with the previous reading.
pub(crate) struct Pairs {
    options: Options,
    before: Option<Evictions>,
}

impl Pairs {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, before: None }
    }
}

impl View for Pairs {
    fn page(&mut self, client: &Client, screen: Screen) -> anyhow::Result<Page> {
        let Options { interval: window, matrix } = self.options;
        let before = match (self.before.take(), window) {
            (None, Some(window)) => {
                let first = fetch(client)?;
                thread::sleep(window);
                Some(first)
            }
            (before, _) => before,
        };
        let now = fetch(client)?;
        if let Some(reason) = unavailable(&now) {
            return Ok(Page::nothing(reason));
        }
        let mut flows = flows(&now, before.as_ref());
        if window.is_some() {
            self.before = Some(now.clone());
        }
        // Pairs without any eviction in the window.
        flows.retain(|flow| flow.bytes_per_second != Some(0.0));
        let status = client.get::<Status>("/api/v1/status")?.body;
        if flows.is_empty() {
            let no_flow = "no evictions in that window";
            return Ok(Page::nothing(if window.is_some() {
                no_flow.to_owned()
            } else {
                empty_reason(&now, &status.total)
            }));
        }
        let page = if matrix {
            Page::text(self::matrix(&flows, screen.width.unwrap_or(usize::MAX)).join("\n") + "\n")
        } else {
            Page::list(table(&flows, &status.gpus), &CONCESSIONS)
        };
        Ok(page.with_note(now.inferred.then_some(INFERRED)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        let first = format!("/api/v1/evictions?limit={PAGE}");
        client.pass_on(&first, &format!("{first}&order=id"), "pairs", out)
    }

    fn columns(&self) -> Vec<String> {
        let with_rates = self.options.interval.map(|_| 0.0);
        let pair = Flow { pair: EvictionPair::default(), bytes_per_second: with_rates };
        if self.options.matrix { Vec::new() } else { table(&[pair], &[]).column_names() }
    }

    fn has_names(&self) -> bool {
        false
    }
}

/// Fetches all pairs.
pub(crate) fn fetch(client: &Client) -> Result<Evictions, Error> {
    client.list(&format!("/api/v1/evictions?order=id&limit={PAGE}"))
}

/// Reason why pairs are not counted; `None` if they are.
fn unavailable(now: &Evictions) -> Option<String> {
    let reason = now.unavailable.as_deref()?;
    Some(format!("victims and evictors are {}", text::printable(reason)))
}

/// Reason for an empty list.
pub(crate) fn empty_reason(now: &Evictions, total: &Counts) -> String {
    let none = [total.evicted_bytes, total.evictions].into_iter().flatten().all(|count| count == 0);
    let counted = if none { "no evictions since uvmd counts" } else { "no eviction has a known victim and evictor" };
    unavailable(now).unwrap_or_else(|| counted.to_owned())
}

/// Pairs with their rates since `before`, largest first.
pub(crate) fn flows(now: &Evictions, before: Option<&Evictions>) -> Vec<Flow> {
    let moment = |of: &Evictions| Moment { taken: humantime::parse_rfc3339(&of.time).ok(), counting_started_at: None };
    let before = before.and_then(|before| {
        let pairs: HashMap<_, _> = before.pairs.iter().flatten().map(|pair| (key(pair), pair.bytes)).collect();
        Some((pairs, moment(now).seconds_since(moment(before))?))
    });
    let flow = |pair: &EvictionPair| {
        let rate = before.as_ref().and_then(|(before, seconds)| {
            let bytes = before.get(&key(pair)).copied().unwrap_or(0);
            Some(pair.bytes.checked_sub(bytes)? as f64 / seconds)
        });
        Flow { pair: pair.clone(), bytes_per_second: rate }
    };
    let mut flows: Vec<_> = now.pairs.iter().flatten().map(flow).collect();
    let rate = |flow: &Flow| flow.bytes_per_second.unwrap_or(0.0);
    flows.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(b.pair.bytes.cmp(&a.pair.bytes)));
    flows
}

/// Key of a party: kind, pid and start.
type PartyKey<'a> = (&'a str, Option<u32>, Option<u64>);

/// Key of a pair: GPU, victim, evictor and cause.
type PairKey<'a> = (Option<&'a str>, PartyKey<'a>, PartyKey<'a>, &'a str);

pub(crate) fn party_key(party: &Party) -> PartyKey<'_> {
    (party.kind.as_str(), party.pid, party.start_ticks)
}

fn key(pair: &EvictionPair) -> PairKey<'_> {
    (pair.gpu_uuid.as_deref(), party_key(&pair.victim), party_key(&pair.evictor), pair.cause.as_str())
}

/// `41207 python train.py`
pub(crate) fn party(party: &Party) -> String {
    let name = party.name.as_deref().map(text::printable).unwrap_or_default();
    match (party.kind.as_str(), party.pid) {
        (_, Some(pid)) => format!("{pid} {name}").trim_end().to_owned(),
        (kind, None) => format!("({})", text::printable(kind)),
    }
}

/// Table with a row for each pair.
pub(crate) fn table(flows: &[Flow], gpus: &[Gpu]) -> Table {
    let cells = |cell: &dyn Fn(&Flow) -> Cell| flows.iter().map(cell).collect::<Vec<_>>().into_iter();
    let gpu = |flow: &Flow| {
        let known = gpus.iter().find(|gpu| gpu.id.uuid.is_some() && gpu.id.uuid == flow.pair.gpu_uuid);
        known.map_or_else(Cell::unknown, |gpu| Cell::gpu(&gpu.id))
    };
    let evictor = |flow: &Flow| {
        let EvictionPair { victim, evictor, .. } = &flow.pair;
        if party_key(victim) == party_key(evictor) { "itself".to_owned() } else { party(evictor) }
    };
    let owner = |party: &Party| Cell::optional(party.owner.as_ref().and_then(words::owner_of));
    let cause = |flow: &Flow| text::printable(&flow.pair.cause.replace('_', " ")).into_owned().into();
    let uuid = |flow: &Flow| Cell::optional(flow.pair.gpu_uuid.as_deref().map(text::printable));
    let mut columns = vec![
        Column::text("VICTIM", cells(&|flow| party(&flow.pair.victim).into())),
        Column::text("VICTIM OWNER", cells(&|flow| owner(&flow.pair.victim))).wide(),
        Column::text("EVICTOR", cells(&|flow| evictor(flow).into())),
        Column::text("EVICTOR OWNER", cells(&|flow| owner(&flow.pair.evictor))).wide(),
        Column::text("CAUSE", cells(&cause)),
        Column::number("GPU", cells(&gpu)),
    ];
    if flows.iter().any(|flow| flow.bytes_per_second.is_some()) {
        columns.push(Column::number("EVICTED/s", cells(&|flow| Cell::rate(flow.bytes_per_second, text::bytes))));
    }
    columns.push(Column::number("EVICTED", cells(&|flow| Cell::amount(flow.pair.bytes, text::bytes))));
    columns.push(Column::number("CHUNKS", cells(&|flow| Cell::amount(flow.pair.evictions, text::count))));
    columns.push(Column::text("GPU UUID", cells(&uuid)).wide());
    Table::new(columns, vec![Style::Plain; flows.len()])
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) fn process(pid: u32, name: &str) -> Party {
        Party {
            kind: "process".to_owned(),
            pid: Some(pid),
            start_ticks: Some(1),
            name: Some(name.to_owned()),
            owner: None,
        }
    }

    pub(crate) fn pair(victim: Party, evictor: Party, bytes: u64) -> EvictionPair {
        EvictionPair {
            victim,
            evictor,
            cause: "fault".to_owned(),
            bytes,
            evictions: bytes >> 21,
            ..EvictionPair::default()
        }
    }

    pub(crate) fn at(second: u32, pairs: Vec<EvictionPair>) -> Evictions {
        Evictions {
            time: format!("2026-11-21T14:00:{second:02}Z"),
            inferred: true,
            pairs: Some(pairs),
            ..Evictions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};
    use crate::terminal::Colour;

    const MIB: u64 = 1 << 20;

    #[test]
    fn flows_are_sorted_by_rate_and_new_pairs_start_at_zero() {
        let (fits, streams) = (|| process(1, "fits"), || process(2, "streams"));
        let before = at(0, vec![pair(streams(), streams(), 900 * MIB)]);
        let now = at(2, vec![pair(streams(), streams(), 904 * MIB), pair(fits(), streams(), 8 * MIB)]);
        let flows = flows(&now, Some(&before));
        let rates: Vec<_> = flows.iter().map(|flow| (flow.pair.victim.pid, flow.bytes_per_second)).collect();
        assert_eq!(rates, [(Some(1), Some(4.0 * MIB as f64)), (Some(2), Some(2.0 * MIB as f64))]);
    }

    #[test]
    fn a_decreased_pair_has_no_rate() {
        let pairs = |bytes| vec![pair(process(1, "a"), process(1, "a"), bytes)];
        assert_eq!(flows(&at(2, pairs(1)), Some(&at(0, pairs(2))))[0].bytes_per_second, None);
        assert_eq!(flows(&at(2, pairs(2)), None)[0].bytes_per_second, None);
    }

    #[test]
    fn a_line_has_the_victim_the_evictor_and_the_cause() {
        let forgotten = Party { kind: "forgotten".to_owned(), ..Party::default() };
        let pairs = vec![
            pair(process(1, "fits"), process(2, "streams"), 8 * MIB),
            pair(process(2, "streams"), process(2, "streams"), 4 * MIB),
            pair(forgotten, Party { kind: "unknown".to_owned(), ..Party::default() }, 2 * MIB),
        ];
        let text = table(&flows(&at(0, pairs), None), &[]).narrow().render(Colour::OFF);
        assert_eq!(
            text,
            "\
VICTIM       EVICTOR    CAUSE  GPU  EVICTED  CHUNKS
1 fits       2 streams  fault    -  8.0 MiB       4
2 streams    itself     fault    -  4.0 MiB       2
(forgotten)  (unknown)  fault    -  2.0 MiB       1
"
        );
    }
}
