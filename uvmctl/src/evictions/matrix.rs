//! Matrix of victims and evictors.

use api::Party;

use super::{Flow, party, party_key};
use crate::{rates, text};

const LABEL_WIDTH: usize = 20;
const CELL_WIDTH: usize = 11;

/// Lines of at most `width` characters: a row for each victim, a column for each evictor, summed
/// over GPUs and causes. Evictors beyond the width share the last column.
pub(crate) fn matrix(flows: &[Flow], width: usize) -> Vec<String> {
    let with_rates = flows.iter().any(|flow| flow.bytes_per_second.is_some());
    let victims = parties(flows, |flow| &flow.pair.victim);
    let evictors = parties(flows, |flow| &flow.pair.evictor);
    let columns_max = (width.saturating_sub(LABEL_WIDTH) / CELL_WIDTH).max(1);
    let shown = if evictors.len() <= columns_max { evictors.len() } else { columns_max - 1 };
    let (shown_evictors, others) = evictors.split_at(shown);

    let unit = if with_rates { "evicted/s" } else { "evicted" };
    let mut heading = text::left(&format!("{unit} by:"), LABEL_WIDTH);
    for evictor in shown_evictors {
        heading += &cell(&evictor.pid.map_or_else(|| party(evictor), |pid| pid.to_string()));
    }
    if !others.is_empty() {
        heading += &cell("others");
    }
    let row = |victim: &Party| {
        let evicted = |is_column: &dyn Fn(&Party) -> bool| {
            let of_cell = |flow: &&Flow| is_same(&flow.pair.victim, victim) && is_column(&flow.pair.evictor);
            figure(flows.iter().filter(of_cell), with_rates)
        };
        let label = text::left(&text::shortened(&party(victim), LABEL_WIDTH - 1, '~'), LABEL_WIDTH);
        let cells: String =
            shown_evictors.iter().map(|evictor| cell(&evicted(&|column| is_same(column, evictor)))).collect();
        let rest =
            (!others.is_empty()).then(|| cell(&evicted(&|column| others.iter().any(|other| is_same(column, other)))));
        label + &cells + &rest.unwrap_or_default()
    };
    [heading].into_iter().chain(victims.into_iter().map(row)).collect()
}

fn is_same(one: &Party, other: &Party) -> bool {
    party_key(one) == party_key(other)
}

/// Distinct parties in the order of the flows, largest first.
fn parties(flows: &[Flow], side: impl Fn(&Flow) -> &Party) -> Vec<&Party> {
    let mut parties: Vec<&Party> = Vec::new();
    for flow in flows {
        let party = side(flow);
        if !parties.iter().any(|known| is_same(known, party)) {
            parties.push(party);
        }
    }
    parties
}

fn cell(text: &str) -> String {
    text::right(&text::shortened(text, CELL_WIDTH - 1, '~'), CELL_WIDTH)
}

/// Sum of flows; a dot for zero.
fn figure<'a>(flows: impl Iterator<Item = &'a Flow>, with_rates: bool) -> String {
    let (mut bytes, mut rate) = (0_u64, 0.0);
    for flow in flows {
        bytes = bytes.saturating_add(flow.pair.bytes);
        rate += flow.bytes_per_second.unwrap_or(0.0);
    }
    match (with_rates, bytes, rate) {
        (true, _, 0.0) | (false, 0, _) => ".".to_owned(),
        (true, _, rate) => rates::per_second(Some(rate), text::bytes),
        (false, bytes, _) => text::bytes(bytes),
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::{
        super::{flows, testing::*},
        *,
    };

    const MIB: u64 = 1 << 20;

    #[test]
    fn rows_are_victims_and_columns_evictors() {
        let (fits, streams) = (|| process(180, "fits"), || process(182, "streams"));
        let mut other_cause = pair(streams(), streams(), MIB);
        other_cause.cause = "api".to_owned();
        let pairs = vec![
            pair(streams(), streams(), 64 * MIB),
            pair(fits(), streams(), 8 * MIB),
            other_cause,
            pair(streams(), fits(), 2 * MIB),
        ];
        let lines = matrix(&flows(&at(0, pairs), None), 80);
        assert_eq!(
            lines,
            [
                "evicted by:                 182        180",
                "182 streams            65.0 MiB    2.0 MiB",
                "180 fits                8.0 MiB          .",
            ]
        );
    }

    #[test]
    fn names_of_wide_characters_preserve_alignment() {
        let (one, other) = (|| process(180, "名前"), || process(182, "nose"));
        let lines = matrix(&flows(&at(0, vec![pair(one(), other(), MIB), pair(other(), other(), MIB)]), None), 80);
        assert!(lines[1..].iter().all(|line| line.width() == LABEL_WIDTH + CELL_WIDTH), "{lines:?}");
    }

    #[test]
    fn evictors_beyond_the_width_share_a_column() {
        let pairs =
            (1..=9).map(|pid| pair(process(100, "victim"), process(pid, "p"), u64::from(10 - pid) * MIB)).collect();
        let lines = matrix(&flows(&at(0, pairs), None), 80);
        assert!(lines.iter().all(|line| line.len() <= 80), "{lines:?}");
        assert!(lines[0].ends_with("4     others"), "{lines:?}");
        assert!(lines[1].ends_with("15.0 MiB"), "{lines:?}");
    }
}
