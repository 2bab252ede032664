//! Touch probe: determines which blocks of its footprint a launch accesses.
//!
//! An argument of a launch names an extent, which ends at the next address in use. In a pool,
//! extents are far larger than the accessed memory. The probe of a launch is a table of moves. Its
//! footprint leaves the GPU between the previous launch and this one, and returns between this
//! launch and the next one. Accessed blocks return by faults, and the others by the move. uvmd's
//! block records count how often [a whole block returned](Observation::idle_returns) by a move,
//! without an access during its absence.
//!
//! A block counts as not accessed only if all executions but one prove it, and none contradicts it.
//! Without proof it counts as accessed, as arguments name it: if a move was late or skipped, a
//! record was dropped, the block was not on the GPU, or calls of the program moved memory.
//!
//! * `target`: probed launches, and the parts of their footprints probed at a time
//! * `evidence`: results of probes

mod evidence;
mod target;

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    Token,
    plan::{Destination, MOVES_MAX, Move},
};

use self::target::{Target, WARM_UP_EXECUTIONS};
pub use self::{
    evidence::{Evidence, ProbeCounts},
    target::{ATTEMPTS_MAX, LAUNCHES_MAX, PROBES_PER_LAUNCH},
};
use crate::{
    coverage::COUNT_BYTES,
    moves::{PieceMove, merged_moves},
    pieces::Pieces,
    ranges::Ranges,
    sequence::Work,
    table::Table,
};

/// Maximum number of iterations with probe moves, exceeded only by the window in progress.
pub const ITERATIONS_MAX: u64 = 256;
/// Number of samples without change, after the withdrawal of a table, until its records count as
/// complete: records are read later than the counters.
const SETTLING_SAMPLES: u32 = 3;
/// Number of iterations that must begin after the withdrawal, so that one is complete. In it, the
/// program waits for the GPU: moves are counted before the GPU executes them.
const SETTLING_ITERATIONS: u64 = 2;
/// Probing ends after this number of samples without progress, if this number of iterations has
/// begun meanwhile.
const STALLED_SAMPLES: u32 = 64;
const STALLED_ITERATIONS: u64 = 8;
/// Probing ends after this number of samples without progress, whatever the iterations.
const STALLED_SAMPLES_MAX: u32 = 6000;
/// Maximum number of samples of a probe: an hour by default. A program can make its counts
/// change with each sample.
const SAMPLES_MAX: u32 = 36_000;

/// Counts of a process at one time. They never decrease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Complete iterations with a table.
    pub iterations: u64,
    /// Moves handed over to the driver.
    pub moves: u64,
    /// Moves that launches did not wait for.
    pub late: u64,
    /// Skipped moves and waits.
    pub skipped: u64,
    /// Whether the last published table is no longer followed.
    pub has_ended: bool,
    /// Remote mappings of memory by GPUs, as far as the driver shows them.
    pub remote_mappings: u64,
    /// Number of times that a call of the process brought a whole block back to a GPU, after an
    /// absence during which the process had moved memory to the host: no GPU accessed the block
    /// between the two calls. By first address of the block.
    pub idle_returns: BTreeMap<u64, u64>,
    /// Number of such absences that ended otherwise, for example by a fault. By first address of
    /// the block.
    pub interrupted_absences: BTreeMap<u64, u64>,
    /// Block records dropped.
    pub dropped_records: u64,
}

impl Observation {
    fn heap_bytes(&self) -> usize {
        (self.idle_returns.len() + self.interrupted_absences.len()) * COUNT_BYTES
    }
}

/// Period in which the table of a group of targets may be followed.
#[derive(Debug)]
struct ProbeWindow {
    group: Vec<usize>,
    table: Table,
    before: Observation,
    /// Last observation, number of samples since it changed, and the program's iteration then.
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
    window: Option<ProbeWindow>,
    iterations: u64,
    samples: u32,
    is_finished: bool,
}

impl Probe {
    /// Probes of an iteration, which move at most `budget_bytes` per iteration in both directions
    /// together. `None` if there is nothing to probe.
    pub(crate) fn new(work: &Work, budget_bytes: u64) -> Option<Self> {
        let Work { first_launch, tokens, pieces, manages_placement, queue_starts, .. } = work;
        // With two launches, the next launch is also the previous one. Without a wait for the GPU
        // in an iteration, the program's lead is unknown.
        let waits = queue_starts.iter().any(Option::is_some);
        if *manages_placement || !waits || pieces.ops < 3 || tokens.len() != pieces.ops {
            return None;
        }
        let targets = target::select(work, budget_bytes);
        (!targets.is_empty()).then(|| Self {
            first_launch: *first_launch,
            tokens: tokens.clone(),
            pieces: pieces.clone(),
            budget_bytes,
            targets,
            window: None,
            iterations: 0,
            samples: 0,
            is_finished: false,
        })
    }

    /// Heap bytes held, estimated from counts.
    pub(crate) fn heap_bytes(&self) -> usize {
        let targets = self.targets.iter().map(Target::heap_bytes).sum::<usize>();
        let window = self.window.as_ref().map_or(0, |window| {
            let observed = window.before.heap_bytes() + window.last.heap_bytes();
            window.table.heap_bytes() + observed
        });
        self.tokens.capacity() * size_of::<Token>() + self.pieces.heap_bytes() + targets + window
    }

    /// Table to follow now, if any.
    #[must_use]
    pub fn table(&self) -> Option<&Table> {
        self.window.as_ref().filter(|window| !window.is_withdrawn).map(|window| &window.table)
    }

    /// Whether probing has ended.
    #[must_use]
    pub const fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Ends probing with the results so far. Returns whether that withdraws a table.
    pub fn end(&mut self) -> bool {
        self.is_finished = true;
        self.window.take().is_some_and(|window| !window.is_withdrawn)
    }

    /// Invalidates the window in progress, because the program has moved memory itself.
    pub const fn invalidate(&mut self) {
        if let Some(window) = &mut self.window {
            window.is_invalid = true;
        }
    }

    /// Adds the current counts, in iteration `iteration` of the program. Returns whether the table
    /// to follow was changed or withdrawn.
    pub fn add_sample(&mut self, observed: &Observation, iteration: u64) -> bool {
        self.samples = self.samples.saturating_add(1);
        if self.is_finished || self.samples >= SAMPLES_MAX {
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
        let is_long = window.unchanged >= STALLED_SAMPLES && iteration >= window.changed_at + STALLED_ITERATIONS;
        let is_stalled = is_long || window.unchanged >= STALLED_SAMPLES_MAX;
        if !window.is_withdrawn {
            window.is_invalid |= observed.has_ended;
            let followed = observed.iterations.saturating_sub(window.before.iterations);
            window.is_withdrawn = window.is_invalid || is_stalled || followed >= WARM_UP_EXECUTIONS + PROBES_PER_LAUNCH;
            window.is_invalid |= is_stalled;
            self.is_finished |= is_stalled;
            if window.is_withdrawn {
                (window.unchanged, window.withdrawn_at) = (0, iteration);
            }
            return window.is_withdrawn;
        }
        let has_settled =
            window.unchanged >= SETTLING_SAMPLES && iteration >= window.withdrawn_at + SETTLING_ITERATIONS;
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

    /// Counts of probed launches, iterations and bytes so far.
    #[must_use]
    pub fn counts(&self) -> ProbeCounts {
        let mut counts = ProbeCounts { iterations: self.iterations, ..ProbeCounts::default() };
        let mut ops: BTreeMap<usize, bool> = BTreeMap::new();
        for target in &self.targets {
            *ops.entry(target.op).or_insert(true) &= target.is_known();
            if target.is_known() {
                counts.named_bytes = counts.named_bytes.saturating_add(target.bytes(&self.pieces));
                counts.touched_bytes = counts.touched_bytes.saturating_add(target.touched.bytes());
            }
        }
        counts.launches = ops.len() as u64;
        counts.probed = ops.values().filter(|is_known| **is_known).count() as u64;
        counts
    }

    /// Evidence from the launches whose accesses are known so far.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let mut evidence = Evidence::new(self.tokens.clone(), self.counts());
        for target in self.targets.iter().filter(|target| target.is_known()) {
            evidence.add(target.op, &target.blocks(&self.pieces), &target.touched);
        }
        evidence
    }

    /// Opens the window of the next group.
    fn open(&mut self, before: &Observation, iteration: u64) {
        let group = if self.iterations >= ITERATIONS_MAX { Vec::new() } else { self.group() };
        if group.is_empty() {
            self.is_finished = true;
            return;
        }
        let table = self.table_of(&group);
        let (before, last) = (before.clone(), before.clone());
        self.window = Some(ProbeWindow {
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

    /// Indices of the targets of the next window: no two adjacent launches, and no block twice.
    fn group(&self) -> Vec<usize> {
        let (mut group, mut blocks, mut bytes, mut moves) = (Vec::new(), Ranges::default(), 0_u64, 0);
        let mut ops: BTreeSet<usize> = BTreeSet::new();
        for (at, target) in self.targets.iter().enumerate().filter(|(_, target)| !target.is_finished()) {
            let last = self.pieces.ops - 1;
            let neighbours = [
                target.op.checked_sub(1).unwrap_or(last),
                target.op,
                if target.op == last { 0 } else { target.op + 1 },
            ];
            let both = target.bytes(&self.pieces).saturating_mul(2);
            let pieces = 2 * target.pieces.len();
            let fits = bytes.saturating_add(both) <= self.budget_bytes && moves + pieces <= MOVES_MAX;
            if !fits || neighbours.iter().any(|op| ops.contains(op)) {
                continue;
            }
            let of_target = target.blocks(&self.pieces);
            if of_target.is_disjoint(&blocks) {
                group.push(at);
                ops.insert(target.op);
                blocks.union_with(&of_target);
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
                    PieceMove {
                        piece: *piece,
                        destination: host,
                        begin: op + ops - 1,
                        wait: Some(op),
                        expiry: Some(op + 1),
                    },
                    PieceMove { piece: *piece, destination: gpu, begin: op, wait: Some(op + 1), expiry: None },
                ]
            })
        });
        let moves = merged_moves(&self.pieces, steps);
        let (first_launch, tokens) = (self.first_launch, self.tokens.clone());
        Table { first_launch, tokens, moves }
    }

    /// Evaluates a window, whose records are complete.
    fn close(&mut self, window: &ProbeWindow, after: &Observation) {
        let ProbeWindow { group, table, before, is_invalid, .. } = window;
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
            // Blocks with at least `least` events during the window.
            let counted = |counts: fn(&Observation) -> &BTreeMap<u64, u64>, least: u64| -> Ranges {
                let before = counts(before);
                let since = |(block, count): &(&u64, &u64)| {
                    count.saturating_sub(before.get(*block).copied().unwrap_or(0)) >= least
                };
                let counted = blocks.iter().flat_map(|range| counts(after).range(range)).filter(since);
                counted.map(|(block, _)| Ranges::blocks_of(*block, 1)).collect()
            };
            let proven = if target.executions == 0 { executed.saturating_sub(WARM_UP_EXECUTIONS) } else { executed };
            if proven > 0 {
                target.touched.union_with(&blocks.difference(&counted(|counts| &counts.idle_returns, proven)));
            }
            target.touched.union_with(&counted(|counts| &counts.interrupted_absences, 1));
            target.executions = target.executions.saturating_add(executed);
        }
    }
}

/// Number of absences of these blocks after `moves` moves of the table in order; `None` if some
/// blocks have returned more often than others.
fn executions(table: &Table, blocks: &Ranges, moves: u64) -> Option<u64> {
    let len = table.moves.len() as u64;
    let (whole, rest) = (moves.checked_div(len)?, moves.checked_rem(len)?);
    let is_of = |step: &Move| !blocks.overlap_indices(&(step.begin..step.begin.saturating_add(step.bytes))).is_empty();
    let of_blocks = |destination: Destination| {
        (0..).zip(&table.moves).filter(move |(_, step)| step.destination == destination && is_of(step))
    };
    let (first_out, _) = of_blocks(Destination::Host).next()?;
    let (first_back, _) = of_blocks(Destination::Gpu).next()?;
    let mut made = of_blocks(Destination::Gpu).map(|(at, _)| whole + u64::from(at < rest));
    let times = made.next()?;
    // A block that leaves at the end of an iteration returns in the next one.
    let paired = if first_back < first_out { times.checked_sub(1)? } else { times };
    made.all(|of_move| of_move == times).then_some(paired)
}
