//! Finds the iterations of a run while it goes on.
//!
//! Two streams of tokens are looked at: the sizes of allocations and the signatures of launches; or, where the shapes of launches depend on data, as in
//! recommenders, their functions. Frees and accesses come in another order every time and are not. Where the end of a stream repeats, it is taken for iterations, see `period`:
//!
//! searching -> twice: proposed -> three times, in both streams alike: locked -> a token that is not as foretold: degraded -> three times again: locked
//!
//! Adding an operation takes a constant time. [`Detector::search`] takes time in the order of the tokens that are kept, and is due so seldom that all
//! searches together are linear in the operations: it belongs on a thread that nobody waits for.
//!
//! * `period`: the period at the end of one stream

mod period;
mod z;

use std::collections::HashMap;

use period::{Place, Tracker};
use serde::{Deserialize, Serialize};

use crate::{
    circle::Window,
    id::{SignatureId, Table},
    ops::{OpKind, OpStream},
};

/// What counts as iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Fewer tokens are no iteration: loops within one, such as that over the weights in an update, have 20.
    pub min_period: usize,
    /// Times that something must have come to be proposed.
    pub proposing_repeats: usize,
    /// Times that it must have come to be relied on.
    pub locking_repeats: usize,
    /// Tokens of each stream that are kept: a period cannot be longer than this by the repeats.
    pub window: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { min_period: 50, proposing_repeats: 2, locking_repeats: 3, window: 1 << 16 }
    }
}

/// Iterations, as they are known now. Both numbers count one iteration; a stream that is silent has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Allocations.
    pub mallocs: usize,
    /// Launches.
    pub launches: usize,
}

/// Where the detector stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing repeats.
    #[default]
    Searching,
    /// Something came often enough to be worth preparing for.
    Proposed(Period),
    /// Every operation is as foretold.
    Locked(Lock),
    /// It was locked, and an operation was not as foretold: plans must not be followed.
    Degraded(Period),
}

/// Iterations that can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// How long one is.
    pub period: Period,
    /// Launches are of the same functions every time, but not of the same shapes.
    pub shapes_vary: bool,
    /// Where one begins: the operation, counted from the first that was added, before which the fewest bytes were allocated.
    pub start_op: u64,
    /// How many mallocs came before it.
    pub start_malloc: u64,
}

impl Lock {
    /// The iteration that begins at the start, as mallocs of a stream that was observed from its beginning; `None` where nothing is allocated.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let first_malloc = usize::try_from(self.start_malloc).ok()?;
        Some(Window { first_malloc, mallocs: self.period.mallocs }).filter(|window| window.mallocs > 0)
    }
}

/// Finds iterations in operations as they come.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    state: State,
    mallocs: Tracker,
    launches: Launches,
    ops: u64,
    live_bytes: u64,
    allocated_bytes: u64,
    /// Whether the two streams changed since they were last compared.
    compare: bool,
}

/// The stream of launches, twice.
#[derive(Debug)]
struct Launches {
    signatures: Tracker,
    functions: Tracker,
    /// Which of them counts.
    shapes_vary: bool,
}

impl Launches {
    fn counting(&self) -> &Tracker {
        if self.shapes_vary { &self.functions } else { &self.signatures }
    }

    fn search(&mut self, repeats: usize) {
        self.signatures.search();
        self.functions.search();
        self.shapes_vary = self.signatures.repeating(repeats).is_none() && self.functions.repeating(repeats).is_some();
    }
}

impl Default for Detector {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Detector {
    /// One that has seen nothing.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let tracker = || Tracker::new(settings.min_period, settings.proposing_repeats, settings.window);
        Self {
            settings,
            state: State::Searching,
            mallocs: tracker(),
            launches: Launches { signatures: tracker(), functions: tracker(), shapes_vary: false },
            ops: 0,
            live_bytes: 0,
            allocated_bytes: 0,
            compare: false,
        }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// A block begins.
    pub fn malloc(&mut self, bytes: u64) {
        let foretold = self.mallocs.push(bytes, self.here());
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(bytes);
        self.advance(foretold);
    }

    /// A block ends.
    pub fn free(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.ops += 1;
    }

    /// Work is launched: a function, and the function with the shape in which it is launched, both by numbers that stand for the same every time.
    pub fn launch(&mut self, function: u64, signature: u64) {
        let place = self.here();
        let launches = &mut self.launches;
        let (same_function, same) =
            (launches.functions.push(function, place), launches.signatures.push(signature, place));
        let foretold = if launches.shapes_vary { same_function } else { same };
        self.advance(foretold);
    }

    /// An operation that iterations are not told by.
    pub fn other(&mut self) {
        self.ops += 1;
    }

    fn here(&self) -> Place {
        Place { op: self.ops, live_bytes: self.live_bytes, allocated_bytes: self.allocated_bytes }
    }

    fn advance(&mut self, foretold: bool) {
        self.ops += 1;
        if !foretold && let State::Locked(Lock { period, .. }) = self.state {
            self.state = State::Degraded(period);
            self.mallocs.broke();
            self.launches.signatures.broke();
            self.launches.functions.broke();
        }
        self.compare |= self.repeated(self.settings.locking_repeats) && !matches!(self.state, State::Locked(_));
    }

    /// Whether a search may find anything new.
    #[must_use]
    pub fn due(&self) -> bool {
        let searching = !matches!(self.state, State::Locked(_));
        let streams = [&self.mallocs, &self.launches.signatures, &self.launches.functions];
        searching && (self.compare || streams.into_iter().any(Tracker::due))
    }

    /// Looks for iterations. Returns the state if it changed.
    pub fn search(&mut self) -> Option<State> {
        if matches!(self.state, State::Locked(_)) {
            return None;
        }
        self.mallocs.search();
        self.launches.search(self.settings.proposing_repeats);
        self.compare = false;
        let before = self.state;
        let agreed = |repeats| self.repeated(repeats).then(|| self.agree(repeats)).flatten();
        if let Some(period) = agreed(self.settings.locking_repeats) {
            self.state = State::Locked(self.lock(period));
        } else if let (Some(period), State::Searching | State::Proposed(_)) =
            (agreed(self.settings.proposing_repeats), before)
        {
            self.state = State::Proposed(period);
        }
        (self.state != before).then_some(self.state)
    }

    /// Whether each stream that is not silent has come so often.
    fn repeated(&self, repeats: usize) -> bool {
        match (self.mallocs.repeating(repeats), self.launches.counting().repeating(repeats)) {
            (Some(_), Some(_)) => true,
            (Some(period), None) => self.launches.counting().since(self.mallocs.op_before(period * repeats)) == 0,
            (None, Some(period)) => self.mallocs.since(self.launches.counting().op_before(period * repeats)) == 0,
            (None, None) => false,
        }
    }

    /// The period of both streams together: one holds as many of the one's as of the other's.
    fn agree(&self, repeats: usize) -> Option<Period> {
        /// How many of the one's periods may make the other's: a loop that is cut differently by the two.
        const MOST_TIMES: usize = 8;
        let (mallocs, launches) = (self.mallocs.repeating(repeats), self.launches.counting().repeating(repeats));
        if mallocs.is_some_and(|period| !self.mallocs.balanced(period, repeats)) {
            return None;
        }
        let (Some(mallocs), Some(launches)) = (mallocs, launches) else {
            return Some(Period { mallocs: mallocs.unwrap_or(0), launches: launches.unwrap_or(0) });
        };
        let streams = (&self.mallocs, self.launches.counting());
        (1..=MOST_TIMES).find_map(|times| {
            let beside = |period| matching(streams.0, period, streams.1, launches, repeats);
            let by_mallocs = beside(mallocs * times).map(|launches| Period { mallocs: mallocs * times, launches });
            let beside = |period| matching(streams.1, period, streams.0, mallocs, repeats);
            let by_launches = || beside(launches * times).map(|mallocs| Period { mallocs, launches: launches * times });
            by_mallocs.or_else(by_launches)
        })
    }

    fn lock(&self, period: Period) -> Lock {
        let (start_op, start_malloc) = if period.mallocs > 0 {
            self.mallocs.emptiest(period.mallocs)
        } else {
            (self.launches.counting().op_before(period.launches), self.mallocs.pushed())
        };
        Lock { period, shapes_vary: self.launches.shapes_vary, start_op, start_malloc }
    }

    /// Tokens that all searches together have looked at.
    #[must_use]
    pub fn searched(&self) -> u64 {
        self.mallocs.searched() + self.launches.signatures.searched() + self.launches.functions.searched()
    }

    /// Adds a stream's operations, searching whenever it is due. Returns each change with the operation after which it was seen.
    pub fn observe(&mut self, stream: &OpStream) -> Vec<(u64, State)> {
        let mut changes = Vec::new();
        // A function's number is that of its first signature.
        let mut first = HashMap::new();
        let functions: Table<SignatureId, u64> = stream
            .signatures()
            .iter()
            .map(|(id, signature)| *first.entry(&signature.name).or_insert(u64::from(id.0)))
            .collect();
        for op in stream.ops().values() {
            let before = self.state;
            match op.kind {
                OpKind::Malloc(block) => self.malloc(stream.blocks()[block].bytes),
                OpKind::Free(block) => self.free(stream.blocks()[block].bytes),
                OpKind::Launch(launch) => {
                    let signature = stream.launches()[launch].signature;
                    self.launch(functions[signature], u64::from(signature.0));
                }
                OpKind::Read(_) | OpKind::Write(_) => self.other(),
            }
            if self.due() {
                self.search();
            }
            if self.state != before {
                changes.push((self.ops, self.state));
            }
        }
        changes
    }
}

/// How much of another stream one stream's period holds, if that is a number of the other's own periods, and both have come so often.
fn matching(one: &Tracker, period: usize, other: &Tracker, step: usize, repeats: usize) -> Option<usize> {
    // Of all the repeats but one: a program's threads shift the streams against each other by a few operations.
    let within = other.since(one.op_before(period * (repeats - 1)));
    let spread = (within / 64).max(1);
    let each = step * (repeats - 1);
    let found = step * ((within + each / 2) / each).max(1);
    let close = within.abs_diff(found * (repeats - 1)) <= spread;
    (close && one.repeats(period, repeats) && other.repeats(found, repeats)).then_some(found)
}
