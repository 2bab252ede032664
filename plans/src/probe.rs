//! Touch probe: which blocks of its footprint a launch accesses.
//!
//! Arguments of launches name extents, which end at the next address in use. Of a pool, they name far
//! more than a launch accesses. The probe of a launch is a table of moves: its footprint leaves the GPU
//! between the launch before and the launch, and comes back behind the launch, before the next one. What
//! the launch accesses comes back by faults, and what it does not, by the move. uvmd's records of blocks
//! say of each block how often [all of it came back](Observation::idle_returns) by a move without an
//! access since memory had left.
//!
//! A block counts as not accessed only if that is proven for each execution but the first. A move that was late or
//! left out, a lost record, a block that the GPU did not have, calls of the program that move memory:
//! then it counts as accessed, as its arguments name it.

use std::collections::{BTreeMap, BTreeSet};

use call_ring::{
    Plan, Token,
    plan::{Destination, HANDOVER_WAIT_MAX_NS, MOVES_MAX, Move},
};
use planner::Part;

use crate::{
    moves::{Step, assembled},
    pieces::Pieces,
    sequence::Work,
};

/// Most launches that are probed.
pub const LAUNCHES_MAX: usize = 64;
/// Executions of a launch for which it has to be proven that they do not access a block.
pub const PROBES_PER_LAUNCH: u64 = 2;
/// Executions in the first window of a launch without a proof: a block that the GPU did not have before comes
/// back once without having left.
const FIRST: u64 = 1;
/// Windows in vain after which a launch is not probed any more.
pub const ATTEMPTS_MAX: u32 = 3;
/// Most iterations with moves of probes, up to the end of the window in progress.
pub const ITERATIONS_MAX: u64 = 256;
/// Least blocks of a footprint for which a probe can matter.
const BLOCKS_MIN: usize = 2;
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
    /// Mappings of memory that GPUs access where it is.
    pub remote_mappings: u64,
    /// Times that a block came back as a whole by a call of the process, absent since before the process
    /// had memory moved to the host; by its first address.
    pub idle_returns: BTreeMap<u64, u64>,
    /// Times that something else ended an absence from since before then; likewise.
    pub interrupted_absences: BTreeMap<u64, u64>,
    /// Records of blocks that were lost.
    pub dropped_records: u64,
}

/// Table of moves, as a helper follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Number of a launch at which an iteration begins.
    pub first_launch: u64,
    /// Token of each launch of an iteration.
    pub tokens: Vec<Token>,
    /// Moves, by the launches behind which they begin.
    pub moves: Vec<Move>,
    /// Time for which a launch waits until a move is handed over.
    pub handover_wait_ns: u64,
}

impl Table {
    /// Bytes of an iteration in this direction.
    #[must_use]
    pub fn bytes(&self, destination: Destination) -> u64 {
        let moves = self.moves.iter().filter(|step| step.destination == destination);
        moves.map(|step| step.bytes).fold(0, u64::saturating_add)
    }

    /// As the helper takes it.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "numbers of launches have 32 bits in plans")]
    pub fn plan(&self, gpu: [u8; 16]) -> Plan<'_> {
        let budget_bytes = self.moves.iter().map(|step| step.bytes).fold(0, u64::saturating_add);
        let Self { first_launch, tokens, moves, handover_wait_ns } = self;
        let (first_launch, handover_wait_ns) = (*first_launch as u32, *handover_wait_ns);
        Plan { gpu, first_launch, budget_bytes, handover_wait_ns, tokens, moves }
    }
}

/// Figures of probes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Launches of an iteration that are to be probed.
    pub launches: u64,
    /// Those of which it is known what they access.
    pub probed: u64,
    /// Iterations with moves of probes.
    pub iterations: u64,
    /// Bytes that these launches name, as far as they are probed; each launch counts.
    pub named_bytes: u64,
    /// Bytes of them that count as accessed.
    pub touched_bytes: u64,
}

/// Blocks that launches of an iteration do not access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Token of each launch of the iteration.
    tokens: Vec<Token>,
    /// First addresses of the blocks by the place of the launch.
    untouched: BTreeMap<usize, BTreeSet<u64>>,
    /// Those that count as accessed, as far as they were probed, likewise.
    touched: BTreeMap<usize, BTreeSet<u64>>,
    figures: Figures,
}

impl Evidence {
    /// Figures of the probes that it is of.
    #[must_use]
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// Blocks that the launch at this place does not access, by their first addresses.
    pub fn untouched(&self, op: usize) -> impl Iterator<Item = u64> + '_ {
        self.untouched.get(&op).into_iter().flatten().copied()
    }

    /// Places of the launches that were probed.
    pub fn launches(&self) -> impl Iterator<Item = usize> + '_ {
        self.untouched.keys().copied()
    }

    /// Blocks that were probed and count as accessed by the launch at this place, by their first addresses.
    pub fn touched(&self, op: usize) -> impl Iterator<Item = u64> + '_ {
        self.touched.get(&op).into_iter().flatten().copied()
    }

    /// Whether it is about launches with these tokens.
    pub(crate) fn is_of(&self, tokens: &[Token]) -> bool {
        self.tokens == tokens
    }

    /// Pieces with the uses that are left. What no launch is found to access stays as it is named where
    /// the GPU has faulted on it: `faulted` are the first addresses of such blocks.
    pub(crate) fn reduced(&self, mut pieces: Pieces, faulted: &BTreeSet<u64>) -> Pieces {
        for piece in &mut pieces.all {
            let blocks = || blocks(piece.address, piece.bytes);
            let is_used = |op: &usize| {
                self.untouched.get(op).is_none_or(|untouched| blocks().any(|block| !untouched.contains(&block)))
            };
            let uses: Vec<usize> = piece.uses.iter().copied().filter(is_used).collect();
            if !uses.is_empty() || !blocks().any(|block| faulted.contains(&block)) {
                piece.uses = uses;
            }
        }
        pieces.all.retain(|piece| !piece.uses.is_empty());
        pieces
    }
}

/// Part of the footprint of a launch that is probed at a time.
#[derive(Clone, Debug)]
struct Target {
    /// Place of the launch.
    op: usize,
    /// Its pieces, by their places.
    pieces: Vec<usize>,
    /// Executions that were observed.
    executions: u64,
    /// Windows in vain.
    attempts: u32,
    /// Blocks that were accessed in one of them, or may have been.
    touched: BTreeSet<u64>,
}

impl Target {
    const fn is_known(&self) -> bool {
        self.executions >= FIRST + PROBES_PER_LAUNCH
    }

    const fn is_over(&self) -> bool {
        self.is_known() || self.attempts >= ATTEMPTS_MAX
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
    is_spoilt: bool,
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
    is_over: bool,
}

impl Probe {
    /// Probes of an iteration, with so many bytes in each, both directions together. `None` if there is
    /// nothing to probe.
    pub(crate) fn of(work: &Work, budget_bytes: u64) -> Option<Self> {
        let Work { first_launch, tokens, pieces, are_alone, places_memory, queue_starts, .. } = work;
        // With two launches, the one behind is the one before. A program that does not wait for the GPU in an
        // iteration is ahead of it by an unknown time.
        let waits = queue_starts.iter().any(Option::is_some);
        if *places_memory || !waits || pieces.ops < 3 || tokens.len() != pieces.ops {
            return None;
        }
        let may_be = |op: usize| {
            let repeats = tokens.get(op).is_some_and(|token| token.pointers.is_some());
            repeats && are_alone.get(op).copied().unwrap_or(false)
        };
        let named = pieces.by_op().into_iter().enumerate().filter(|(op, _)| may_be(*op));
        let mut named: Vec<(usize, Vec<usize>, u64)> = named
            .map(|(op, mut places)| {
                let is_moved =
                    |place: &usize| pieces.all.get(*place).is_some_and(|piece| piece.moves && piece.is_block());
                places.retain(is_moved);
                let bytes = bytes(pieces, &places);
                (op, places, bytes)
            })
            .filter(|(.., bytes)| bytes / Part::BLOCK_BYTES >= BLOCKS_MIN as u64)
            .collect();
        named.sort_by_key(|(op, _, bytes)| (std::cmp::Reverse(*bytes), *op));
        named.truncate(LAUNCHES_MAX);
        let parts = named.into_iter().flat_map(|(op, places, _)| parts(pieces, op, &places, budget_bytes / 2));
        let targets: Vec<Target> =
            parts.filter(|target| bytes(pieces, &target.pieces).saturating_mul(2) <= budget_bytes).collect();
        (!targets.is_empty()).then(|| Self {
            first_launch: *first_launch,
            tokens: tokens.clone(),
            pieces: pieces.clone(),
            budget_bytes,
            targets,
            window: None,
            iterations: 0,
            is_over: false,
        })
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

    /// Ends with what is known by now.
    pub const fn end(&mut self) {
        self.is_over = true;
    }

    /// The program moves memory by itself: what comes back in this window says nothing.
    pub const fn spoil(&mut self) {
        if let Some(window) = &mut self.window {
            window.is_spoilt = true;
        }
    }

    /// Adds what is counted now, in iteration `iteration` of the program. Returns whether the table
    /// that is to be followed is another one, or none any more.
    pub fn deliver(&mut self, observed: &Observation, iteration: u64) -> bool {
        if self.is_over {
            return self.window.take().is_some_and(|window| !window.is_withdrawn);
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
            window.is_spoilt |= observed.has_ended;
            let followed = observed.iterations.saturating_sub(window.before.iterations);
            window.is_withdrawn = window.is_spoilt || is_stalled || followed >= FIRST + PROBES_PER_LAUNCH;
            window.is_spoilt |= is_stalled;
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
            window.is_spoilt |= !has_settled;
            self.close(&window, observed);
        }
        self.open(observed, iteration);
        self.window.is_some()
    }

    /// What is known by now.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        let mut evidence = Evidence { tokens: self.tokens.clone(), ..Evidence::default() };
        let mut ops: BTreeMap<usize, bool> = BTreeMap::new();
        for target in &self.targets {
            let is_known = ops.entry(target.op).or_insert(true);
            *is_known &= target.is_known();
            if !target.is_known() {
                continue;
            }
            let all = target.blocks(&self.pieces);
            evidence.figures.named_bytes += bytes_of(all.len());
            evidence.figures.touched_bytes += bytes_of(target.touched.len());
            evidence.untouched.entry(target.op).or_default().extend(all.difference(&target.touched));
            evidence.touched.entry(target.op).or_default().extend(&target.touched);
        }
        evidence.figures.launches = ops.len() as u64;
        evidence.figures.probed = ops.values().filter(|is_known| **is_known).count() as u64;
        evidence.figures.iterations = self.iterations;
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
            is_spoilt: false,
        });
    }

    /// Targets that are probed together: no two launches in a row, and no block twice.
    fn group(&self) -> Vec<usize> {
        let (mut group, mut blocks, mut bytes, mut moves) = (Vec::new(), BTreeSet::new(), 0_u64, 0);
        let mut ops: BTreeSet<usize> = BTreeSet::new();
        for (at, target) in self.targets.iter().enumerate().filter(|(_, target)| !target.is_over()) {
            let last = self.pieces.ops - 1;
            let near = [
                target.op.checked_sub(1).unwrap_or(last),
                target.op,
                if target.op == last { 0 } else { target.op + 1 },
            ];
            let of_target = target.blocks(&self.pieces);
            let both = bytes_of(of_target.len()).saturating_mul(2);
            let pieces = 2 * target.pieces.len();
            let fits = bytes.saturating_add(both) <= self.budget_bytes;
            if fits
                && moves + pieces <= MOVES_MAX
                && near.iter().all(|op| !ops.contains(op))
                && of_target.iter().all(|block| !blocks.contains(block))
            {
                group.push(at);
                ops.insert(target.op);
                blocks.extend(of_target);
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
        let moves = assembled(&self.pieces, steps);
        let (first_launch, tokens) = (self.first_launch, self.tokens.clone());
        Table { first_launch, tokens, moves, handover_wait_ns: HANDOVER_WAIT_MAX_NS }
    }

    /// Takes the evidence of a window, whose records are complete.
    fn close(&mut self, window: &Window, after: &Observation) {
        let Window { group, table, before, is_spoilt, .. } = window;
        let since = |count: fn(&Observation) -> u64| count(after).saturating_sub(count(before));
        let (moves, len) = (since(|counts| counts.moves), table.moves.len() as u64);
        self.iterations = self.iterations.saturating_add(moves.div_ceil(len.max(1)).max(1));
        let is_spoilt = *is_spoilt
            || len == 0
            || after.late != before.late
            || after.skipped != before.skipped
            || after.remote_mappings != before.remote_mappings
            || after.dropped_records != before.dropped_records;
        for at in group {
            let Some(target) = self.targets.get_mut(*at) else { continue };
            let blocks = target.blocks(&self.pieces);
            let executed = executions(table, &blocks, moves).filter(|executed| !is_spoilt && *executed > 0);
            let Some(executed) = executed else {
                target.attempts += 1;
                continue;
            };
            let since = |counts: fn(&Observation) -> &BTreeMap<u64, u64>, block: &u64| {
                let count = |observed| counts(observed).get(block).copied().unwrap_or(0_u64);
                count(after).saturating_sub(count(before))
            };
            let proven = if target.executions == 0 { executed.saturating_sub(FIRST) } else { executed };
            let is_touched = |block: &u64| {
                let returns = since(|counts| &counts.idle_returns, block);
                returns < proven || since(|counts| &counts.interrupted_absences, block) > 0
            };
            target.touched.extend(blocks.iter().copied().filter(is_touched));
            target.executions = target.executions.saturating_add(executed);
        }
    }
}

impl Target {
    /// First addresses of its blocks.
    fn blocks(&self, pieces: &Pieces) -> BTreeSet<u64> {
        let pieces = self.pieces.iter().filter_map(|place| pieces.all.get(*place));
        pieces.flat_map(|piece| blocks(piece.address, piece.bytes)).collect()
    }
}

/// Times that these blocks left and came back again, of so many moves that were made in their order; `None` if
/// some of them came back once more than others.
fn executions(table: &Table, blocks: &BTreeSet<u64>, moves: u64) -> Option<u64> {
    let len = table.moves.len() as u64;
    let (whole, rest) = (moves.checked_div(len)?, moves.checked_rem(len)?);
    let is_of = |step: &Move| blocks.range(step.begin..step.begin.saturating_add(step.bytes)).next().is_some();
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

/// Targets of a launch with at most so many bytes each; at least a piece.
fn parts(pieces: &Pieces, op: usize, places: &[usize], most_bytes: u64) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut room = 0_u64;
    for place in places {
        let bytes = pieces.all.get(*place).map_or(0, |piece| piece.bytes);
        match targets.last_mut() {
            Some(target) if bytes <= room && 2 * target.pieces.len() + 2 <= MOVES_MAX => {
                target.pieces.push(*place);
                room -= bytes;
            }
            _ => {
                let target = Target { op, pieces: vec![*place], executions: 0, attempts: 0, touched: BTreeSet::new() };
                targets.push(target);
                room = most_bytes.saturating_sub(bytes);
            }
        }
    }
    targets
}

/// First addresses of the blocks in a range of whole blocks.
fn blocks(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let first = address / Part::BLOCK_BYTES;
    (first..address.saturating_add(bytes).div_ceil(Part::BLOCK_BYTES)).map(|number| number * Part::BLOCK_BYTES)
}

const fn bytes_of(blocks: usize) -> u64 {
    (blocks as u64).saturating_mul(Part::BLOCK_BYTES)
}

fn bytes(pieces: &Pieces, places: &[usize]) -> u64 {
    let pieces = places.iter().filter_map(|place| pieces.all.get(*place));
    pieces.map(|piece| piece.bytes).fold(0, u64::saturating_add)
}
