//! Who pushed whose memory out: `uvmctl evictions`, and a view of `uvmctl top`.

mod matrix;

use std::{
    collections::HashMap,
    io::{self, Write},
    thread,
    time::Duration,
};

use clap::Args;
pub(crate) use matrix::matrix;
use model::api::{Counts, EvictionPair, Evictions, Gpu, Party, Status};

use crate::{
    client::{Client, Error, PAGE},
    rates::{self, Moment},
    table::{Column, Concession, Table},
    terminal::{self, Colour, Style},
    text,
};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// Show rates over this window, instead of totals since uvmd started
    #[arg(long, short, value_name = "SECONDS", value_parser = rates::interval)]
    window: Option<Duration>,

    /// Show victims by evictors, sums over GPUs and causes
    #[arg(long, short)]
    matrix: bool,

    /// Print the daemon's answer as JSON, with sums; where it has several pages, sorted by GPU and victim
    #[arg(long, conflicts_with_all = ["window", "matrix"])]
    json: bool,
}

/// A pair of parties, and what it gained a second if that is known.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) pair: EvictionPair,
    pub(crate) bytes_per_second: Option<f64>,
}

pub(crate) const CONCESSIONS: [Concession; 4] = [
    Concession::Drop("PIECES"),
    Concession::Shorten("VICTIM", 14),
    Concession::Shorten("FOR", 14),
    Concession::Drop("GPU"),
];

/// Whoever reads this must know how sure it is.
pub(crate) const INFERRED: &str =
    "who evicted whom is inferred from the order of the driver's events, and not yet checked on hardware";

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<()> {
    let Options { window, matrix, json } = options;
    if json {
        let first = format!("/api/v1/evictions?limit={PAGE}");
        return client.pass_on(&first, &format!("{first}&order=id"), "pairs", &mut io::stdout().lock());
    }
    let first = ask(client)?;
    let (now, before) = match window {
        None => (first, None),
        Some(interval) => {
            thread::sleep(interval);
            (ask(client)?, Some(first))
        }
    };
    let mut flows = flows(&now, before.as_ref());
    // What stands still is no part of what goes on.
    flows.retain(|flow| flow.bytes_per_second != Some(0.0));
    if flows.is_empty() {
        if window.is_some() {
            terminal::note("nothing was evicted from a GPU in that time");
        } else {
            terminal::note(nothing(&client.get::<Status>("/api/v1/status")?.body.total));
        }
        return Ok(());
    }
    let width = terminal::width();
    let output = if matrix {
        self::matrix(&flows, width.unwrap_or(usize::MAX)).join("\n") + "\n"
    } else {
        let gpus = client.get::<Status>("/api/v1/status")?.body.gpus;
        table(&flows, &gpus).fit(width, &CONCESSIONS).render(Colour::detect())
    };
    io::stdout().write_all(output.as_bytes())?;
    if now.inferred {
        terminal::note(INFERRED);
    }
    Ok(())
}

/// All of them.
pub(crate) fn ask(client: &Client) -> Result<Evictions, Error> {
    client.list(&format!("/api/v1/evictions?order=id&limit={PAGE}"))
}

/// Why there is nothing to show.
pub(crate) fn nothing(total: &Counts) -> &'static str {
    if total.evictions == 0 {
        "nothing was evicted from a GPU since uvmd counts"
    } else {
        "memory was evicted from GPUs, and for whom is not known: a probe is missing (see uvmctl status)"
    }
}

/// What there is now, and how it grew, most first.
pub(crate) fn flows(now: &Evictions, before: Option<&Evictions>) -> Vec<Flow> {
    let moment = |of: &Evictions| Moment { taken: humantime::parse_rfc3339(&of.time).ok(), counting_since: None };
    let before = before.and_then(|before| {
        let pairs: HashMap<_, _> = before.pairs.iter().map(|pair| (key(pair), pair.bytes)).collect();
        Some((pairs, moment(now).seconds_since(moment(before))?))
    });
    let flow = |pair: &EvictionPair| {
        let rate = before.as_ref().and_then(|(before, seconds)| {
            let bytes = before.get(&key(pair)).copied().unwrap_or(0);
            Some(pair.bytes.checked_sub(bytes)? as f64 / seconds)
        });
        Flow { pair: pair.clone(), bytes_per_second: rate }
    };
    let mut flows: Vec<_> = now.pairs.iter().map(flow).collect();
    let rate = |flow: &Flow| flow.bytes_per_second.unwrap_or(0.0);
    flows.sort_by(|a, b| rate(b).total_cmp(&rate(a)).then(b.pair.bytes.cmp(&a.pair.bytes)));
    flows
}

/// What names a party: kind, pid and start.
type PartyKey<'a> = (&'a str, Option<u32>, Option<u64>);

/// What names a pair: GPU, victim, evictor and cause.
type Key<'a> = (Option<&'a str>, PartyKey<'a>, PartyKey<'a>, &'a str);

pub(crate) fn party_key(party: &Party) -> PartyKey<'_> {
    (party.kind.as_str(), party.pid, party.start_ticks)
}

fn key(pair: &EvictionPair) -> Key<'_> {
    (pair.gpu_uuid.as_deref(), party_key(&pair.victim), party_key(&pair.evictor), pair.cause.as_str())
}

/// `41207 python train.py`
pub(crate) fn party(party: &Party) -> String {
    let name = party.name.as_deref().map(text::printable).unwrap_or_default();
    match (party.kind.as_str(), party.pid) {
        (_, Some(pid)) => format!("{pid} {name}").trim_end().to_owned(),
        ("forgotten", None) => "(ended)".to_owned(),
        (kind, None) => format!("({})", text::printable(kind)),
    }
}

/// A line for each pair.
pub(crate) fn table(flows: &[Flow], gpus: &[Gpu]) -> Table {
    let cells = |cell: &dyn Fn(&Flow) -> String| flows.iter().map(cell).collect::<Vec<_>>().into_iter();
    let gpu = |flow: &Flow| {
        let known = gpus.iter().find(|gpu| gpu.uuid.is_some() && gpu.uuid == flow.pair.gpu_uuid);
        text::gpu(known.and_then(|gpu| gpu.gpu))
    };
    let evictor = |flow: &Flow| {
        let EvictionPair { victim, evictor, .. } = &flow.pair;
        if party_key(victim) == party_key(evictor) { "itself".to_owned() } else { party(evictor) }
    };
    let mut columns = vec![
        Column::text("VICTIM", cells(&|flow| party(&flow.pair.victim))),
        Column::text("FOR", cells(&evictor)),
        Column::text("CAUSE", cells(&|flow| text::printable(&flow.pair.cause.replace('_', " ")).into_owned())),
        Column::number("GPU", cells(&gpu)),
    ];
    if flows.iter().any(|flow| flow.bytes_per_second.is_some()) {
        columns.push(Column::number("EVICTED/s", cells(&|flow| rates::per_second(flow.bytes_per_second, text::bytes))));
    }
    columns.push(Column::number("EVICTED", cells(&|flow| text::bytes(flow.pair.bytes))));
    columns.push(Column::number("PIECES", cells(&|flow| text::count(flow.pair.evictions))));
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
        Evictions { time: format!("2026-11-21T14:00:{second:02}Z"), inferred: true, pairs, ..Evictions::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{testing::*, *};

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_grew_most_comes_first_and_what_is_new_grew_from_nothing() {
        let (fits, streams) = (|| process(1, "fits"), || process(2, "streams"));
        let before = at(0, vec![pair(streams(), streams(), 900 * MIB)]);
        let now = at(2, vec![pair(streams(), streams(), 904 * MIB), pair(fits(), streams(), 8 * MIB)]);
        let flows = flows(&now, Some(&before));
        let rates: Vec<_> = flows.iter().map(|flow| (flow.pair.victim.pid, flow.bytes_per_second)).collect();
        assert_eq!(rates, [(Some(1), Some(4.0 * MIB as f64)), (Some(2), Some(2.0 * MIB as f64))]);
    }

    #[test]
    fn a_pair_that_went_back_began_anew_and_has_no_rate() {
        let pairs = |bytes| vec![pair(process(1, "a"), process(1, "a"), bytes)];
        assert_eq!(flows(&at(2, pairs(1)), Some(&at(0, pairs(2))))[0].bytes_per_second, None);
        assert_eq!(flows(&at(2, pairs(2)), None)[0].bytes_per_second, None);
    }

    #[test]
    fn a_line_says_who_lost_memory_for_whom_and_why() {
        let forgotten = Party { kind: "forgotten".to_owned(), ..Party::default() };
        let pairs = vec![
            pair(process(1, "fits"), process(2, "streams"), 8 * MIB),
            pair(process(2, "streams"), process(2, "streams"), 4 * MIB),
            pair(forgotten, Party { kind: "unknown".to_owned(), ..Party::default() }, 2 * MIB),
        ];
        let text = table(&flows(&at(0, pairs), None), &[]).render(Colour::OFF);
        assert_eq!(
            text,
            "\
VICTIM     FOR        CAUSE  GPU  EVICTED  PIECES
1 fits     2 streams  fault    -  8.0 MiB       4
2 streams  itself     fault    -  4.0 MiB       2
(ended)    (unknown)  fault    -  2.0 MiB       1
"
        );
    }
}
