//! Busiest of many blocks, known at any time without a scan of all.
//!
//! A block becomes a candidate once it is busier than the least busy of the busiest at the last
//! scan of candidates. As no block ever becomes less busy, the busiest are always among the
//! candidates.

use std::cmp::Reverse;

use super::{seen::Seen, table::Table};

/// Maximum published.
pub(crate) const PUBLISHED_MAX: usize = 64;
/// Number of candidates at which they are scanned.
const CANDIDATES_MAX: usize = 16 * PUBLISHED_MAX;

/// Candidates of one table.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    /// Numbers of the candidate blocks.
    candidates: Vec<u64>,
    /// Activity that a candidate has to exceed: enough blocks do.
    least: u64,
}

impl Busiest {
    /// Considers a block after an event. Returns whether the candidates are to be scanned.
    pub(super) fn consider(&mut self, seen: &mut Seen) -> bool {
        if seen.is_candidate || seen.activity() <= self.least {
            return false;
        }
        seen.is_candidate = true;
        self.candidates.push(seen.number);
        self.candidates.len() >= CANDIDATES_MAX
    }

    /// Reduces the candidates to the busiest.
    pub(super) fn thin(&mut self, table: &mut Table) {
        let mut order = order(table, &self.candidates);
        if let Some((least, _)) = order.get(PUBLISHED_MAX - 1) {
            self.least = least.0;
        }
        for (_, number) in order.drain(order.len().min(PUBLISHED_MAX)..) {
            if let Some(seen) = table.get_mut(number) {
                seen.is_candidate = false;
            }
        }
        self.candidates.clear();
        self.candidates.extend(order.into_iter().map(|(_, number)| number));
    }

    /// Restarts, as some blocks were forgotten.
    pub(super) fn restart(&mut self, table: &mut Table) {
        *self = Self::default();
        let mut order: Vec<_> = table.iter().map(|seen| Reverse(seen.activity())).collect();
        if order.len() > PUBLISHED_MAX {
            let (_, least, _) = order.select_nth_unstable(PUBLISHED_MAX - 1);
            self.least = least.0;
        }
        let busier = order.iter().filter(|activity| activity.0 > self.least).count();
        let mut equal = PUBLISHED_MAX.saturating_sub(busier);
        for seen in table.iter_mut() {
            let activity = seen.activity();
            seen.is_candidate = activity > self.least || activity == self.least && equal > 0;
            if seen.is_candidate {
                equal -= usize::from(activity == self.least);
                self.candidates.push(seen.number);
            }
        }
    }

    /// The `max` busiest blocks, busiest first.
    pub(super) fn published<'a>(&self, table: &'a Table, max: usize) -> impl Iterator<Item = &'a Seen> {
        let mut order = order(table, &self.candidates);
        order.truncate(max.min(PUBLISHED_MAX));
        order.into_iter().filter_map(|(_, number)| table.get(number))
    }
}

fn order(table: &Table, candidates: &[u64]) -> Vec<(Reverse<u64>, u64)> {
    let seen = candidates.iter().filter_map(|number| table.get(*number));
    let mut order: Vec<_> = seen.map(|seen| (Reverse(seen.activity()), seen.number)).collect();
    order.sort_unstable();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of a scan of all blocks.
    fn expected(table: &Table) -> Vec<u64> {
        let mut activity: Vec<_> = table.iter().map(Seen::activity).collect();
        activity.sort_unstable_by_key(|activity| Reverse(*activity));
        activity.truncate(PUBLISHED_MAX);
        activity
    }

    #[test]
    fn busiest_blocks_match_a_full_scan() {
        let (mut table, mut busiest) = (Table::default(), Busiest::default());
        let mut dice = 88_172_645_463_325_252_u64;
        for step in 0..60_000_u64 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            // Few numbers occur very often, most seldom.
            let number = (dice >> 40) % (1 + (dice % 5000));
            let (seen, _) = table.entry(number, usize::MAX).unwrap();
            seen.last_ns = step;
            seen.fault_entries += u32::try_from(dice % 3).unwrap();
            if busiest.consider(seen) {
                busiest.thin(&mut table);
            }
            if step % 9973 == 0 {
                table.forget(table.len() / 8, |_| {});
                busiest.restart(&mut table);
            }
            if step % 1009 == 0 {
                let published: Vec<_> = busiest.published(&table, PUBLISHED_MAX).map(Seen::activity).collect();
                assert_eq!(published, expected(&table), "step {step}");
            }
        }
    }
}
