//! Detector of the iterations of a run, while the run continues.
//!
//! The detector compares two streams of tokens: the sizes of allocations, and the signatures of
//! launches with the syncs between them. If the shapes of launches depend on data, as in
//! recommenders, it compares their functions instead. It ignores frees and accesses, whose order
//! varies. If the end of a stream repeats, the repeats are iterations, see `period`:
//!
//! searching -> two repeats: proposed -> three, consistent in both streams: provisional -> as many
//! more: locked -> a failed prediction: degraded -> three repeats: locked
//!
//! A loop within an iteration repeats as well. So a provisional lock that fails is searched anew,
//! and plans are only followed while locked. A program that reads its loss waits for the GPU: a
//! period with a sync may be short, and one without is not confirmed for long, in a run with syncs.
//!
//! Adding an operation takes constant time on average, whatever its tokens are. [`Detector::search`]
//! is linear in the tokens of the window at most, and that is due so rarely that all searches
//! together are linear in the operations. It may run on a background thread.
//!
//! * `period`: periods at the end of one stream

mod period;
mod z;

use std::collections::HashMap;

use period::{Position, Tracker};
use serde::{Deserialize, Serialize};

use crate::{
    circle::Window,
    from_ops::{IterationWindow, LaunchWindow},
    id::{SignatureId, Table},
    ops::{OpKind, OpStream, SyncKind},
};

/// Settings of the detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Minimum of tokens of an iteration without a sync, in the stream with more of them. Loops
    /// within one, such as that over the weights in an update, have 20.
    pub min_period: usize,
    /// Minimum of tokens of an iteration with a sync.
    pub min_synced_period: usize,
    /// Repeats for a proposal.
    pub proposing_repeats: usize,
    /// Repeats for a provisional lock.
    pub locking_repeats: usize,
    /// Tokens of each stream in memory. A period is at most this divided by the repeats.
    pub window: usize,
    /// Whether the syncs of the run are among its operations. Its recorder knows before the first
    /// operation; without it, the first sync tells.
    pub has_syncs: bool,
}

impl Settings {
    /// Settings for a run that was recorded to its end: with syncs if it has any.
    #[must_use]
    pub fn of_recorded(stream: &OpStream) -> Self {
        let has_syncs = stream.ops().values().iter().any(|op| matches!(op.kind, OpKind::Sync(_)));
        Self { has_syncs, ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            min_period: 50,
            min_synced_period: 8,
            proposing_repeats: 2,
            locking_repeats: 3,
            window: 1 << 16,
            has_syncs: false,
        }
    }
}

/// Length of an iteration. The numbers are per iteration; 0 for what it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Period {
    /// Number of allocations.
    pub mallocs: usize,
    /// Number of launches.
    pub launches: usize,
    /// Number of syncs.
    #[serde(default)]
    pub syncs: usize,
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
    /// Every operation matches the prediction, but the repeats may be a loop within an iteration:
    /// plans must not be followed yet.
    Provisional(Lock),
    /// Every operation matches the prediction.
    Locked(Lock),
    /// Formerly locked; an operation did not match the prediction, so plans must not be followed.
    Degraded(Period),
}

impl State {
    /// Lock, provisional or not.
    #[must_use]
    pub fn lock(self) -> Option<Lock> {
        match self {
            Self::Provisional(lock) | Self::Locked(lock) => Some(lock),
            Self::Searching | Self::Proposed(_) | Self::Degraded(_) => None,
        }
    }
}

/// Iterations that plans can rely on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Length of an iteration.
    pub period: Period,
    /// Whether launches repeat by function, but not by shape.
    pub shapes_vary: bool,
    /// Beginning of an iteration, counted from the first operation added: the operation before
    /// which the fewest bytes were allocated; without allocations, the one after a sync.
    pub start_op: u64,
    /// Number of mallocs before `start_op`.
    pub start_malloc: u64,
    /// Number of launches before `start_op`.
    pub start_launch: u64,
}

impl Lock {
    /// Window of the iteration at `start_op`, in a stream observed from its beginning; `None`
    /// without allocations.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        let first_malloc = usize::try_from(self.start_malloc).ok()?;
        Some(Window { first_malloc, mallocs: self.period.mallocs }).filter(|window| window.mallocs > 0)
    }

    /// Window of the same iteration by its mallocs, or without any by its launches; `None` without
    /// either.
    #[must_use]
    pub fn iteration_window(&self) -> Option<IterationWindow> {
        let launches = |first_launch| LaunchWindow { first_launch, launches: self.period.launches };
        let launches = usize::try_from(self.start_launch).ok().map(launches).filter(|window| window.launches > 0);
        self.window().map(IterationWindow::from).or(launches.map(IterationWindow::from))
    }
}

/// Length of an iteration in the tokens of both streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tokens {
    mallocs: usize,
    /// Launches and syncs.
    calls: usize,
}

/// Online detector of iterations.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    state: State,
    mallocs: Tracker,
    calls: Calls,
    ops: u64,
    live_bytes: u64,
    allocated_bytes: u64,
    syncs: u64,
    /// Period of the current lock.
    held: Option<Tokens>,
    /// Period that is certain: of the last lock that was not provisional, unless it may be a loop
    /// within an iteration.
    trusted: Option<Tokens>,
    /// Tokens of each stream before the last token of the other: mallocs, then calls.
    before_last: (u64, u64),
    /// Best periods at the last comparison of the streams.
    compared: (Option<usize>, Option<usize>),
    /// Operations until which equal periods are not compared again.
    compare_at: u64,
}

/// Launches and syncs as two streams of tokens.
#[derive(Debug)]
struct Calls {
    signatures: Tracker,
    functions: Tracker,
    /// Whether `functions` is the active stream.
    shapes_vary: bool,
}

impl Calls {
    fn active(&self) -> &Tracker {
        if self.shapes_vary { &self.functions } else { &self.signatures }
    }

    fn push(&mut self, function: u64, signature: u64, position: Position) -> bool {
        let (same_function, same) =
            (self.functions.push(function, position), self.signatures.push(signature, position));
        if self.shapes_vary { same_function } else { same }
    }

    /// Makes that stream the active one whose period is longer: within an iteration of varying
    /// shapes, there are loops whose shapes do not vary.
    fn choose(&mut self, repeats: usize) {
        if !self.active().is_in_grace() {
            self.shapes_vary = self.functions.period(repeats) > self.signatures.period(repeats);
        }
    }

    fn both(&mut self) -> [&mut Tracker; 2] {
        [&mut self.signatures, &mut self.functions]
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
        let tracker = || Tracker::new(settings);
        Self {
            settings,
            state: State::Searching,
            mallocs: tracker(),
            calls: Calls { signatures: tracker(), functions: tracker(), shapes_vary: false },
            ops: 0,
            live_bytes: 0,
            allocated_bytes: 0,
            syncs: 0,
            held: None,
            trusted: None,
            before_last: (0, 0),
            compared: (None, None),
            compare_at: 0,
        }
    }

    /// Current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Adds an allocation.
    pub fn malloc(&mut self, bytes: u64) {
        let predicted = self.mallocs.push(bytes, self.position()) && self.held.is_none_or(|held| held.mallocs > 0);
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.allocated_bytes = self.allocated_bytes.wrapping_add(bytes);
        self.before_last.1 = self.calls.signatures.pushed();
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
        self.call(function, signature);
    }

    /// Adds a sync.
    pub fn sync(&mut self, kind: SyncKind) {
        self.settings.has_syncs = true;
        // No number of a launch, by all odds.
        let token = 0x7379_6e63_0000_0000_u64.rotate_left(7) + kind as u64;
        self.call(token, token);
        self.syncs += 1;
    }

    /// Adds an operation of another kind, which the detector does not compare.
    pub fn other(&mut self) {
        self.ops += 1;
    }

    fn call(&mut self, function: u64, signature: u64) {
        let predicted =
            self.calls.push(function, signature, self.position()) && self.held.is_none_or(|held| held.calls > 0);
        self.before_last.0 = self.mallocs.pushed();
        self.advance(predicted);
    }

    fn position(&self) -> Position {
        let Self { ops: op, live_bytes, allocated_bytes, syncs, .. } = *self;
        Position { op, live_bytes, allocated_bytes, syncs }
    }

    fn advance(&mut self, predicted: bool) {
        self.ops += 1;
        let ended = self.end_silent_stream();
        if predicted && !ended {
            if matches!(self.state, State::Locked(_)) && self.trusted != self.held && self.repeats_for_long() {
                self.trusted = self.held;
            }
            return;
        }
        match self.state {
            State::Locked(Lock { period, .. }) => self.state = State::Degraded(period),
            State::Provisional(_) => self.state = State::Searching,
            State::Searching | State::Proposed(_) | State::Degraded(_) => return,
        }
        if self.held.is_some() && self.held == self.trusted {
            self.mallocs.prefer_held();
            self.calls.both().into_iter().for_each(Tracker::prefer_held);
        } else {
            self.mallocs.hold(0);
            self.calls.both().into_iter().for_each(|tracker| tracker.hold(0));
        }
        self.held = None;
        self.compare_at = 0;
    }

    /// Ends a stream that has had no token for longer than a period of the lock: then nothing else
    /// contradicts its predictions. Returns whether it did.
    fn end_silent_stream(&mut self) -> bool {
        let Some(Tokens { mallocs, calls }) = self.held else { return false };
        let since = |pushed, before| usize::try_from(pushed - before).unwrap_or(usize::MAX);
        let (since_calls, since_malloc) = (
            since(self.mallocs.pushed(), self.before_last.0),
            since(self.calls.signatures.pushed(), self.before_last.1),
        );
        let has_both = mallocs > 0 && calls > 0;
        let (no_mallocs, no_calls) =
            (has_both && is_silent(since_malloc, calls), has_both && is_silent(since_calls, mallocs));
        if no_mallocs {
            self.mallocs.ended();
        }
        if no_calls {
            self.calls.both().into_iter().for_each(Tracker::ended);
        }
        no_mallocs || no_calls
    }

    /// Whether a search may change the state.
    #[must_use]
    pub fn due(&self) -> bool {
        match self.state {
            State::Locked(_) => false,
            State::Provisional(lock) => self.held.is_some_and(|held| self.confirms(held, lock.period)),
            State::Searching | State::Proposed(_) | State::Degraded(_) => {
                let streams = [&self.mallocs, &self.calls.signatures, &self.calls.functions];
                self.comparison_due() || streams.into_iter().any(Tracker::due)
            }
        }
    }

    /// Whether the streams must be compared again: their best periods changed, or suffice for a
    /// lock.
    fn comparison_due(&self) -> bool {
        let locking = self.best(self.settings.locking_repeats);
        (locking != (None, None) && self.ops >= self.compare_at)
            || self.best(self.settings.proposing_repeats) != self.compared
    }

    fn best(&self, repeats: usize) -> (Option<usize>, Option<usize>) {
        let [signatures, functions] = [&self.calls.signatures, &self.calls.functions];
        (self.mallocs.period(repeats), signatures.period(repeats).max(functions.period(repeats)))
    }

    /// Searches for iterations. Returns the state if it changed.
    pub fn search(&mut self) -> Option<State> {
        let before = self.state;
        match self.state {
            State::Locked(_) => return None,
            State::Provisional(lock) => {
                if self.held.is_some_and(|held| self.confirms(held, lock.period)) {
                    self.trusted = self.held.filter(|_| lock.period.syncs > 0);
                    self.state = State::Locked(lock);
                }
            }
            State::Searching | State::Proposed(_) | State::Degraded(_) => self.compare(),
        }
        (self.state != before).then_some(self.state)
    }

    fn compare(&mut self) {
        /// Divisor of a period: as much of it passes before equal periods are compared again.
        const PAUSE_DIVISOR: usize = 16;
        let Settings { proposing_repeats, locking_repeats, .. } = self.settings;
        self.mallocs.search();
        self.calls.both().into_iter().for_each(Tracker::search);
        self.calls.choose(proposing_repeats);
        self.compared = self.best(proposing_repeats);
        let (mallocs, calls) = (self.mallocs.period(locking_repeats), self.calls.active().period(locking_repeats));
        let shortest = mallocs.into_iter().chain(calls).min().unwrap_or_default();
        self.compare_at = self.ops + (shortest / PAUSE_DIVISOR) as u64;
        if let Some(tokens) = self.common_period(locking_repeats) {
            self.lock(tokens);
        } else if matches!(self.state, State::Searching | State::Proposed(_))
            && let Some(tokens) = self.common_period(proposing_repeats)
        {
            self.state = State::Proposed(self.period(tokens));
        }
    }

    /// Common period of both streams: the same number of iterations in each.
    fn common_period(&self, repeats: usize) -> Option<Tokens> {
        /// Maximum of one stream's periods in a period of the other, for loops that the two divide
        /// differently.
        const MAX_MULTIPLE: usize = 8;
        let streams = (&self.mallocs, self.calls.active());
        let (mallocs, calls) = (streams.0.period(repeats), streams.1.period(repeats));
        // Iterations that the other stream has no part in.
        if let Some(calls) = calls
            && streams.0.since(streams.1.op_before(calls * repeats)) == 0
        {
            return Some(Tokens { mallocs: 0, calls });
        }
        if let Some(mallocs) = mallocs
            && streams.1.since(streams.0.op_before(mallocs * repeats)) == 0
        {
            let tokens = Tokens { mallocs, calls: 0 };
            return streams.0.balanced(mallocs, repeats).then_some(tokens);
        }
        let both_continue = |Tokens { mallocs, calls }: &Tokens| {
            let since = |one: &Tracker, other: &Tracker| one.since(other.op_before(1));
            !is_silent(since(streams.0, streams.1), *mallocs) && !is_silent(since(streams.1, streams.0), *calls)
        };
        let common = (1..=MAX_MULTIPLE).find_map(|times| {
            let by_mallocs = mallocs.and_then(|mallocs| {
                let mallocs = mallocs * times;
                let calls = matching_period(streams.0, mallocs, streams.1, repeats)?;
                Some(Tokens { mallocs, calls })
            });
            let by_calls = || {
                let calls = calls? * times;
                let mallocs = matching_period(streams.1, calls, streams.0, repeats)?;
                Some(Tokens { mallocs, calls })
            };
            // Memory that is freed late, in batches, varies; a program that reads results has left
            // its layers.
            let ends = |tokens: &Tokens| self.period(*tokens).syncs > 0 || streams.0.balanced(tokens.mallocs, repeats);
            by_mallocs.or_else(by_calls).filter(ends)
        });
        common.filter(both_continue)
    }

    /// Whether predictions of the held period suffice to follow plans.
    fn confirms(&self, held: Tokens, period: Period) -> bool {
        let streams = [(&self.mallocs, held.mallocs), (self.calls.active(), held.calls)];
        let suffices = |(tracker, period): &(&Tracker, usize)| {
            tracker.held_tokens() >= period::confirming(*period, self.settings.locking_repeats)
        };
        let may_be_a_part = self.settings.has_syncs && period.syncs == 0;
        streams.iter().filter(|(_, period)| *period > 0).all(suffices) && (!may_be_a_part || self.repeats_for_long())
    }

    /// Whether the held period has repeated for longer than loops within iterations do.
    fn repeats_for_long(&self) -> bool {
        [&self.mallocs, self.calls.active()].into_iter().any(|tracker| tracker.held_tokens() >= period::LONG_LOOP)
    }

    /// Length of the last iteration.
    fn period(&self, Tokens { mallocs, calls }: Tokens) -> Period {
        let syncs = if calls > 0 { self.calls.active().syncs_in(calls, self.syncs) } else { 0 };
        Period { mallocs, launches: calls.saturating_sub(syncs), syncs }
    }

    fn lock(&mut self, tokens: Tokens) {
        let calls = self.calls.active();
        let (start_op, start_malloc) = if tokens.mallocs > 0 {
            self.mallocs.min_live(tokens.mallocs)
        } else {
            (calls.after_sync(tokens.calls), self.mallocs.pushed())
        };
        let start_launch = calls.before(start_op, self.syncs);
        let period = self.period(tokens);
        let lock = Lock { period, shapes_vary: self.calls.shapes_vary, start_op, start_malloc, start_launch };
        self.mallocs.hold(tokens.mallocs);
        let shapes_vary = self.calls.shapes_vary;
        let [signatures, functions] = self.calls.both();
        signatures.hold(if shapes_vary { 0 } else { tokens.calls });
        functions.hold(if shapes_vary { tokens.calls } else { 0 });
        self.held = Some(tokens);
        let pushed = (self.mallocs.pushed(), self.calls.signatures.pushed());
        self.before_last = pushed;
        // A period that was certain before is certain at once.
        self.state = if self.trusted == self.held { State::Locked(lock) } else { State::Provisional(lock) };
    }

    /// Tokens inspected by all searches together.
    #[must_use]
    pub fn searched(&self) -> u64 {
        self.mallocs.searched() + self.calls.signatures.searched() + self.calls.functions.searched()
    }

    /// Bytes of memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mallocs.bytes() + self.calls.signatures.bytes() + self.calls.functions.bytes()
    }

    /// Adds all operations of a stream, and searches whenever due. Returns each new state with the
    /// number of operations so far: the states of the run while it continued.
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
                OpKind::Sync(kind) => self.sync(kind),
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

/// Whether one stream had this many tokens since the last of the other, for longer than a period of
/// both. The threads of a program shift the streams against each other.
fn is_silent(tokens: usize, period: usize) -> bool {
    tokens > period + period / 8 + 1
}

/// Tokens of another stream in a period of one stream, if both repeat as often.
fn matching_period(one: &Tracker, period: usize, other: &Tracker, repeats: usize) -> Option<usize> {
    if !one.has_period(period, repeats) {
        return None;
    }
    // All repeats but one, from token to token: the threads of a program shift the streams against
    // each other by a few operations.
    let since = |back| other.since(one.op_before(back + 1));
    let within = since(period * (repeats - 1)) - since(0);
    let spread = (within / 64).max(1);
    let matching = |step: usize| {
        let each = step * (repeats - 1);
        let period_of_other = step * ((within + each / 2) / each).max(1);
        let close = within.abs_diff(period_of_other * (repeats - 1)) <= spread;
        (close && other.has_period(period_of_other, repeats)).then_some(period_of_other)
    };
    other.parts_of(within / (repeats - 1)).filter_map(matching).min()
}
