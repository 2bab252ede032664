//! What moves do, modelled independently of the crate: by units of the driver, launch by launch.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    call::{Action, Call},
    plan::{Destination, Move},
};
use plans::Planned;

pub(crate) const UNIT: u64 = 2 << 20;

/// What an iteration came to, once it repeats.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) to_gpu: u64,
    pub(crate) to_host: u64,
    pub(crate) faulted: u64,
    pub(crate) peak: u64,
}

/// Units that each launch of the last iteration of calls names, whose blocks are of one unit each.
pub(crate) fn uses(calls: &[Call], period: usize) -> Vec<BTreeSet<u64>> {
    let launches: Vec<BTreeSet<u64>> = calls
        .iter()
        .filter_map(|call| match &call.action {
            Action::Launch { pointers: Some(pointers), .. } => {
                Some(pointers.iter().map(|pointer| pointer.address / UNIT).collect())
            }
            _ => None,
        })
        .collect();
    launches[launches.len() - period..].to_vec()
}

fn units(one: &Move) -> impl Iterator<Item = u64> + use<> {
    one.begin / UNIT..(one.begin + one.bytes).div_ceil(UNIT)
}

pub(crate) fn replay(planned: &Planned, uses: &[BTreeSet<u64>]) -> Replayed {
    let mut resident = BTreeSet::new();
    let mut replayed = Replayed::default();
    // Moves to the host in progress, by the launch that waits for them.
    let mut leaving: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for turn in 0..6 {
        let mut now = Replayed { peak: replayed.peak, ..Replayed::default() };
        for (op, uses) in (0_u32..).zip(uses) {
            for unit in leaving.remove(&op).into_iter().flatten() {
                now.to_host += UNIT * u64::from(resident.remove(&unit));
            }
            for unit in uses {
                now.faulted += UNIT * u64::from(resident.insert(*unit));
            }
            now.peak = now.peak.max(resident.len() as u64 * UNIT);
            for one in planned.moves.iter().filter(|one| one.begin_op == op) {
                match one.destination {
                    // Nothing is waited for in vain.
                    Destination::Gpu => {
                        for unit in units(one) {
                            assert!(turn == 0 || !resident.contains(&unit), "a move of what is there: {one:?}");
                            now.to_gpu += UNIT * u64::from(resident.insert(unit));
                        }
                    }
                    Destination::Host => leaving.entry(one.wait_op.unwrap()).or_default().extend(units(one)),
                }
            }
            now.peak = now.peak.max(resident.len() as u64 * UNIT);
        }
        replayed = now;
    }
    replayed
}
