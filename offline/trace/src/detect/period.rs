//! Period at the end of one stream of tokens.
//!
//! The end has R repeats of the period p if each of its last ·p tokens equals that p before
//! it. A search inspects all p in one pass over the window. Of the periods with enough repeats it
//! selects the one that explains the most tokens, and of equals the smallest. Loops within an
//! iteration, over layers or weights, repeat too, but over fewer tokens than iterations. Each later
//! token is compared with the prediction of the period.

use super::z::suffix_repeats;

/// Divisor of the window: the next search is due once this fraction of its tokens is new.
const NEW_TOKENS_DIVISOR: usize = 16;
/// Minimum of new tokens for a search.
const MIN_NEW_TOKENS: usize = 64;
/// Tokens that no loop within an iteration reaches. A shorter loop is within an iteration if its
/// period is below the minimum of iterations. A period whose predictions failed sooner may be such
/// a loop, whatever its length.
const LONG_LOOP: usize = 4096;
/// Divisor of the bytes allocated in an iteration: live bytes change by less than this fraction
/// over an iteration, and by more over a layer of a forward pass.
const BALANCE_DIVISOR: u64 = 8;
/// Periods for which a trusted candidate stays after a failed prediction, before another one
/// may replace it.
const GRACE_PERIODS: u64 = 4;

/// Position of a token in the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Number of the operation, from the first.
    pub(super) op: u64,
    /// Live bytes before the operation.
    pub(super) live_bytes: u64,
    /// Bytes allocated before the operation, freed or not. May wrap around.
    pub(super) allocated_bytes: u64,
}

/// Tokens and candidate period of a stream.
#[derive(Debug)]
pub(super) struct Tracker {
    min_period: usize,
    repeats: usize,
    window: usize,
    /// Last tokens: at least `window`, once as many were pushed.
    tokens: Vec<u64>,
    positions: Vec<Position>,
    pushed: u64,
    unsearched: usize,
    searched: u64,
    candidate: Option<Candidate>,
    /// Number of pushed tokens until which the candidate stays.
    grace_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    period: usize,
    /// Number of last tokens that equal those a period before.
    run: usize,
    /// Whether a failed prediction ended a long run: the candidate stays until a search finds a
    /// better one.
    trusted: bool,
}

impl Tracker {
    pub(super) fn new(min_period: usize, repeats: usize, window: usize) -> Self {
        Self {
            min_period: min_period.max(1),
            repeats: repeats.max(2),
            window: window.max(1),
            tokens: Vec::new(),
            positions: Vec::new(),
            pushed: 0,
            unsearched: 0,
            searched: 0,
            candidate: None,
            grace_end: 0,
        }
    }

    /// Adds a token. Returns whether the period predicted it; true without a candidate.
    pub(super) fn push(&mut self, token: u64, position: Position) -> bool {
        if self.tokens.len() >= 2 * self.window {
            // Half at once, so that each token is moved once.
            self.tokens.drain(..self.window);
            self.positions.drain(..self.window);
        }
        let predicted = self.candidate.is_none_or(|candidate| {
            let before = self.tokens.len().checked_sub(candidate.period).and_then(|at| self.tokens.get(at));
            before == Some(&token)
        });
        match &mut self.candidate {
            Some(candidate) if predicted => candidate.run += 1,
            Some(candidate) if candidate.trusted || candidate.run >= LONG_LOOP => {
                candidate.run = 0;
                candidate.trusted = true;
            }
            _ => self.candidate = None,
        }
        self.tokens.push(token);
        self.positions.push(position);
        self.pushed += 1;
        self.unsearched += 1;
        predicted
    }

    /// Whether enough tokens are new for a search.
    pub(super) fn due(&self) -> bool {
        self.unsearched >= MIN_NEW_TOKENS.max(self.recent().len() / NEW_TOKENS_DIVISOR)
    }

    fn recent(&self) -> &[u64] {
        self.tokens.get(self.tokens.len().saturating_sub(self.window)..).unwrap_or_default()
    }

    /// Handles a failed prediction while locked: a trusted candidate gets its grace periods.
    pub(super) fn mispredicted(&mut self) {
        let trusted = self.candidate.filter(|candidate| candidate.trusted);
        self.grace_end = self.pushed + GRACE_PERIODS * trusted.map_or(0, |candidate| candidate.period as u64);
    }

    /// Searches for the period at the end, if due.
    pub(super) fn search(&mut self) {
        if !self.due() || self.pushed < self.grace_end {
            return;
        }
        self.unsearched = 0;
        self.searched += self.recent().len() as u64;
        let lengths = suffix_repeats(self.recent());
        let frequent = |&(period, run): &(usize, usize)| run >= (self.repeats - 1) * period;
        let periods = lengths.into_iter().enumerate().skip(1).filter(frequent);
        // `max_by_key` returns the last maximum, in descending order: the smallest period.
        let Some((shortest, run)) = periods.rev().max_by_key(|(period, run)| period + run) else { return };
        let explained = shortest + run;
        let (period, min_explained) = if shortest >= self.min_period {
            (shortest, 0)
        } else {
            (self.min_period.next_multiple_of(shortest), LONG_LOOP)
        };
        if explained >= (self.repeats * period).max(min_explained) {
            let trusted = self.candidate.is_some_and(|candidate| candidate.trusted && candidate.period == period);
            self.candidate = Some(Candidate { period, run: explained - period, trusted });
        }
    }

    /// Whether live bytes are about those of one period ago, and of each period before, up to the
    /// repeats.
    pub(super) fn balanced(&self, period: usize, repeats: usize) -> bool {
        let before = |back| self.positions.len().checked_sub(back + 1).and_then(|at| self.positions.get(at));
        let pairs = (1..repeats).map(|times| (before(0), before(times * period)));
        let mut pairs = pairs.filter_map(|(now, then)| now.zip(then));
        pairs.all(|(now, then)| {
            let allocated = now.allocated_bytes.wrapping_sub(then.allocated_bytes);
            now.live_bytes.abs_diff(then.live_bytes) <= allocated / BALANCE_DIVISOR
        })
    }

    /// Period, if the end has this number of repeats.
    pub(super) fn period(&self, repeats: usize) -> Option<usize> {
        let Candidate { period, run, .. } = self.candidate?;
        (run >= (repeats - 1) * period).then_some(period)
    }

    /// Whether the end has this number of repeats of a period, which must be a multiple of the
    /// candidate.
    pub(super) fn has_period(&self, period: usize, repeats: usize) -> bool {
        // A token equal to the one a period before also equals, by induction, the one a multiple
        // before.
        self.candidate.is_some_and(|candidate| {
            period.is_multiple_of(candidate.period) && candidate.run + candidate.period >= period * repeats
        })
    }

    /// Operation of the token `back` tokens before the next; the earliest in memory if older.
    pub(super) fn op_before(&self, back: usize) -> u64 {
        let at = self.positions.len().saturating_sub(back);
        self.positions.get(at).map_or(u64::MAX, |position| position.op)
    }

    /// Number of tokens in memory from an operation on.
    pub(super) fn since(&self, op: u64) -> usize {
        self.positions.len() - self.positions.partition_point(|position| position.op < op)
    }

    /// Operation and number of the token with the fewest live bytes among the last ones; the first
    /// of equals.
    pub(super) fn min_live(&self, last: usize) -> (u64, u64) {
        let from = self.positions.len().saturating_sub(last);
        let positions = self.positions.iter().enumerate().skip(from);
        let min_live = positions.min_by_key(|(_, position)| position.live_bytes);
        let dropped = self.pushed - self.positions.len() as u64;
        min_live.map_or((0, 0), |(at, position)| (position.op, dropped + at as u64))
    }

    /// Number of pushed tokens.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Tokens inspected by all searches together.
    pub(super) fn searched(&self) -> u64 {
        self.searched
    }
}
