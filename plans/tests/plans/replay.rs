//! Model of moves, independent of the crate: by units of the driver, launch by launch.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    call::{Action, Call},
    plan::{Destination, Move},
};
use plans::Planned;

pub(crate) const UNIT: u64 = 2 << 20;

/// Counts of an iteration in the steady state: the mean of several.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    pub(crate) to_gpu: u64,
    pub(crate) to_host: u64,
    pub(crate) faulted: u64,
    pub(crate) evicted: u64,
    pub(crate) faults: u64,
    pub(crate) peak: u64,
    /// Units that moves to the GPU found resident.
    pub(crate) idle: u64,
}

/// Units that each launch of the last iteration of calls names. Blocks are of one unit each.
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

pub(crate) fn units(one: &Move) -> impl Iterator<Item = u64> + use<> {
    one.begin / UNIT..(one.begin + one.bytes).div_ceil(UNIT)
}

/// Units on the GPU, by time of migration, oldest first.
#[derive(Debug, Default)]
struct Resident(Vec<u64>);

impl Resident {
    fn bytes(&self) -> u64 {
        self.0.len() as u64 * UNIT
    }

    /// Removes a unit. Returns whether it was resident.
    fn remove(&mut self, unit: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|each| *each != unit);
        self.0.len() < before
    }

    /// Accesses a unit. Returns whether it was absent; the driver does not see an access of a
    /// resident unit.
    fn access(&mut self, unit: u64) -> bool {
        let is_absent = !self.0.contains(&unit);
        if is_absent {
            self.0.push(unit);
        }
        is_absent
    }

    /// Requests a unit, which moves to the end of the driver's order in any case. Returns whether
    /// it was absent.
    fn request(&mut self, unit: u64) -> bool {
        let is_absent = !self.remove(unit);
        self.0.push(unit);
        is_absent
    }

    /// Evicts units beyond this number of frames. Returns how many.
    fn evict(&mut self, frames: u64) -> u64 {
        let beyond = self.0.len().saturating_sub(usize::try_from(frames).unwrap());
        self.0.drain(..beyond).count() as u64
    }
}

/// Warm-up and counted iterations, as in the crate.
const UNCOUNTED: u64 = 2;
const COUNTED: u64 = 6;

/// Replays iterations on a GPU of `frames` units, whose driver evicts the least recently migrated
/// unit.
pub(crate) fn replay(planned: &Planned, uses: &[BTreeSet<u64>], frames: u64) -> Replayed {
    let (mut resident, mut written) = (Resident::default(), BTreeSet::new());
    let mut replayed = Replayed::default();
    // Moves to the host in progress, by the launch that waits for them.
    let mut leaving: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let period = u32::try_from(uses.len()).unwrap();
    for iteration in 0..UNCOUNTED + COUNTED {
        if iteration == UNCOUNTED {
            replayed = Replayed { peak: replayed.peak, ..Replayed::default() };
        }
        let now = &mut replayed;
        for (op, uses) in (0_u32..).zip(uses) {
            for unit in leaving.remove(&op).into_iter().flatten() {
                now.to_host += UNIT * u64::from(resident.remove(unit));
            }
            for unit in uses {
                let is_faulted = resident.access(*unit);
                now.faults += u64::from(is_faulted);
                now.faulted += UNIT * u64::from(is_faulted && !written.insert(*unit));
                now.peak = now.peak.max(resident.bytes());
                now.evicted += UNIT * resident.evict(frames);
            }
            for one in planned.moves.iter().filter(|one| one.begin_op == op) {
                match one.destination {
                    Destination::Gpu => {
                        for unit in units(one).filter(|unit| written.contains(unit)) {
                            let is_absent = resident.request(unit);
                            now.to_gpu += UNIT * u64::from(is_absent);
                            now.idle += u64::from(!is_absent);
                            now.peak = now.peak.max(resident.bytes());
                            now.evicted += UNIT * resident.evict(frames);
                        }
                    }
                    Destination::Host => {
                        leaving.entry(one.wait_op.unwrap_or((op + 1) % period)).or_default().extend(units(one));
                    }
                }
            }
        }
    }
    let Replayed { to_gpu, to_host, faulted, evicted, faults, peak, idle } = replayed;
    let [to_gpu, to_host, faulted, evicted] = [to_gpu, to_host, faulted, evicted].map(|bytes| bytes / COUNTED);
    Replayed { to_gpu, to_host, faulted, evicted, faults: faults / COUNTED, peak, idle }
}

/// Peak bytes of whole units, and of smaller allocations, on the GPU before or during a launch: all
/// memory in this list, except absences by the plan.
pub(crate) fn peaks(planned: &Planned, all: &[(u64, u64)]) -> (u64, u64) {
    let ops = planned.tokens.len();
    let mut present: Vec<Vec<(u64, u64)>> = vec![all.to_vec(); ops];
    for one in planned.moves.iter().filter(|one| one.destination == Destination::Host) {
        let (begin, wait) = (one.begin_op as usize, one.wait_op.unwrap() as usize);
        let ahead = |op: usize| (op + ops - begin - 1) % ops + 1;
        // Still present before the launch that waits for the move, and again once its fetch begins.
        for offset in ahead(wait) + 1..=ahead(one.expiry_op.unwrap() as usize) {
            let is_away = |address: u64| (one.begin..one.begin + one.bytes).contains(&address);
            present[(begin + offset) % ops].retain(|(address, _)| !is_away(*address));
        }
    }
    let peak = |is_unit: bool| {
        let bytes =
            |present: &Vec<(u64, u64)>| present.iter().map(|one| one.1).filter(|b| (*b == UNIT) == is_unit).sum();
        present.iter().map(bytes).max().unwrap_or(0)
    };
    (peak(true), peak(false))
}
