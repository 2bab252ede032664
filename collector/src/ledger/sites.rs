//! Sites of CPU faults, by process.
//!
//! The probes bound the sites of live VA spaces. Of the destroyed ones of a process, the busiest are retained.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use abi::{Tally, count::SiteKey};
use model::{CodePlace, Counters, ProcessId, Site, SiteCounts, Sites};

use super::{Ledger, Presence};

/// Maximum of sites of a process's destroyed VA spaces.
const PAST_MAX: usize = 64;

/// Counts by program counter.
pub(super) type CountsBySite = BTreeMap<u64, SiteCounts>;

/// Sites of a process, without those of its VA spaces.
#[derive(Debug, Default)]
pub(super) struct SitesOfProcess {
    /// Counts of destroyed VA spaces.
    past: CountsBySite,
    /// Sum of the counts of destroyed VA spaces beyond [`PAST_MAX`].
    omitted: SiteCounts,
    /// Known places of the sites that were published when the last one was found.
    places: BTreeMap<u64, CodePlace>,
}

impl SitesOfProcess {
    /// Adds the counts of a destroyed VA space.
    pub(super) fn add(&mut self, sites: CountsBySite) {
        merge(&mut self.past, sites);
        if self.past.len() > PAST_MAX {
            for (pc, counts) in by_counts(&self.past).split_off(PAST_MAX) {
                self.past.remove(&pc);
                self.omitted = self.omitted.plus(counts);
            }
        }
    }

    /// Sites for a snapshot, with those of the process's VA spaces. `host`: counts of the process.
    pub(super) fn published(&self, open: CountsBySite, host: &Counters) -> Sites {
        let sites = self.all(open);
        let siteless = SiteCounts { bytes_dtoh: host.siteless_bytes_dtoh, faults: host.siteless_cpu_faults };
        let known = sites.len() as u64;
        let site = |(pc, counts)| Site { pc, counts, place: self.places.get(&pc).cloned() };
        Sites { busiest: busiest(&sites).map(site).collect(), known, unattributed: self.omitted.plus(siteless) }
    }

    /// Sites with those of the process's VA spaces.
    fn all(&self, open: CountsBySite) -> CountsBySite {
        let mut sites = open;
        merge(&mut sites, self.past.clone());
        sites
    }
}

impl Ledger {
    /// Sets the cumulative counts of a site.
    pub(crate) fn count_site(&mut self, key: SiteKey, tally: Tally) {
        let counts = SiteCounts { bytes_dtoh: tally.amount, faults: tally.events };
        self.spaces.entry(key.generation).or_default().sites.insert(key.pc, counts);
    }

    /// Sites of VA spaces, by process.
    pub(super) fn open_sites(&self) -> BTreeMap<ProcessId, CountsBySite> {
        let mut sites: BTreeMap<ProcessId, CountsBySite> = BTreeMap::new();
        for space in self.spaces.values().filter(|space| !space.sites.is_empty()) {
            if let Some(process) = space.process {
                merge(sites.entry(process).or_default(), space.sites.clone());
            }
        }
        sites
    }

    /// Program counters of the published sites whose places are unknown, of live processes.
    pub(crate) fn unplaced_sites(&self) -> BTreeMap<ProcessId, Vec<u64>> {
        let mut open = self.open_sites();
        let live = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Gone);
        let unplaced = live.map(|(process, entry)| {
            let sites = entry.sites.all(open.remove(process).unwrap_or_default());
            let is_unplaced = |(pc, _): &(u64, SiteCounts)| !entry.sites.places.contains_key(pc);
            (*process, busiest(&sites).filter(is_unplaced).map(|(pc, _)| pc).collect())
        });
        unplaced.filter(|(_, pcs): &(_, Vec<u64>)| !pcs.is_empty()).collect()
    }

    /// Sets places of sites. Those of sites that are not published are forgotten: a program has any number of
    /// sites, with names of any length.
    pub(crate) fn place_sites<P: AsRef<[(u64, CodePlace)]>>(
        &mut self,
        found: impl IntoIterator<Item = (ProcessId, P)>,
    ) {
        let mut found = found.into_iter().peekable();
        if found.peek().is_none() {
            return;
        }
        let mut open = self.open_sites();
        for (process, places) in found {
            let Some(entry) = self.processes.get_mut(&process) else { continue };
            let sites = entry.sites.all(open.remove(&process).unwrap_or_default());
            let published: BTreeSet<u64> = busiest(&sites).map(|(pc, _)| pc).collect();
            let known = &mut entry.sites.places;
            known.extend(places.as_ref().iter().cloned());
            known.retain(|pc, _| published.contains(pc));
        }
    }
}

fn merge(sum: &mut CountsBySite, sites: CountsBySite) {
    for (pc, counts) in sites {
        let known = sum.entry(pc).or_default();
        *known = known.plus(counts);
    }
}

/// All sites, busiest first.
fn by_counts(sites: &CountsBySite) -> Vec<(u64, SiteCounts)> {
    let mut all: Vec<_> = sites.iter().map(|(pc, counts)| (*pc, *counts)).collect();
    all.sort_by_key(|(_, counts)| Reverse(*counts));
    all
}

fn busiest(sites: &CountsBySite) -> impl Iterator<Item = (u64, SiteCounts)> {
    by_counts(sites).into_iter().take(Sites::BUSIEST_MAX)
}
