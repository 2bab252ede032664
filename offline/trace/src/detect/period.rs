//! The period at the end of one stream of tokens.
//!
//! The end has the period p, R times, if each of its last ·p tokens equals that p before it. All p are looked at in one pass over the tokens that
//! are kept. Of those that came often enough the one is taken that explains the most tokens, and of equals the smallest: within an iteration there are
//! loops too, over layers or weights, but they go back less far than iterations do. From then on each token is compared with the one that it foretells.

use super::z::suffix_repeats;

/// A search looks at all that is kept; the next is due when so large a part of it is new.
const NEW_PART: usize = 16;
/// And not before so many tokens.
const LEAST_NEW: usize = 64;
/// No loop within an iteration goes on for so many tokens. A shorter one is within an iteration if it has fewer tokens than an iteration may have; and
/// what was relied on and broke sooner may have been, whatever it has.
const LONG_LOOP: usize = 4096;
/// Over an iteration, what is allocated changes by less than this part of what is allocated in it. Over a layer of a forward pass it grows by more.
const BALANCED_PART: u64 = 8;
/// A period that was relied on for long and broke has so many periods to come back before another takes its place.
const PATIENCE: u64 = 4;

/// When a token came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The operation, counted from the first.
    pub(super) op: u64,
    /// What is allocated before it ...
    pub(super) live_bytes: u64,
    /// ... and everything that was allocated until then, freed or not. May wrap around.
    pub(super) allocated_bytes: u64,
}

/// What is known of a stream.
#[derive(Debug)]
pub(super) struct Tracker {
    min_period: usize,
    repeats: usize,
    window: usize,
    /// The last tokens, `window` at least once there are so many.
    tokens: Vec<u64>,
    places: Vec<Place>,
    pushed: u64,
    unsearched: usize,
    searched: u64,
    candidate: Option<Candidate>,
    /// Until so many tokens were pushed, the candidate stays.
    kept_until: u64,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    period: usize,
    /// How many of the last tokens equal those a period before.
    run: usize,
    /// It was relied on for long: it may come back without a search that finds nothing better.
    trusted: bool,
}

impl Tracker {
    pub(super) fn new(min_period: usize, repeats: usize, window: usize) -> Self {
        Self {
            min_period: min_period.max(1),
            repeats: repeats.max(2),
            window: window.max(1),
            tokens: Vec::new(),
            places: Vec::new(),
            pushed: 0,
            unsearched: 0,
            searched: 0,
            candidate: None,
            kept_until: 0,
        }
    }

    /// Adds a token. Whether the period foretold it; true while there is none.
    pub(super) fn push(&mut self, token: u64, place: Place) -> bool {
        if self.tokens.len() >= 2 * self.window {
            // Half at once: each token is moved once.
            self.tokens.drain(..self.window);
            self.places.drain(..self.window);
        }
        let foretold = self.candidate.is_none_or(|known| {
            let before = self.tokens.len().checked_sub(known.period).and_then(|at| self.tokens.get(at));
            before == Some(&token)
        });
        match &mut self.candidate {
            Some(known) if foretold => known.run += 1,
            Some(known) if known.trusted || known.run >= LONG_LOOP => {
                known.run = 0;
                known.trusted = true;
            }
            _ => self.candidate = None,
        }
        self.tokens.push(token);
        self.places.push(place);
        self.pushed += 1;
        self.unsearched += 1;
        foretold
    }

    /// Whether so much is new that a search is worth it.
    pub(super) fn due(&self) -> bool {
        self.unsearched >= LEAST_NEW.max(self.kept().len() / NEW_PART)
    }

    fn kept(&self) -> &[u64] {
        self.tokens.get(self.tokens.len().saturating_sub(self.window)..).unwrap_or_default()
    }

    /// The period was relied on, and something was not as foretold: it gets time to come back, if it deserves it.
    pub(super) fn broke(&mut self) {
        let trusted = self.candidate.filter(|known| known.trusted);
        self.kept_until = self.pushed + PATIENCE * trusted.map_or(0, |known| known.period as u64);
    }

    /// Takes the period at the end, if a search is due.
    pub(super) fn search(&mut self) {
        if !self.due() || self.pushed < self.kept_until {
            return;
        }
        self.unsearched = 0;
        self.searched += self.kept().len() as u64;
        let lengths = suffix_repeats(self.kept());
        let often = |&(period, run): &(usize, usize)| run >= (self.repeats - 1) * period;
        let periods = lengths.into_iter().enumerate().skip(1).filter(often);
        // The last of the greatest, in descending order: the smallest of those.
        let Some((shortest, run)) = periods.rev().max_by_key(|(period, run)| period + run) else { return };
        let explained = shortest + run;
        let (period, least) = if shortest >= self.min_period {
            (shortest, 0)
        } else {
            (self.min_period.next_multiple_of(shortest), LONG_LOOP)
        };
        if explained >= (self.repeats * period).max(least) {
            let trusted = self.candidate.is_some_and(|known| known.trusted && known.period == period);
            self.candidate = Some(Candidate { period, run: explained - period, trusted });
        }
    }

    /// Whether about as much is allocated as one period and several periods ago.
    pub(super) fn balanced(&self, period: usize, repeats: usize) -> bool {
        let before = |back| self.places.len().checked_sub(back + 1).and_then(|at| self.places.get(at));
        let pairs = (1..repeats).map(|times| (before(0), before(times * period)));
        let mut pairs = pairs.filter_map(|(now, then)| now.zip(then));
        pairs.all(|(now, then)| {
            let allocated = now.allocated_bytes.wrapping_sub(then.allocated_bytes);
            now.live_bytes.abs_diff(then.live_bytes) <= allocated / BALANCED_PART
        })
    }

    /// The period, if the end has come so often.
    pub(super) fn repeating(&self, repeats: usize) -> Option<usize> {
        let Candidate { period, run, .. } = self.candidate?;
        (run >= (repeats - 1) * period).then_some(period)
    }

    /// Whether the end has this period, a multiple of the known one, so often.
    pub(super) fn repeats(&self, period: usize, repeats: usize) -> bool {
        // What equals the token one period before equals, by steps, that a multiple before.
        self.candidate
            .is_some_and(|known| period.is_multiple_of(known.period) && known.run + known.period >= period * repeats)
    }

    /// The operation that was added with the token `back` before the next; the earliest that is kept if that is gone.
    pub(super) fn op_before(&self, back: usize) -> u64 {
        let at = self.places.len().saturating_sub(back);
        self.places.get(at).map_or(u64::MAX, |place| place.op)
    }

    /// Tokens from an operation on, as far as they are kept.
    pub(super) fn since(&self, op: u64) -> usize {
        self.places.len() - self.places.partition_point(|place| place.op < op)
    }

    /// Of the last tokens, the first before which the fewest bytes were allocated: its operation and its number.
    pub(super) fn emptiest(&self, last: usize) -> (u64, u64) {
        let from = self.places.len().saturating_sub(last);
        let places = self.places.iter().enumerate().skip(from);
        let emptiest = places.min_by_key(|(_, place)| place.live_bytes);
        let gone = self.pushed - self.places.len() as u64;
        emptiest.map_or((0, 0), |(at, place)| (place.op, gone + at as u64))
    }

    /// How many tokens there were.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// How many tokens all searches together looked at.
    pub(super) fn searched(&self) -> u64 {
        self.searched
    }
}
