//! Detector of the iterations of a run, while the run continues.
//!
//! The detector compares two streams of tokens: the sizes of allocations and the signatures of
//! launches. If the shapes of launches depend on data, as in recommenders, it compares their
//! functions instead. It ignores frees and accesses, whose order varies. If the end of a stream
//! repeats, the repeats are iterations, see `period`:
//!
//! searching -> two repeats: proposed -> three, consistent in both streams: locked -> a failed
//! prediction: degraded -> three repeats: locked
//!
//! Adding an operation takes constant time. [`Detector::search`] is linear in the tokens of the
//! window, and due so rarely that all searches together are linear in the operations. It should run
//! on a background thread.
//!
//! * `period`: period at the end of one stream

mod period;
mod z;

use std::collections::HashMap;

use period::{Position, Tracker};
use serde::{Deserialize, Serialize};

use crate::{
    circle::Window,
    id::{SignatureId, Table},
    ops::{OpKind, OpStream},
};

/// Settings of the detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Minimum of tokens of an iteration. Loops within one, such as that over the weights in an
    /// update, have 20.
    pub min_period: usize,
    /// Repeats for a proposal.
    pub proposing_repeats: usize,
    /// Repeats for a lock.
    pub locking_repeats: usize,
    /// Tokens of each stream in memory. A period is at most this divided by the repeats.
    pub window: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { min_period: 50, proposing_repeats: 2, locking_repeats: 3, window: 1 << 16 }
    }
}

/// Length of an iteration. Both numbers are per iteration; 0 for a stream without tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Number of allocations.
    pub mallocs: usize,
    /// Number of launches.
    pub launches: usize,
}

/// State of the detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No repeats.
    #[default]
    Searching,
    /// Repeats that suffice to prepare plans, but not to follow them.
    Proposed(Period),
    /// Every operation matches the prediction.
    Locked(Lock),
    /// Formerly locked; an operation did not match the prediction, so plans must not be followed.
    Degraded(Period),
}

/// Iterations that plans can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Length of an iteration.
    pub period: Period,
    /// Whether launches repeat by function, but not by shape.
    pub shapes_vary: bool,
    /// Beginning of an iteration: the operation before which the fewest bytes were allocated,
    /// counted from the first one added.
    pub start_op: u64,
    /// Number of mallocs before `start_op`.
    pub start_malloc: u64,
}

impl Lock {
    /// Window of the iteration at `start_op`, in a stream observed from its beginning; `None`
    /// without allocations.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let first_malloc = usize::try_from(self.start_malloc).ok()?;
        Some(Window { first_malloc, mallocs: self.period.mallocs }).filter(|window| window.mallocs > 0)
    }
}

/// Online detector of iterations.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    state: State,
    mallocs: Tracker,
    launches: Launches,
    ops: u64,
    live_bytes: u64,
    allocated_bytes: u64,
    /// Whether the two streams must be compared again, as their repeats changed.
    comparison_due: bool,
}

/// Launches as two streams of tokens.
#[derive(Debug)]
struct Launches {
    signatures: Tracker,
    functions: Tracker,
    /// Whether `functions` is the active stream.
    shapes_vary: bool,
}

impl Launches {
    fn active(&self) -> &Tracker {
        if self.shapes_vary { &self.functions } else { &self.signatures }
    }

    fn search(&mut self, repeats: usize) {
        self.signatures.search();
        self.functions.search();
        self.shapes_vary = self.signatures.period(repeats).is_none() && self.functions.period(repeats).is_some();
    }
}

impl Default for Detector {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Detector {
    /// Detector without operations.
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
            comparison_due: false,
        }
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Adds an allocation.
    pub fn malloc(&mut self, bytes: u64) {
        let predicted = self.mallocs.push(bytes, self.position());
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(bytes);
        self.advance(predicted);
    }

    /// Adds a free.
    pub fn free(&mut self, bytes: u64) {
        self.live_bytes = self.live_bytes.saturating_sub(bytes);
        self.ops += 1;
    }

    /// Adds a launch: numbers of its function, and of its function with its shape. Equal numbers
    /// stand for equal launches.
    pub fn launch(&mut self, function: u64, signature: u64) {
        let position = self.position();
        let launches = &mut self.launches;
        let (same_function, same) =
            (launches.functions.push(function, position), launches.signatures.push(signature, position));
        let predicted = if launches.shapes_vary { same_function } else { same };
        self.advance(predicted);
    }

    /// Adds an operation of another kind, which the detector does not compare.
    pub fn other(&mut self) {
        self.ops += 1;
    }

    fn position(&self) -> Position {
        Position { op: self.ops, live_bytes: self.live_bytes, allocated_bytes: self.allocated_bytes }
    }

    fn advance(&mut self, predicted: bool) {
        self.ops += 1;
        if !predicted && let State::Locked(Lock { period, .. }) = self.state {
            self.state = State::Degraded(period);
            self.mallocs.mispredicted();
            self.launches.signatures.mispredicted();
            self.launches.functions.mispredicted();
        }
        self.comparison_due |=
            self.all_repeat(self.settings.locking_repeats) && !matches!(self.state, State::Locked(_));
    }

    /// Whether a search may change the state.
    #[must_use]
    pub fn due(&self) -> bool {
        let searching = !matches!(self.state, State::Locked(_));
        let streams = [&self.mallocs, &self.launches.signatures, &self.launches.functions];
        searching && (self.comparison_due || streams.into_iter().any(Tracker::due))
    }

    /// Searches for iterations. Returns the state if it changed.
    pub fn search(&mut self) -> Option<State> {
        if matches!(self.state, State::Locked(_)) {
            return None;
        }
        self.mallocs.search();
        self.launches.search(self.settings.proposing_repeats);
        self.comparison_due = false;
        let before = self.state;
        let common = |repeats| self.all_repeat(repeats).then(|| self.common_period(repeats)).flatten();
        if let Some(period) = common(self.settings.locking_repeats) {
            self.state = State::Locked(self.lock(period));
        } else if let (Some(period), State::Searching | State::Proposed(_)) =
            (common(self.settings.proposing_repeats), before)
        {
            self.state = State::Proposed(period);
        }
        (self.state != before).then_some(self.state)
    }

    /// Whether each stream with tokens has this number of repeats.
    fn all_repeat(&self, repeats: usize) -> bool {
        match (self.mallocs.period(repeats), self.launches.active().period(repeats)) {
            (Some(_), Some(_)) => true,
            (Some(period), None) => self.launches.active().since(self.mallocs.op_before(period * repeats)) == 0,
            (None, Some(period)) => self.mallocs.since(self.launches.active().op_before(period * repeats)) == 0,
            (None, None) => false,
        }
    }

    /// Common period of both streams: the same number of iterations in each.
    fn common_period(&self, repeats: usize) -> Option<Period> {
        /// Maximum of one stream's periods in a period of the other, for loops that the two divide
        /// differently.
        const MAX_MULTIPLE: usize = 8;
        let (mallocs, launches) = (self.mallocs.period(repeats), self.launches.active().period(repeats));
        if mallocs.is_some_and(|period| !self.mallocs.balanced(period, repeats)) {
            return None;
        }
        let (Some(mallocs), Some(launches)) = (mallocs, launches) else {
            return Some(Period { mallocs: mallocs.unwrap_or(0), launches: launches.unwrap_or(0) });
        };
        let streams = (&self.mallocs, self.launches.active());
        (1..=MAX_MULTIPLE).find_map(|times| {
            let counterpart = |period| matching_period(streams.0, period, streams.1, launches, repeats);
            let by_mallocs = counterpart(mallocs * times).map(|launches| Period { mallocs: mallocs * times, launches });
            let counterpart = |period| matching_period(streams.1, period, streams.0, mallocs, repeats);
            let by_launches =
                || counterpart(launches * times).map(|mallocs| Period { mallocs, launches: launches * times });
            by_mallocs.or_else(by_launches)
        })
    }

    fn lock(&self, period: Period) -> Lock {
        let (start_op, start_malloc) = if period.mallocs > 0 {
            self.mallocs.min_live(period.mallocs)
        } else {
            (self.launches.active().op_before(period.launches), self.mallocs.pushed())
        };
        Lock { period, shapes_vary: self.launches.shapes_vary, start_op, start_malloc }
    }

    /// Tokens inspected by all searches together.
    #[must_use]
    pub fn searched(&self) -> u64 {
        self.mallocs.searched() + self.launches.signatures.searched() + self.launches.functions.searched()
    }

    /// Adds all operations of a stream, and searches whenever due. Returns each new state with the
    /// number of operations so far.
    pub fn observe(&mut self, stream: &OpStream) -> Vec<(u64, State)> {
        let mut changes = Vec::new();
        // The number of a function is that of its first signature.
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
                OpKind::Read(_) | OpKind::Write(_) | OpKind::Sync(_) => self.other(),
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

/// Tokens of another stream in a period of one stream, if they are a multiple of the other's own
/// period and both repeat as often.
fn matching_period(one: &Tracker, period: usize, other: &Tracker, step: usize, repeats: usize) -> Option<usize> {
    // All repeats but one: the threads of a program shift the streams against each other by a few
    // operations.
    let within = other.since(one.op_before(period * (repeats - 1)));
    let spread = (within / 64).max(1);
    let each = step * (repeats - 1);
    let period_of_other = step * ((within + each / 2) / each).max(1);
    let close = within.abs_diff(period_of_other * (repeats - 1)) <= spread;
    (close && one.has_period(period, repeats) && other.has_period(period_of_other, repeats)).then_some(period_of_other)
}
