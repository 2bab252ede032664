//! Sites of CPU faults, by process.

use abi::count::SiteKey;
use model::{CodePlace, SiteCounts, Sites};

use super::*;

fn site(ledger: &mut Ledger, generation: Generation, pc: u64, faults: u64, bytes: u64) {
    ledger.count_site(SiteKey { generation, pc }, Tally { events: faults, amount: bytes });
}

fn sites(ledger: &Ledger) -> Sites {
    processes(ledger)[0].sites.clone()
}

/// Program counter, faults and bytes of each site.
fn figures(sites: &Sites) -> Vec<(u64, u64, u64)> {
    sites.busiest.iter().map(|site| (site.pc, site.counts.faults, site.counts.bytes_dtoh)).collect()
}

#[test]
fn sites_of_all_va_spaces_of_a_process_add_up_and_outlive_them() {
    let mut ledger = ledger();
    for (generation, process) in [(1, PROCESS), (2, PROCESS), (3, OTHER)] {
        ledger.registered(generation, process, named("app"));
        site(&mut ledger, generation, 0x1000, 3, 4096);
    }
    // Absolute, as all counts.
    site(&mut ledger, 1, 0x1000, 5, 8192);
    site(&mut ledger, 2, 0x2000, 1, 0);
    let expected = [(0x1000, 8, 12288), (0x2000, 1, 0)];
    assert_eq!(figures(&sites(&ledger)), expected);
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    assert_eq!(figures(&sites(&ledger)), expected);
}

#[test]
fn busiest_sites_are_published_by_copied_bytes_and_then_by_faults() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    for pc in 0..20 {
        // First touches: faults without copies.
        site(&mut ledger, 1, pc, 100 + pc, 0);
    }
    site(&mut ledger, 1, 50, 1, 4096);
    let sites = sites(&ledger);
    assert_eq!((sites.known, sites.busiest.len()), (21, Sites::BUSIEST_MAX));
    assert_eq!(figures(&sites)[..3], [(50, 1, 4096), (19, 119, 0), (18, 118, 0)]);
}

#[test]
fn sites_without_room_are_counted_together() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    count(&mut ledger, 1, 0, Kind::SitelessCpuFault, 0, 7, 4096);
    for pc in 1..=100 {
        site(&mut ledger, 1, pc, pc, 0);
    }
    assert_eq!(sites(&ledger).unattributed, SiteCounts { faults: 7, bytes_dtoh: 4096 });
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    // Of the destroyed one, the busiest 64 are retained.
    let sites = sites(&ledger);
    assert_eq!((sites.known, sites.unattributed.faults), (64, 7 + (1..=36).sum::<u64>()));
    assert_eq!(figures(&sites)[0], (100, 100, 0));
}

#[test]
fn each_site_of_a_live_process_is_looked_up_once() {
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    ledger.registered(2, OTHER, named("other"));
    site(&mut ledger, 1, 0x1000, 2, 0);
    site(&mut ledger, 1, 0x2000, 1, 0);
    site(&mut ledger, 2, 0x3000, 1, 0);
    ledger.seen(OTHER, Sighting::Gone, at(10));
    assert_eq!(ledger.unplaced_sites(), [(PROCESS, vec![0x1000, 0x2000])].into());
    ledger.place_sites([(PROCESS, [(0x1000, CodePlace::Anonymous)])]);
    assert_eq!(ledger.unplaced_sites(), [(PROCESS, vec![0x2000])].into());
    let places: Vec<_> = sites(&ledger).busiest.into_iter().map(|site| site.place).collect();
    assert_eq!(places, [Some(CodePlace::Anonymous), None]);
}

#[test]
fn places_of_published_sites_alone_are_retained() {
    let places = |ledger: &mut Ledger, pcs: std::ops::Range<u64>| {
        let places: Vec<_> = pcs.map(|pc| (pc, CodePlace::Anonymous)).collect();
        ledger.place_sites([(PROCESS, places)]);
    };
    let mut ledger = ledger();
    ledger.registered(1, PROCESS, named("app"));
    for pc in 0..16 {
        site(&mut ledger, 1, pc, 1, 0);
    }
    places(&mut ledger, 0..16);
    assert_eq!(ledger.unplaced_sites(), [].into());
    // Closed VA spaces count as well.
    ledger.destroyed(1, Losses::default(), at(10));
    ledger.close(1);
    ledger.registered(2, PROCESS, named("app"));
    for pc in 100..115 {
        site(&mut ledger, 2, pc, 2, 0);
    }
    assert_eq!(ledger.unplaced_sites(), [(PROCESS, (100..115).collect())].into());
    places(&mut ledger, 100..115);
    assert!(sites(&ledger).busiest.iter().all(|site| site.place.is_some()));
    // Those that were published before are looked up again.
    for pc in 0..16 {
        site(&mut ledger, 2, pc, 3, 0);
    }
    let unplaced = ledger.unplaced_sites();
    assert_eq!((unplaced.len(), unplaced[&PROCESS].len()), (1, 15));
}
