//! Probes of launches whose arguments name more than they access, on a model of the driver that is
//! independent of the crate: moves are late or skipped, records are dropped, and blocks are
//! evicted.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    call::Action,
    plan::{Destination, Move},
};
use plans::{Change, Evidence, Follower, Observation, Planned, ProbeQuota, Settings, State, Table, methods, probe};
use proptest::prelude::*;

use super::{
    Program,
    replay::{UNIT, units},
};

const BASE: u64 = 1 << 40;
/// Pools of the program, each an allocation. Launches name their first address.
const POOLS: u64 = 4;
const POOL_UNITS: u64 = 6;
const GPU_UNITS: u64 = 15;
/// Maximum number of iterations until probes end.
const ITERATIONS_LIMIT: usize = 600;

fn pool(at: u64) -> u64 {
    BASE + at * 100 * UNIT
}

fn unit(pool_at: u64, at: u64) -> u64 {
    pool(pool_at) / UNIT + at
}

/// Launch: the pool that it names, and the units of it that it accesses.
#[derive(Clone, Debug)]
struct Launch {
    pool: u64,
    touched: BTreeSet<u64>,
}

impl Launch {
    fn new(pool: u64, touched: impl IntoIterator<Item = u64>) -> Self {
        Self { pool, touched: touched.into_iter().map(|at| unit(pool, at)).collect() }
    }
}

/// Outcome of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Made,
    /// The launch does not wait, and the move is made during or after it.
    Overtaken,
    /// The launch does not wait, and the move is not made.
    Expired,
    Skipped,
}

/// Outcome of a record, or of all records so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Written,
    SampledOut,
    /// Earlier absences are no longer known.
    Lost,
}

/// Driver, helper and records.
#[derive(Debug, Default)]
struct World {
    /// Units on the GPU in order of migration, with whether all of the unit is there.
    resident: Vec<(u64, bool)>,
    /// Number of departures of the process when the unit left.
    absent_since: BTreeMap<u64, u64>,
    departures: u64,
    counted: Observation,
    table: Option<Table>,
    followed: Option<Table>,
    outcomes: Vec<Outcome>,
    records: Vec<Record>,
    drawn: usize,
    /// Moves that the next launch does not wait for.
    overtaken: Vec<Move>,
}

impl World {
    fn draw<T: Copy>(&mut self, of: fn(&Self) -> &[T], otherwise: T) -> T {
        self.drawn += 1;
        let all = of(self);
        if all.is_empty() { otherwise } else { all[self.drawn % all.len()] }
    }

    fn leaves(&mut self, unit: u64) -> bool {
        let before = self.resident.len();
        self.resident.retain(|(resident, _)| *resident != unit);
        self.resident.len() < before
    }

    /// Makes a unit resident as the last in order, for which others are evicted.
    fn comes(&mut self, unit: u64, is_whole: bool) {
        self.leaves(unit);
        while self.resident.len() as u64 >= GPU_UNITS {
            let (evicted, _) = self.resident.remove(0);
            self.absent_since.insert(evicted, self.departures);
        }
        self.absent_since.remove(&unit);
        self.resident.push((unit, is_whole));
    }

    fn lose(&mut self, record: Record) {
        if record == Record::Lost {
            self.absent_since.clear();
            self.counted.dropped_records += 1;
        }
    }

    fn touch(&mut self, unit: u64) {
        if !self.resident.iter().any(|(resident, _)| *resident == unit) {
            if self.absent_since.get(&unit).is_some_and(|since| self.departures > *since) {
                *self.counted.interrupted_absences.entry(unit * UNIT).or_insert(0) += 1;
            }
            let is_whole = self.drawn.is_multiple_of(3);
            self.comes(unit, is_whole);
        }
    }

    fn make(&mut self, begin: u64, bytes: u64, destination: Destination) {
        for unit in begin / UNIT..(begin + bytes) / UNIT {
            let record = self.draw(|world| &world.records, Record::Written);
            if destination == Destination::Host {
                if self.leaves(unit) {
                    let own = u64::from(record != Record::SampledOut);
                    self.departures += own;
                    self.absent_since.insert(unit, self.departures - own);
                }
            } else if self.resident.iter().any(|(resident, _)| *resident == unit) {
                self.comes(unit, true);
            } else {
                let is_idle = self.absent_since.get(&unit).is_some_and(|since| self.departures > *since);
                if is_idle && record == Record::Written {
                    *self.counted.idle_returns.entry(unit * UNIT).or_insert(0) += 1;
                }
                self.comes(unit, true);
            }
            self.lose(record);
        }
    }

    /// Runs launch `op` of an iteration.
    fn launch(&mut self, op: u32, launch: &Launch) {
        if op == 0 {
            if self.followed.is_some() {
                self.counted.iterations += 1;
            }
            self.followed.clone_from(&self.table);
        }
        let touched: Vec<u64> = launch.touched.iter().copied().collect();
        for (at, unit) in touched.iter().enumerate() {
            if at == touched.len() / 2 {
                self.make_overtaken();
            }
            self.touch(*unit);
        }
        self.make_overtaken();
        // Moves begin after the launch, and the next launch waits for them.
        let moves = self.followed.clone().map_or(Vec::new(), |table| table.moves);
        for step in moves.iter().filter(|step| step.begin_op == op) {
            match self.draw(|world| &world.outcomes, Outcome::Made) {
                Outcome::Made => {
                    self.counted.moves += 1;
                    self.make(step.begin, step.bytes, step.destination);
                }
                Outcome::Overtaken => {
                    (self.counted.moves, self.counted.late) = (self.counted.moves + 1, self.counted.late + 1);
                    self.overtaken.push(*step);
                }
                Outcome::Expired => self.counted.late += 1,
                Outcome::Skipped => self.counted.skipped += 1,
            }
        }
    }

    fn make_overtaken(&mut self) {
        for step in std::mem::take(&mut self.overtaken) {
            self.make(step.begin, step.bytes, step.destination);
        }
    }
}

/// Run until there is a plan or a refusal.
struct Run {
    follower: Follower,
    evidence: Option<Evidence>,
    tables: Vec<Table>,
    iterations: usize,
}

/// Conditions of a run, apart from its launches.
#[derive(Clone, Copy, Debug, Default)]
struct Conditions {
    /// Launches between two samples.
    tick: usize,
    /// The program prefetches in each iteration.
    prefetches: bool,
    /// The program fills the first bytes of the pool before this launch.
    fills: Option<usize>,
    /// First sample at which probes are no longer permitted.
    forbidden_from: Option<usize>,
    /// The helper follows nothing.
    is_idle: bool,
    /// Sample at which the program prefetches once.
    prefetches_at: Option<usize>,
    /// Once there is a table, counts change with every sample for an hour.
    is_restless: bool,
    /// Number of times that probing may start.
    starts: u32,
}

fn run(launches: &[Launch], world: &mut World, conditions: Conditions) -> Run {
    let probes = Some(ProbeQuota { iteration_bytes: 12 * UNIT, starts: conditions.starts });
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: GPU_UNITS * UNIT, has_fault_counts: false, probes };
    let mut follower = Follower::new(settings, vec![methods::by_name("foresight").unwrap()]);
    let mut program = Program::default();
    (0..POOLS).for_each(|at| program.malloc(pool(at), POOL_UNITS * UNIT));
    let (mut added, mut samples, mut evidence, mut tables) = (0, 0, None, Vec::new());
    let mut is_restless = conditions.is_restless;
    let mut take = |follower: &Follower, world: &mut World, change: Option<Change>| {
        if let (Some(Change::Probing), State::Probing(probing)) = (change, follower.state()) {
            tables.extend(probing.table.clone());
            world.table.clone_from(&probing.table);
            if probing.table.is_none() {
                world.followed = None;
            }
        }
    };
    let mut iterations = 0;
    while iterations < ITERATIONS_LIMIT && matches!(follower.state(), State::Watching | State::Probing(_)) {
        iterations += 1;
        for (op, launch) in (0..).zip(launches) {
            if conditions.fills == Some(op as usize) {
                let (address, target) = (pool(launch.pool), call_ring::Target::Stream(1));
                program.call(Action::Fill { target, address, bytes: 4096, rows: 1 });
            }
            program.launch(u64::from(op) + 1, &[pool(launch.pool)]);
            if !conditions.is_idle {
                world.launch(op, launch);
            }
            if (op as usize).is_multiple_of(conditions.tick.max(1)) {
                samples += 1;
                let may_probe = conditions.forbidden_from.is_none_or(|from| samples < from);
                if conditions.prefetches_at == Some(samples) {
                    program.call(Action::Prefetch { stream: 1, address: BASE, bytes: UNIT, to: 0, host_node: None });
                }
                let change = follower.observe(may_probe.then_some(&world.counted));
                take(&follower, world, change);
                let is_hour = is_restless && world.table.is_some();
                is_restless &= !is_hour;
                for _ in 0..if is_hour { 36_000 } else { 0 } {
                    world.counted.late += 1;
                    let change = follower.observe(Some(&world.counted));
                    take(&follower, world, change);
                }
            }
        }
        if conditions.prefetches {
            program.call(Action::Prefetch { stream: 1, address: BASE, bytes: UNIT, to: 0, host_node: None });
        }
        program.sync();
        while let Some(call) = program.calls.get(added) {
            evidence = follower.evidence().or(evidence);
            let change = follower.add(call.clone());
            take(&follower, world, change);
            added += 1;
        }
    }
    evidence = follower.evidence().or(evidence);
    Run { follower, evidence, tables, iterations }
}

/// Units that a launch does not access, by the evidence.
fn untouched(evidence: &Evidence, op: usize) -> BTreeSet<u64> {
    evidence.untouched(op).flat_map(|range| range.start / UNIT..range.end / UNIT).collect()
}

/// Forward and backward pass over the pools: the named memory does not fit, and the accessed memory
/// nearly does.
fn training() -> Vec<Launch> {
    let forth = (0..POOLS).map(|pool| Launch::new(pool, [0, 1, 2, 3]));
    let back = (0..POOLS).rev().map(|pool| Launch::new(pool, [2, 3]));
    forth.chain(back).collect()
}

const EACH: Conditions = Conditions {
    tick: 2,
    prefetches: false,
    fills: None,
    forbidden_from: None,
    is_idle: false,
    prefetches_at: None,
    is_restless: false,
    starts: 1,
};

#[test]
fn probes_find_exactly_the_blocks_that_are_not_accessed() {
    let (launches, mut world) = (training(), World::default());
    let Run { follower, evidence, tables, .. } = run(&launches, &mut world, EACH);
    let evidence = evidence.unwrap();
    assert!(!matches!(follower.state(), State::Probing(_) | State::Watching), "{:?}", follower.state());
    for (op, launch) in launches.iter().enumerate() {
        let named: BTreeSet<u64> = (0..POOL_UNITS).map(|at| unit(launch.pool, at)).collect();
        assert_eq!(untouched(&evidence, op), &named - &launch.touched, "launch {op}");
    }
    let counts = evidence.counts();
    assert_eq!((counts.launches, counts.probed), (8, 8));
    assert_eq!((counts.named_bytes, counts.touched_bytes), (48 * UNIT, 24 * UNIT));
    assert!(counts.iterations <= probe::ITERATIONS_MAX, "{counts:?}");
    assert_eq!(follower.probe_quota().map(|quota| quota.starts), Some(0), "it started once");
    for table in tables {
        let bytes = table.bytes(Destination::Host) + table.bytes(Destination::Gpu);
        assert!(bytes <= 12 * UNIT, "the budget of an iteration");
        assert!(table.plan([1; 16], true).check().is_ok());
        for step in table.moves.iter().filter(|step| step.destination == Destination::Host) {
            let ahead = |ops: u32| Some((step.begin_op + ops) % 8);
            assert_eq!((step.wait_op, step.expiry_op), (ahead(1), ahead(2)));
        }
    }
}

#[test]
fn plan_moves_accessed_memory_only() {
    // Two adjacent launches name up to 12 of the GPU's 15 units, and access up to 8.
    let (launches, mut world) = (training(), World::default());
    let Run { follower, .. } = run(&launches, &mut world, EACH);
    let is_named = |planned: &Planned| {
        planned.moves.iter().flat_map(units).all(|moved| launches.iter().any(|launch| launch.touched.contains(&moved)))
    };
    match follower.state() {
        State::Planned(planned) => {
            assert!(is_named(planned));
            assert_eq!(planned.probe_counts.map(|counts| counts.touched_bytes), Some(24 * UNIT));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_launch_is_probed_without_permission_or_quota_or_with_own_prefetches() {
    for conditions in [
        Conditions { prefetches: true, ..EACH },
        Conditions { forbidden_from: Some(0), ..EACH },
        Conditions { starts: 0, ..EACH },
    ] {
        let Run { tables, follower, .. } = run(&training(), &mut World::default(), conditions);
        assert!(
            tables.is_empty() && !matches!(follower.state(), State::Watching | State::Probing(_)),
            "{conditions:?}"
        );
    }
}

#[test]
fn launch_after_a_fill_is_not_probed() {
    let conditions = Conditions { fills: Some(2), ..EACH };
    let Run { evidence, .. } = run(&training(), &mut World::default(), conditions);
    let evidence = evidence.unwrap();
    assert_eq!((untouched(&evidence, 2).len(), untouched(&evidence, 3).len(), evidence.counts().launches), (0, 2, 7));
}

#[test]
fn probing_ends_if_the_table_is_not_followed_or_no_longer_permitted() {
    for conditions in [Conditions { is_idle: true, ..EACH }, Conditions { forbidden_from: Some(60), ..EACH }] {
        let Run { follower, tables, iterations, .. } = run(&training(), &mut World::default(), conditions);
        assert!(!tables.is_empty() && iterations < ITERATIONS_LIMIT, "{conditions:?}");
        assert!(matches!(follower.state(), State::Planned(_) | State::Refused(_)), "{:?}", follower.state());
    }
}

#[test]
fn probing_ends_at_the_maximum_number_of_samples() {
    let conditions = Conditions { is_restless: true, ..EACH };
    let Run { follower, tables, iterations, .. } = run(&training(), &mut World::default(), conditions);
    assert!(tables.len() == 1 && iterations < ITERATIONS_LIMIT, "{}", tables.len());
    assert!(matches!(follower.state(), State::Planned(_) | State::Refused(_)), "{:?}", follower.state());
}

#[test]
fn launches_with_late_moves_keep_their_footprints() {
    let mut world = World { outcomes: vec![Outcome::Expired], ..World::default() };
    let Run { evidence, iterations, .. } = run(&training(), &mut world, EACH);
    assert!(iterations < ITERATIONS_LIMIT);
    let evidence = evidence.unwrap();
    assert!((0..8).all(|op| untouched(&evidence, op).is_empty()));
    assert_eq!((evidence.counts().probed, evidence.counts().named_bytes), (0, 0));
}

#[test]
fn late_moves_prove_nothing() {
    let (made, overtaken, expired, skipped) = (Outcome::Made, Outcome::Overtaken, Outcome::Expired, Outcome::Skipped);
    let patterns: [&[Outcome]; 6] = [
        &[overtaken],
        &[overtaken, made],
        &[made, overtaken],
        &[overtaken, made, made],
        &[expired, made, made],
        &[made, skipped, overtaken],
    ];
    for outcomes in patterns {
        let mut world = World { outcomes: outcomes.to_vec(), ..World::default() };
        let launches = training();
        let Run { evidence, .. } = run(&launches, &mut world, EACH);
        let evidence = evidence.unwrap();
        for (op, launch) in launches.iter().enumerate() {
            assert!(untouched(&evidence, op).is_disjoint(&launch.touched), "{outcomes:?}, launch {op}");
        }
    }
}

#[test]
fn windows_with_dropped_records_prove_nothing() {
    let mut world = World { records: vec![Record::Lost], ..World::default() };
    let Run { evidence, .. } = run(&training(), &mut world, EACH);
    let counts = evidence.unwrap().counts();
    assert_eq!((counts.probed, counts.named_bytes), (0, 0), "{counts:?}");
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![30 => Just(Outcome::Made), 1 => Just(Outcome::Overtaken), 1 => Just(Outcome::Expired), 1 => Just(Outcome::Skipped)]
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![20 => Just(Record::Written), 1 => Just(Record::SampledOut), 1 => Just(Record::Lost)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn accessed_memory_is_never_found_unaccessed(
        launches in prop::collection::vec((0..POOLS, prop::collection::btree_set(0..POOL_UNITS, 1..5)), 9..14),
        outcomes in prop::collection::vec(outcome(), 0..400),
        records in prop::collection::vec(record(), 0..300),
        tick in 1_usize..5,
        prefetches_at in prop::option::of(30_usize..120),
    ) {
        let launches: Vec<Launch> = launches.into_iter().map(|(pool, touched)| Launch::new(pool, touched)).collect();
        let mut world = World { outcomes, records, ..World::default() };
        let Run { evidence, iterations, follower, .. } = run(&launches, &mut world, Conditions { tick, prefetches_at, ..EACH });
        prop_assert!(iterations < ITERATIONS_LIMIT, "{:?}", follower.state());
        for (op, launch) in launches.iter().enumerate() {
            let found = evidence.as_ref().map(|evidence| untouched(evidence, op)).unwrap_or_default();
            prop_assert!(found.is_disjoint(&launch.touched), "launch {op}: {found:?} {launch:?}");
        }
    }
}
