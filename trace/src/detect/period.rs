//! Periods at the end of one stream of tokens.
//!
//! The end has R repeats of the period p if each of its last ·p tokens equals that p before
//! it. Candidates for p come from two sources. Each token adds the distance to the last place with
//! the same tokens before it, in constant time on average, so that an iteration is found at once if
//! it has a place that occurs nowhere else in it. A search inspects all p in one pass over the window, for
//! other iterations.
//!
//! Of the candidates with enough repeats, the best explains the most tokens, and of equals it is
//! the smallest. Loops within an iteration, over layers or weights, repeat too, but over fewer
//! tokens than iterations. The period of a lock is held beside the candidates, and each later token
//! is compared with its prediction.
//!
//! Programs choose the tokens, such as sizes of allocations, and are not trusted. So the table of
//! places has a hash function with a random key. Different places may still be taken for one: a
//! budget that grows by a constant with each token limits what is compared.

use std::{
    cmp::Reverse,
    collections::{HashMap, hash_map::RandomState},
};

use super::z::suffix_repeats;

/// Divisor of the window: the next search is due once this fraction of its tokens is new.
const NEW_TOKENS_DIVISOR: usize = 16;
/// Minimum of new tokens for a search.
const MIN_NEW_TOKENS: usize = 64;
/// Tokens that no loop within an iteration reaches. A shorter loop is within an iteration if its
/// period is below the minimum of iterations.
pub(super) const LONG_LOOP: usize = 4096;
/// Divisor of the bytes allocated in an iteration: live bytes change by less than this fraction
/// over an iteration, and by more over a layer of a forward pass.
const BALANCE_DIVISOR: u64 = 8;
/// Periods for which the period of a lock is the only candidate after a failed prediction, but for
/// those that are as certain and no loops within it: longer, or with a sync.
const GRACE_PERIODS: u64 = 4;
/// Tokens that make a place.
const PLACE_TOKENS: usize = 8;
/// Factor of the number of a place.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
/// Maximum of candidates. One that fails a prediction is dropped, so few are alive at once.
const MAX_CANDIDATES: usize = 8;
/// Tokens before a place that may be compared per token of the stream, on average.
const COMPARED_PER_TOKEN: usize = 3;
/// Repeats of a period beyond those of a lock that confirm it.
const CONFIRMING_REPEATS: usize = 4;
/// Predicted tokens that confirm a lock, however long its period.
const CONFIRMING_TOKENS: usize = 1024;

/// Position of a token in the run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Number of the operation, from the first.
    pub(super) op: u64,
    /// Live bytes before the operation.
    pub(super) live_bytes: u64,
    /// Bytes allocated before the operation, freed or not. May wrap around.
    pub(super) allocated_bytes: u64,
    /// Syncs before the operation.
    pub(super) syncs: u64,
}

/// Tokens, candidate periods and the held period of a stream.
#[derive(Debug)]
pub(super) struct Tracker {
    min_period: usize,
    min_synced_period: usize,
    repeats: usize,
    window: usize,
    /// Last tokens: at least `window`, once as many were pushed.
    tokens: Vec<u64>,
    positions: Vec<Position>,
    pushed: u64,
    unsearched: usize,
    searched: u64,
    candidates: Vec<Candidate>,
    /// Best candidate as the period of an iteration.
    best: Option<Candidate>,
    /// Number of the token after each place (lower half), by the hash of the place (upper half). The
    /// table's own hash has a random key, as a program can choose tokens for any hash of a place.
    places: HashMap<u32, u32, RandomState>,
    /// Tokens that may be compared now.
    comparable: usize,
    /// Period of the lock, or of the last one that is trusted.
    held: Option<Candidate>,
    /// Number of pushed tokens until which the held period is preferred.
    grace_end: u64,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    period: usize,
    /// Number of last tokens that equal those a period before.
    run: usize,
}

impl Candidate {
    /// Tokens at the end that the period describes.
    fn explained(self) -> usize {
        self.period + self.run
    }

    /// The same end with a multiple of the period. A token equal to the one a period before also
    /// equals, by induction, the one a multiple before.
    fn multiple(self, period: usize) -> Option<Self> {
        let run = self.explained().checked_sub(period)?;
        period.is_multiple_of(self.period).then_some(Self { period, run })
    }

    fn has(self, repeats: usize) -> bool {
        self.run >= (repeats - 1) * self.period
    }
}

/// Tokens that confirm a period which locks after this number of repeats.
pub(super) fn confirming(period: usize, repeats: usize) -> usize {
    period * repeats + (CONFIRMING_REPEATS * period).min(CONFIRMING_TOKENS)
}

impl Tracker {
    pub(super) fn new(settings: super::Settings) -> Self {
        Self {
            min_period: settings.min_period.max(1),
            min_synced_period: settings.min_synced_period.clamp(1, settings.min_period.max(1)),
            repeats: settings.proposing_repeats.max(2),
            window: settings.window.max(1),
            tokens: Vec::new(),
            positions: Vec::new(),
            pushed: 0,
            unsearched: 0,
            searched: 0,
            candidates: Vec::new(),
            best: None,
            places: HashMap::default(),
            comparable: 0,
            held: None,
            grace_end: 0,
        }
    }

    /// Adds a token. Returns whether the held period predicted it; true without one.
    pub(super) fn push(&mut self, token: u64, position: Position) -> bool {
        if self.tokens.len() >= 2 * self.window {
            // Half at once, so that each token is moved once.
            self.tokens.drain(..self.window);
            self.positions.drain(..self.window);
            let (pushed, retained) = (self.pushed, self.tokens.len() as u64);
            self.places.retain(|_, number| distance(pushed, *number) < retained);
            self.places.shrink_to_fit();
        }
        let tokens = &self.tokens;
        let repeats = |period| tokens.len().checked_sub(period).and_then(|at| tokens.get(at)) == Some(&token);
        let predicted = self.held.is_none_or(|held| repeats(held.period));
        if let Some(held) = &mut self.held {
            held.run = if predicted { held.run + 1 } else { 0 };
        }
        self.candidates.retain_mut(|candidate| {
            candidate.run += 1;
            repeats(candidate.period)
        });
        self.tokens.push(token);
        self.positions.push(position);
        self.pushed += 1;
        self.unsearched += 1;
        self.comparable = (self.comparable + COMPARED_PER_TOKEN).min(self.window);
        self.add_place();
        self.choose_best();
        predicted
    }

    /// Adds the place before the next token, and the distance to the last equal one as a candidate.
    fn add_place(&mut self) {
        let Some(place) = self.tokens.last_chunk::<PLACE_TOKENS>() else { return };
        let place = place.iter().fold(0_u64, |hash, token| (hash.rotate_left(29) ^ token).wrapping_mul(FACTOR));
        let Some(last) = self.places.insert(upper_half(place), lower_half(self.pushed)) else { return };
        let period = usize::try_from(distance(self.pushed, last)).unwrap_or(usize::MAX);
        if period >= self.tokens.len() || self.candidates.iter().any(|candidate| candidate.period == period) {
            return;
        }
        if self.comparable < PLACE_TOKENS {
            return;
        }
        let (run, compared) = self.run_of(period, self.comparable);
        self.comparable = self.comparable.saturating_sub(compared);
        self.searched += compared as u64;
        // Places with equal numbers may differ.
        if run >= PLACE_TOKENS {
            self.add(Candidate { period, run });
        }
    }

    /// Number of last tokens that equal those a period before, at most `max`; and tokens compared.
    fn run_of(&self, period: usize, max: usize) -> (usize, usize) {
        let earlier = self.tokens.get(..self.tokens.len().saturating_sub(period)).unwrap_or_default();
        let pairs = self.tokens.iter().rev().zip(earlier.iter().rev()).take(max);
        let run = pairs.take_while(|(token, before)| token == before).count();
        (run, run + 1)
    }

    fn add(&mut self, candidate: Candidate) {
        if let Some(known) = self.candidates.iter_mut().find(|known| known.period == candidate.period) {
            known.run = known.run.max(candidate.run);
            return;
        }
        if self.candidates.len() >= MAX_CANDIDATES {
            let shortest = self.candidates.iter().enumerate().min_by_key(|(_, candidate)| candidate.run);
            if let Some((at, _)) = shortest {
                self.candidates.swap_remove(at);
            }
        }
        self.candidates.push(candidate);
    }

    /// Whether enough tokens are new for a search.
    pub(super) fn due(&self) -> bool {
        self.unsearched >= MIN_NEW_TOKENS.max(self.recent().len() / NEW_TOKENS_DIVISOR)
    }

    fn recent(&self) -> &[u64] {
        self.tokens.get(self.tokens.len().saturating_sub(self.window)..).unwrap_or_default()
    }

    /// Searches for the period at the end, if due.
    pub(super) fn search(&mut self) {
        if !self.due() {
            return;
        }
        self.unsearched = 0;
        self.searched += self.recent().len() as u64;
        let lengths = suffix_repeats(self.recent());
        let frequent = |&(period, run): &(usize, usize)| run >= (self.repeats - 1) * period;
        let periods = lengths.into_iter().enumerate().skip(1).filter(frequent);
        // `max_by_key` returns the last maximum, in descending order: the smallest period.
        if let Some((period, run)) = periods.rev().max_by_key(|(period, run)| period + run) {
            self.add(Candidate { period, run });
            self.choose_best();
        }
    }

    /// Whether there is a sync in the last period.
    fn has_sync(&self, period: usize) -> bool {
        let syncs = |back: usize| self.positions.len().checked_sub(back).and_then(|at| self.positions.get(at));
        syncs(1).zip(syncs(1 + period)).is_some_and(|(now, before)| now.syncs > before.syncs)
    }

    /// The candidate as the period of an iteration, if it may be one.
    fn as_iteration(&self, candidate: Candidate) -> Option<Candidate> {
        let explained = candidate.explained();
        // Shorter ones are at most a part of an iteration, unless they go on for long.
        let min = if candidate.period >= self.min_synced_period && self.has_sync(candidate.period) {
            self.min_synced_period
        } else {
            self.min_period
        };
        let (period, min_explained) = if candidate.period >= min {
            (candidate.period, 0)
        } else {
            (min.next_multiple_of(candidate.period), LONG_LOOP)
        };
        (explained >= (self.repeats * period).max(min_explained)).then(|| Candidate { period, run: explained - period })
    }

    fn choose_best(&mut self) {
        let held = self.held.filter(|_| self.is_in_grace());
        let candidates = self.candidates.iter().filter_map(|candidate| self.as_iteration(*candidate));
        let preferred = candidates.filter(|candidate| {
            held.is_none_or(|held| {
                let is_certain = candidate.explained() >= confirming(candidate.period, self.repeats);
                is_certain && (candidate.period > held.period || self.has_sync(candidate.period))
            })
        });
        let held = held.filter(|held| held.has(self.repeats));
        self.best = preferred.chain(held).max_by_key(|candidate| (candidate.explained(), Reverse(candidate.period)));
    }

    /// Best period, if the end has this number of its repeats.
    pub(super) fn period(&self, repeats: usize) -> Option<usize> {
        self.best.filter(|best| best.has(repeats)).map(|best| best.period)
    }

    /// Run of a period at the end, as far as candidates tell; short ones are compared.
    fn run(&self, period: usize) -> Option<Candidate> {
        let known = self.candidates.iter().chain(&self.held);
        let known = known.filter_map(|candidate| candidate.multiple(period)).max_by_key(|candidate| candidate.run);
        let compared = || Candidate { period, run: self.run_of(period, PLACE_TOKENS * PLACE_TOKENS).0 };
        known.or_else(|| (period < PLACE_TOKENS).then(compared))
    }

    /// Whether the end has this number of repeats of a period.
    pub(super) fn has_period(&self, period: usize, repeats: usize) -> bool {
        self.run(period).is_some_and(|candidate| candidate.has(repeats))
    }

    /// Periods of which this stream may have a whole number in `tokens`: its best one, or without
    /// one those that are too short alone.
    pub(super) fn parts_of(&self, tokens: usize) -> impl Iterator<Item = usize> {
        let best = self.period(self.repeats);
        let candidates = self.candidates.iter().chain(&self.held).map(|candidate| candidate.period);
        let short = (1..PLACE_TOKENS).contains(&tokens).then_some(tokens);
        best.into_iter().chain(candidates.chain(short).filter(move |_| best.is_none()))
    }

    /// Holds a period, with which later tokens are compared; none for 0.
    pub(super) fn hold(&mut self, period: usize) {
        self.held = if period > 0 { self.run(period) } else { None };
        self.grace_end = 0;
        self.choose_best();
    }

    /// Tokens that the held period describes.
    pub(super) fn held_tokens(&self) -> usize {
        self.held.map_or(0, Candidate::explained)
    }

    /// Prefers the held period for a while, after a failed prediction of this stream or the other.
    pub(super) fn prefer_held(&mut self) {
        self.grace_end = self.pushed + GRACE_PERIODS * self.held.map_or(0, |held| held.period as u64);
        self.choose_best();
    }

    /// Whether the held period is preferred.
    pub(super) fn is_in_grace(&self) -> bool {
        self.pushed < self.grace_end
    }

    /// Handles the end of the stream's tokens, while the other stream continues.
    pub(super) fn ended(&mut self) {
        self.candidates.clear();
        self.hold(0);
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

    /// Operation of the token `back` tokens before the next; the earliest in memory if older.
    pub(super) fn op_before(&self, back: usize) -> u64 {
        let at = self.positions.len().saturating_sub(back);
        self.positions.get(at).map_or(u64::MAX, |position| position.op)
    }

    /// Number of tokens in memory from an operation on.
    pub(super) fn since(&self, op: u64) -> usize {
        self.positions.len() - self.positions.partition_point(|position| position.op < op)
    }

    /// Syncs in the last period.
    pub(super) fn syncs_in(&self, period: usize, syncs: u64) -> usize {
        let first = self.positions.len().checked_sub(period).and_then(|at| self.positions.get(at));
        first.map_or(0, |first| usize::try_from(syncs - first.syncs).unwrap_or(usize::MAX))
    }

    /// Operation and number of the token with the fewest live bytes among the last ones, which are a
    /// period; of equals, the one before the most others.
    pub(super) fn min_live(&self, period: usize) -> (u64, u64) {
        let last = self.last_positions(period);
        let min = last.iter().map(|position| position.live_bytes).min();
        let begins = last.iter().enumerate().filter(|(_, position)| Some(position.live_bytes) == min);
        let begin = longest_stretch(begins.map(|(at, _)| at), last.len());
        let number = self.pushed - last.len() as u64 + begin as u64;
        last.get(begin).map_or((0, 0), |position| (position.op, number))
    }

    /// Operation of the token after a sync among the last tokens, which are a period: of several,
    /// the one before the most tokens without a sync; the first token without syncs.
    pub(super) fn after_sync(&self, period: usize) -> u64 {
        let last = self.last_positions(period);
        let before = self.positions.len().checked_sub(period + 1).and_then(|at| self.positions.get(at));
        let syncs = before.into_iter().chain(last).map(|position| position.syncs);
        let begins = syncs.zip(last).enumerate().filter(|(_, (before, position))| position.syncs > *before);
        let begin = longest_stretch(begins.map(|(at, _)| at), last.len());
        last.get(begin).map_or(0, |position| position.op)
    }

    fn last_positions(&self, count: usize) -> &[Position] {
        self.positions.get(self.positions.len().saturating_sub(count)..).unwrap_or_default()
    }

    /// Number of tokens other than syncs before an operation, of all that were pushed.
    pub(super) fn before(&self, op: u64, syncs: u64) -> u64 {
        let since = self.since(op);
        let syncs = self.positions.get(self.positions.len() - since).map_or(syncs, |position| position.syncs);
        self.pushed - since as u64 - syncs
    }

    /// Number of pushed tokens.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Tokens inspected by all searches and comparisons together.
    pub(super) fn searched(&self) -> u64 {
        self.searched
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        /// Entry of the table, and its tag.
        const PLACE_BYTES: usize = 2 * size_of::<u32>() + 1;
        let places = self.places.capacity() / 7 * 8 * PLACE_BYTES;
        self.tokens.capacity() * size_of::<u64>() + self.positions.capacity() * size_of::<Position>() + places
    }
}

const fn upper_half(number: u64) -> u32 {
    (number >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the upper half is left out")]
const fn lower_half(number: u64) -> u32 {
    number as u32
}

/// Number of tokens since the one whose number has this lower half, if that is less than 2^32.
fn distance(pushed: u64, number: u32) -> u64 {
    u64::from(lower_half(pushed).wrapping_sub(number))
}

/// Which of these beginnings, in ascending order on a circle, is before the longest stretch; the
/// first of equals.
fn longest_stretch(begins: impl Iterator<Item = usize>, circle: usize) -> usize {
    let begins: Vec<usize> = begins.collect();
    let ends = begins.iter().skip(1).copied().chain(begins.first().map(|first| first + circle));
    let longest = begins.iter().zip(ends).max_by_key(|(begin, end)| (end - **begin, Reverse(**begin)));
    longest.map_or(0, |(begin, _)| *begin)
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::detect::Settings;

    /// Number whose product with the factor of places is 1.
    fn inverse() -> u64 {
        let inverse =
            (0..6).fold(1_u64, |inverse, _| inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse))));
        assert_eq!(inverse.wrapping_mul(FACTOR), 1);
        inverse
    }

    /// Tracker after tokens whose places have these numbers, each found by a search when one is due.
    fn tracker_of(places: impl Iterator<Item = u64>) -> Tracker {
        let mut tracker = Tracker::new(Settings::default());
        let position = Position { op: 0, live_bytes: 0, allocated_bytes: 0, syncs: 0 };
        for place in places {
            let last = tracker.tokens.iter().rev().take(PLACE_TOKENS - 1).rev();
            let hash = last.fold(0_u64, |hash, token| (hash.rotate_left(29) ^ token).wrapping_mul(FACTOR));
            tracker.push(hash.rotate_left(29) ^ place.wrapping_mul(inverse()), position);
            tracker.search();
        }
        tracker
    }

    #[test]
    fn tokens_that_a_program_chooses_do_not_fill_one_part_of_the_table() {
        const COUNT: u64 = 20_000;
        const BUCKETS: u64 = 1 << 15;
        // The bits that a table takes its buckets and tags from are equal.
        let tracker = tracker_of((0..COUNT).map(|place| place << 32 | 0x3039));
        assert_eq!(tracker.places.len() as u64, COUNT - PLACE_TOKENS as u64 + 1);
        let mut buckets: HashMap<u64, u32> = HashMap::new();
        for place in tracker.places.keys() {
            *buckets.entry(tracker.places.hasher().hash_one(place) % BUCKETS).or_default() += 1;
        }
        let fullest = buckets.values().max().copied().unwrap_or_default();
        assert!(fullest < 20, "{fullest} places in one of {BUCKETS} buckets");
    }

    #[test]
    fn places_that_are_taken_for_one_are_compared_within_the_budget() {
        const COUNT: u64 = 20_000;
        let tracker = tracker_of((0..COUNT).map(|_| 12345));
        assert_eq!(tracker.places.len(), 1);
        assert!(tracker.searched() < 20 * COUNT, "{} tokens inspected", tracker.searched());
    }
}
