//! Touch probe: which blocks of its footprint a launch accesses.
//!
//! Arguments of launches name extents, which end at the next address in use. Of a pool, they name far
//! more than a launch accesses. The probe of a launch is a table of moves: its footprint leaves the GPU
//! between the launch before and the launch, and comes back behind the launch, before the next one. What
//! the launch accesses comes back by faults, and what it does not, by the move. uvmd's records of blocks
//! say of each block how often [all of it came back](Observation::idle_returns) by a move without an
//! access since memory had left.
//!
//! A block counts as not accessed only if each execution but one proves it, and none speaks against it. A
//! move that was late or left out, a lost record, a block that the GPU did not have, calls of the program
//! that move memory: then it counts as accessed, as its arguments name it.
//!
//! * `target`: launches that are probed, and the parts of their footprints that are probed at a time
//! * `evidence`: what was found

mod evidence;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    Token,
    plan::{Destination, MOVES_MAX, Move},
};

use self::target::{FIRST, Target};
pub use self::{
    evidence::{Evidence, Figures},
    target::{ATTEMPTS_MAX, LAUNCHES_MAX, PROBES_PER_LAUNCH},
};
use crate::{
    coverage::COUNT_BYTES,
    moves::{Step, merged_moves},
    pieces::Pieces,
    ranges::Ranges,
    sequence::Work,
    table::Table,
};

/// Most iterations with moves of probes, up to the end of the window in progress.
pub const ITERATIONS_MAX: u64 = 256;
/// Deliveries without change from when a table is withdrawn until its records are complete, which are read
/// some time after the counters.
const SETTLING: u32 = 3;
/// Iterations that begin meanwhile, a whole one among them, in which the program waits for the GPU: moves are
/// counted before the GPU has come to them.
const SETTLING_ITERATIONS: u64 = 2;
/// Deliveries without progress, and iterations of the program in them, after which probing ends.
const STALLED_DELIVERIES: u32 = 64;
const STALLED_ITERATIONS: u64 = 8;
/// Deliveries without progress after which it ends in any case.
const STALLED_DELIVERIES_MAX: u32 = 6000;
/// Deliveries of a probe: an hour by default. A program can have its counts change with each.
const DELIVERIES_MAX: u32 = 36_000;

/// What is counted of a process at one time. Counts only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Iterations with a table that were followed to their end.
    pub iterations: u64,
    /// Moves handed over to the driver.
    pub moves: u64,
    /// Moves that launches did not wait for.
    pub late: u64,
    /// Moves and waits that were left out.
    pub skipped: u64,
    /// Whether the table that was published last is not followed any more.
    pub has_ended: bool,
    /// Mappings of memory that GPUs access where it is, as far as the driver shows them.
    pub remote_mappings: u64,
    /// Times that a block came back as a whole by a call of the process, absent since before the process
    /// had memory moved to the host; by its first address.
    pub idle_returns: BTreeMap<u64, u64>,
    /// Times that something else ended an absence from since before then; likewise.
    pub interrupted_absences: BTreeMap<u64, u64>,
    /// Records of blocks that were lost.
    pub dropped_records: u64,
}

impl Observation {
    fn heap_bytes(&self) -> usize {
        (self.idle_returns.len() + self.interrupted_absences.len()) * COUNT_BYTES
    }
}

/// Time in which the table of some targets may be followed.
#[derive(Debug)]
struct Window {
    group: Vec<usize>,
    table: Table,
    before: Observation,
    /// Last observation, deliveries since it has changed, and the program's iteration at that time.
    last: Observation,
    unchanged: u32,
    changed_at: u64,
    /// The program's iteration when the table was withdrawn.
    withdrawn_at: u64,
    is_withdrawn: bool,
    is_invalid: bool,
}

/// Probes of the launches of an iteration.
#[derive(Debug)]
pub struct Probe {
    first_launch: u64,
    tokens: Vec<Token>,
    pieces: Pieces,
    budget_bytes: u64,
    targets: Vec<Target>,
    window: Option<Window>,
    iterations: u64,
    deliveries: u32,
    is_over: bool,
}

impl Probe {
    /// Probes of an iteration, with so many bytes in each, both directions together. `None` if there is
    /// nothing to probe.
    pub(crate) fn of(work: &Work, budget_bytes: u64) -> Option<Self> {
        let Work { first_launch, tokens, pieces, places_memory, queue_starts, .. } = work;
        // With two launches, the one behind is the one before. A program that does not wait for the GPU in an
        // iteration is ahead of it by an unknown time.
        let waits = queue_starts.iter().any(Option::is_some);
        if *places_memory || !waits || pieces.ops < 3 || tokens.len() != pieces.ops {
            return None;
        }
        let targets = target::of(work, budget_bytes);
        (!targets.is_empty()).then(|| Self {
            first_launch: *first_launch,
            tokens: tokens.clone(),
            pieces: pieces.clone(),
            budget_bytes,
            targets,
            window: None,
            iterations: 0,
            deliveries: 0,
            is_over: false,
        })
    }

    /// Bytes of memory, by counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let targets = self.targets.iter().map(Target::heap_bytes).sum::<usize>();
        let window = self.window.as_ref().map_or(0, |window| {
            let observed = window.before.heap_bytes() + window.last.heap_bytes();
            window.table.heap_bytes() + observed
        });
        self.tokens.capacity() * size_of::<Token>() + self.pieces.heap_bytes() + targets + window
    }

    /// Table that is to be followed now, if any.
    #[must_use]
    pub fn table(&self) -> Option<&Table> {
        self.window.as_ref().filter(|window| !window.is_withdrawn).map(|window| &window.table)
    }

    /// Whether nothing more is to be probed.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Ends with what is known by now. Whether a table was to be followed.
    pub fn end(&mut self) -> bool {
        self.is_over = true;
        self.window.take().is_some_and(|window| !window.is_withdrawn)
    }

    /// The program moves memory by itself: what comes back in this window says nothing.
    pub const fn invalidate(&mut self) {
        if let Some(window) = &mut self.window {
            window.is_invalid = true;
        }
    }

    /// Adds what is counted now, in iteration `iteration` of the program. Returns whether the table
    /// that is to be followed is another one, or none any more.
    pub fn deliver(&mut self, observed: &Observation, iteration: u64) -> bool {
        self.deliveries = self.deliveries.saturating_add(1);
        if self.is_over || self.deliveries >= DELIVERIES_MAX {
            return self.end();
        }
        let Some(window) = &mut self.window else {
            self.open(observed, iteration);
            return self.window.is_some();
        };
        if window.last == *observed {
            window.unchanged = window.unchanged.saturating_add(1);
        } else {
            (window.unchanged, window.changed_at) = (0, iteration);
        }
        window.last = observed.clone();
        let is_long = window.unchanged >= STALLED_DELIVERIES && iteration >= window.changed_at + STALLED_ITERATIONS;
        let is_stalled = is_long || window.unchanged >= STALLED_DELIVERIES_MAX;
        if !window.is_withdrawn {
            window.is_invalid |= observed.has_ended;
            let followed = observed.iterations.saturating_sub(window.before.iterations);
            window.is_withdrawn = window.is_invalid || is_stalled || followed >= FIRST + PROBES_PER_LAUNCH;
            window.is_invalid |= is_stalled;
            self.is_over |= is_stalled;
            if window.is_withdrawn {
                (window.unchanged, window.withdrawn_at) = (0, iteration);
            }
            return window.is_withdrawn;
        }
        let has_settled = window.unchanged >= SETTLING && iteration >= window.withdrawn_at + SETTLING_ITERATIONS;
        if !has_settled && !is_stalled {
            return false;
        }
        if let Some(mut window) = self.window.take() {
            window.is_invalid |= !has_settled;
            self.close(&window, observed);
        }
        self.open(observed, iteration);
        self.window.is_some()
    }

    /// What is known by now, in figures.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let mut figures = Figures { iterations: self.iterations, ..Figures::default() };
        let mut ops: BTreeMap<usize, bool> = BTreeMap::new();
        for target in &self.targets {
            *ops.entry(target.op).or_insert(true) &= target.is_known();
            if target.is_known() {
                figures.named_bytes = figures.named_bytes.saturating_add(target.bytes(&self.pieces));
                figures.touched_bytes = figures.touched_bytes.saturating_add(target.touched.bytes());
            }
        }
        figures.launches = ops.len() as u64;
        figures.probed = ops.values().filter(|is_known| **is_known).count() as u64;
        figures
    }

    /// What is known by now.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::new(self.tokens.clone(), self.figures());
        for target in self.targets.iter().filter(|target| target.is_known()) {
            evidence.add(target.op, &target.blocks(&self.pieces), &target.touched);
        }
        evidence
    }

    /// Opens the window of the next group.
    fn open(&mut self, before: &Observation, iteration: u64) {
        let group = if self.iterations >= ITERATIONS_MAX { Vec::new() } else { self.group() };
        if group.is_empty() {
            self.is_over = true;
            return;
        }
        let table = self.table_of(&group);
        let (before, last) = (before.clone(), before.clone());
        self.window = Some(Window {
            group,
            table,
            before,
            last,
            unchanged: 0,
            changed_at: iteration,
            withdrawn_at: iteration,
            is_withdrawn: false,
            is_invalid: false,
        });
    }

    /// Targets that are probed together: no two launches in a row, and no block twice.
    fn group(&self) -> Vec<usize> {
        let (mut group, mut blocks, mut bytes, mut moves) = (Vec::new(), Ranges::default(), 0_u64, 0);
        let mut ops: BTreeSet<usize> = BTreeSet::new();
        for (at, target) in self.targets.iter().enumerate().filter(|(_, target)| !target.is_over()) {
            let last = self.pieces.ops - 1;
            let near = [
                target.op.checked_sub(1).unwrap_or(last),
                target.op,
                if target.op == last { 0 } else { target.op + 1 },
            ];
            let both = target.bytes(&self.pieces).saturating_mul(2);
            let pieces = 2 * target.pieces.len();
            let fits = bytes.saturating_add(both) <= self.budget_bytes && moves + pieces <= MOVES_MAX;
            if !fits || near.iter().any(|op| ops.contains(op)) {
                continue;
            }
            let of_target = target.blocks(&self.pieces);
            if of_target.is_disjoint(&blocks) {
                group.push(at);
                ops.insert(target.op);
                blocks.add(&of_target);
                (bytes, moves) = (bytes.saturating_add(both), moves + pieces);
            }
        }
        group
    }

    fn table_of(&self, group: &[usize]) -> Table {
        let targets = group.iter().filter_map(|at| self.targets.get(*at));
        let ops = self.pieces.ops;
        let steps = targets.flat_map(|target| {
            let op = target.op;
            target.pieces.iter().flat_map(move |piece| {
                let (host, gpu) = (Destination::Host, Destination::Gpu);
                [
                    Step {
                        piece: *piece,
                        destination: host,
                        begin: op + ops - 1,
                        wait: Some(op),
                        expiry: Some(op + 1),
                    },
                    Step { piece: *piece, destination: gpu, begin: op, wait: Some(op + 1), expiry: None },
                ]
            })
        });
        let moves = merged_moves(&self.pieces, steps);
        let (first_launch, tokens) = (self.first_launch, self.tokens.clone());
        Table { first_launch, tokens, moves }
    }

    /// Takes the evidence of a window, whose records are complete.
    fn close(&mut self, window: &Window, after: &Observation) {
        let Window { group, table, before, is_invalid, .. } = window;
        let since = |count: fn(&Observation) -> u64| count(after).saturating_sub(count(before));
        let (moves, len) = (since(|counts| counts.moves), table.moves.len() as u64);
        self.iterations = self.iterations.saturating_add(moves.div_ceil(len.max(1)).max(1));
        let is_invalid = *is_invalid
            || len == 0
            || after.late != before.late
            || after.skipped != before.skipped
            || after.remote_mappings != before.remote_mappings
            || after.dropped_records != before.dropped_records;
        for at in group {
            let Some(target) = self.targets.get_mut(*at) else { continue };
            let blocks = target.blocks(&self.pieces);
            let executed = executions(table, &blocks, moves).filter(|executed| !is_invalid && *executed > 0);
            let Some(executed) = executed else {
                target.attempts += 1;
                continue;
            };
            // Blocks with at least as many counted events meanwhile.
            let counted = |counts: fn(&Observation) -> &BTreeMap<u64, u64>, least: u64| -> Ranges {
                let before = counts(before);
                let since = |(block, count): &(&u64, &u64)| {
                    count.saturating_sub(before.get(*block).copied().unwrap_or(0)) >= least
                };
                let counted = blocks.iter().flat_map(|range| counts(after).range(range)).filter(since);
                counted.map(|(block, _)| Ranges::blocks_of(*block, 1)).collect()
            };
            let proven = if target.executions == 0 { executed.saturating_sub(FIRST) } else { executed };
            if proven > 0 {
                target.touched.add(&blocks.without(&counted(|counts| &counts.idle_returns, proven)));
            }
            target.touched.add(&counted(|counts| &counts.interrupted_absences, 1));
            target.executions = target.executions.saturating_add(executed);
        }
    }
}

/// Times that these blocks left and came back again, of so many moves that were made in their order; `None` if
/// some of them came back once more than others.
fn executions(table: &Table, blocks: &Ranges, moves: u64) -> Option<u64> {
    let len = table.moves.len() as u64;
    let (whole, rest) = (moves.checked_div(len)?, moves.checked_rem(len)?);
    let is_of = |step: &Move| !blocks.places(&(step.begin..step.begin.saturating_add(step.bytes))).is_empty();
    let of_blocks = |destination: Destination| {
        (0..).zip(&table.moves).filter(move |(_, step)| step.destination == destination && is_of(step))
    };
    let (first_out, _) = of_blocks(Destination::Host).next()?;
    let (first_back, _) = of_blocks(Destination::Gpu).next()?;
    let mut made = of_blocks(Destination::Gpu).map(|(at, _)| whole + u64::from(at < rest));
    let times = made.next()?;
    // What leaves at the end of an iteration comes back in the next one.
    let paired = if first_back < first_out { times.checked_sub(1)? } else { times };
    made.all(|of_move| of_move == times).then_some(paired)
}
