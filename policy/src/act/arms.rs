//! Trial of a plan by blocks of iterations, with it (B) and without it (A).
//!
//! Counts are read at intervals, and not at the begins of iterations: a block is judged by the counts
//! between the first readings in two iterations, over the iterations between them. Blocks last so
//! long that the interval is a small part of them, and their first part does not count: it finds the
//! memory as the other arm has left it.
//!
//! Harm is that a block copies more bytes, whatever a plan promises. A benefit is that less of what it
//! promises is there. A confirmed plan also harms by a block with more of that.
//!
//! A plan is followed from the next iteration on. It is published in the last iteration before a
//! block with it, and withdrawn at the begin of one without it.
//!
//! How many iterations a block has is estimated from those of the last block, at first from the one
//! that the plan was made of. A block that lasts twice as long as it should ends with the next
//! iteration, and one that is over before it was read is measured again.

use std::collections::VecDeque;

use model::{ArmFigures, IterationBegin, policy::Promise};

use super::{
    limits::{NOISE_MAX, NOISE_MIN},
    permutation::p_value,
};

/// Order of the blocks. Neither arm is earlier on average, so that a trend favours none.
const ORDER: [Arm; 8] =
    [Arm::Without, Arm::With, Arm::With, Arm::Without, Arm::With, Arm::Without, Arm::Without, Arm::With];
/// Iterations of a block...
const BLOCK_ITERATIONS: u64 = 4;
/// ...or as many as last so long: 40 default intervals, of which a reading is late by one or two.
const BLOCK_NS: u64 = 4_000_000_000;
/// Part of a block that does not count: 1 / this.
const UNCOUNTED_PART: u64 = 4;
/// Times that a block is measured again before the trial is given up.
const REPEATS_MAX: u32 = 3;
/// Blocks in a row in which a confirmed plan harms before it is rolled back: other processes may have
/// been the cause of one.
const BAD_BLOCKS_MAX: u32 = 2;
/// Share of time by which iterations may become longer.
const SLOWER_MAX: f64 = 0.03;
/// Level of the permutation test.
const LEVEL: f64 = 0.05;
/// Samples of which medians are made, of each arm: the last ones.
const SAMPLES_MAX: usize = 64;

/// Arm of the trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    Without,
    With,
}

/// Cumulative counts at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The last iteration that had begun.
    pub(crate) iteration: IterationBegin,
    /// Bytes over the link for the process, in both directions.
    pub(crate) link_bytes: u64,
    /// GPU faults of the process.
    pub(crate) faults: u64,
}

/// An iteration, on average of some.
#[derive(Clone, Copy, Debug)]
struct Sample {
    link_bytes: f64,
    faults: f64,
    duration_ns: f64,
}

impl Reading {
    /// Average of the iterations until a later reading; `None` if there are none.
    fn until(&self, later: &Self) -> Option<Sample> {
        let iterations = later.iteration.number.checked_sub(self.iteration.number).filter(|count| *count > 0)? as f64;
        let average = |later: u64, earlier: u64| later.saturating_sub(earlier) as f64 / iterations;
        Some(Sample {
            link_bytes: average(later.link_bytes, self.link_bytes),
            faults: average(later.faults, self.faults),
            duration_ns: average(later.iteration.at_ns, self.iteration.at_ns),
        })
    }

    /// Whether counts were reset before a later reading.
    const fn is_reset_by(&self, later: &Self) -> bool {
        self.iteration.number > later.iteration.number
            || self.link_bytes > later.link_bytes
            || self.faults > later.faults
    }
}

/// What was measured of an arm.
#[derive(Clone, Debug, Default)]
struct Measured {
    /// A sample for each block.
    blocks: Vec<Sample>,
    /// Samples of single iterations, as far as readings tell them apart.
    samples: VecDeque<Sample>,
    iterations: u64,
}

impl Measured {
    fn figures(&self) -> ArmFigures {
        let of = |figure: fn(&Sample) -> f64| median(self.samples.iter().map(figure).collect());
        ArmFigures {
            iterations: self.iterations,
            link_bytes: of(LINK_BYTES.of),
            faults: of(FAULTS.of),
            duration_ns: of(duration_ns),
        }
    }

    fn mean(&self, of: fn(&Sample) -> f64) -> Option<f64> {
        let count = self.blocks.len();
        (count > 0).then(|| self.blocks.iter().map(of).sum::<f64>() / count as f64)
    }

    fn values(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        self.blocks.iter().map(of).collect()
    }
}

/// Figure of iterations that plans change.
#[derive(Clone, Copy, Debug)]
struct Figure {
    of: fn(&Sample) -> f64,
    /// Iterations "copied", or "had", so much of it.
    verb: &'static str,
    amount: fn(f64) -> String,
}

const LINK_BYTES: Figure = Figure { of: |sample| sample.link_bytes, verb: "copied", amount: mib };
const FAULTS: Figure = Figure { of: |sample| sample.faults, verb: "had", amount: gpu_faults };

const DURATION: Figure = Figure { of: duration_ns, verb: "took", amount: milliseconds };

const fn duration_ns(sample: &Sample) -> f64 {
    sample.duration_ns
}

/// What a plan lowers in an iteration.
#[derive(Clone, Copy, Debug)]
struct Benefit {
    figure: Figure,
    /// Least share that it saves.
    saved_min: f64,
}

impl Benefit {
    const fn of(promise: Promise) -> Self {
        match promise {
            Promise::LinkBytes => Self { figure: LINK_BYTES, saved_min: 0.03 },
            Promise::Faults => Self { figure: FAULTS, saved_min: 0.10 },
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts, which are not negative")]
fn median(mut values: Vec<f64>) -> Option<u64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(middle.checked_sub(1)?)? } else { upper };
    Some(f64::midpoint(lower, upper) as u64)
}

/// Arm of a block: behind the order, a plan that was confirmed stays.
fn arm_of(block: usize) -> Arm {
    ORDER.get(block).copied().unwrap_or(Arm::With)
}

/// Result of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Nothing new.
    Open,
    /// A block was measured.
    Measured,
    /// The plan has shown a benefit.
    Confirmed,
    /// It harms, or has shown no benefit: the evidence.
    Fails(String),
    /// Its iterations change too much to be measured.
    Unmeasurable,
}

/// Trial of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    promise: Promise,
    /// Iterations of a block.
    length: u64,
    /// Place of the block in the order, or behind it.
    block: usize,
    /// Iteration at which the block begins; `None` before the first reading.
    begin: Option<u64>,
    /// First reading in the block.
    first: Option<Reading>,
    /// First reading that counts in the block.
    from: Option<Reading>,
    last: Option<Reading>,
    /// First reading in the last iteration.
    step: Option<Reading>,
    /// Iterations between that and the one before.
    latest: Option<Sample>,
    without: Measured,
    with: Measured,
    p_value: Option<f64>,
    /// Times that the block was measured again.
    repeats: u32,
    /// Blocks in a row, up to the last one, in which the plan harmed.
    bad_blocks: u32,
    /// Whether launches wait for moves of the plan to be handed over.
    launches_wait: bool,
}

/// Iterations of a block, of this duration each.
fn length_of(iteration_ns: u64) -> u64 {
    BLOCK_NS.div_ceil(iteration_ns.max(1)).next_multiple_of(BLOCK_ITERATIONS).max(BLOCK_ITERATIONS)
}

impl Trial {
    /// Trial of a plan with this promise, for iterations of this duration.
    pub(crate) fn new(promise: Promise, iteration_ns: u64) -> Self {
        Self {
            promise,
            length: length_of(iteration_ns),
            block: 0,
            begin: None,
            first: None,
            from: None,
            last: None,
            step: None,
            latest: None,
            without: Measured::default(),
            with: Measured::default(),
            p_value: None,
            repeats: 0,
            bad_blocks: 0,
            launches_wait: false,
        }
    }

    /// The same of a plan whose launches wait for moves to be handed over: they may wait longer at any time.
    pub(crate) fn of_waiting_launches(self) -> Self {
        Self { launches_wait: true, ..self }
    }

    /// Whether the plan is to be in force now: in the iterations of a block with it, and in the one
    /// before.
    pub(crate) fn wants_plan(&self) -> bool {
        let is_with = |block: usize| arm_of(block) == Arm::With;
        let (Some(begin), Some(last)) = (self.begin, self.last) else { return false };
        is_with(self.block)
            || (last.iteration.number + 1 >= begin.saturating_add(self.length) && is_with(self.block + 1))
    }

    /// Figures without the plan, and with it.
    pub(crate) fn figures(&self) -> (ArmFigures, ArmFigures) {
        (self.without.figures(), self.with.figures())
    }

    /// Blocks that count.
    pub(crate) fn blocks(&self) -> u64 {
        (self.without.blocks.len() + self.with.blocks.len()) as u64
    }

    /// Blocks that have been measured, also those that do not count any more.
    pub(crate) const fn measured_blocks(&self) -> u64 {
        self.block as u64
    }

    /// Result of the permutation test.
    pub(crate) const fn p_value(&self) -> Option<f64> {
        self.p_value
    }

    /// Takes a reading. To be called at each interval.
    pub(crate) fn read(&mut self, reading: Reading) -> Look {
        let number = reading.iteration.number;
        let begin = *self.begin.get_or_insert(number + 1);
        if self.last.is_some_and(|last| last.is_reset_by(&reading)) {
            return self.repeat(reading);
        }
        self.sample(&reading);
        self.last = Some(reading);
        if number >= begin && self.first.is_none() {
            self.first = Some(reading);
        }
        let end = begin.saturating_add(self.length);
        let is_long = self.has_lasted(&reading, BLOCK_ITERATIONS, 2 * BLOCK_NS);
        if number < end && !is_long {
            let counts = number >= begin.saturating_add(self.uncounted()) || self.has_lasted(&reading, 1, BLOCK_NS / 2);
            if counts && self.from.is_none() {
                self.from = Some(reading);
            }
            return self.exceeds(&reading).map_or(Look::Open, Look::Fails);
        }
        // A reading that comes too late has iterations of the next arm in it.
        let is_late = number.checked_sub(end).is_some_and(|beyond| beyond >= self.uncounted());
        let Some(block) = self.from.filter(|_| !is_late).and_then(|from| from.until(&reading)) else {
            return self.repeat(reading);
        };
        self.begin_block(if number < end { number + 1 } else { end }, &reading);
        self.repeats = 0;
        let arm = arm_of(self.block);
        self.block = self.block.saturating_add(1);
        let measured = self.measured(arm);
        measured.blocks.push(block);
        // Behind the order, all blocks have the plan, and one is judged at a time.
        let too_many = measured.blocks.len().saturating_sub(ORDER.len());
        measured.blocks.drain(..too_many);
        let harm = if arm == Arm::With { self.harm(&block) } else { None };
        self.bad_blocks = if harm.is_some() { self.bad_blocks + 1 } else { 0 };
        let is_over = self.block <= ORDER.len() || self.bad_blocks >= BAD_BLOCKS_MAX;
        if let Some(why) = harm.filter(|_| is_over) {
            return Look::Fails(why);
        }
        if self.block == ORDER.len() { self.judge() } else { Look::Measured }
    }

    const fn measured(&mut self, arm: Arm) -> &mut Measured {
        match arm {
            Arm::Without => &mut self.without,
            Arm::With => &mut self.with,
        }
    }

    const fn uncounted(&self) -> u64 {
        self.length / UNCOUNTED_PART
    }

    /// Whether the block has lasted for so many iterations and so long.
    fn has_lasted(&self, reading: &Reading, iterations: u64, duration_ns: u64) -> bool {
        self.first.is_some_and(|first| {
            reading.iteration.number.saturating_sub(first.iteration.number) >= iterations
                && reading.iteration.at_ns.saturating_sub(first.iteration.at_ns) >= duration_ns
        })
    }

    /// Begins a block at an iteration, with as many as the last block had in the time of one.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration, which is not negative")]
    fn begin_block(&mut self, begin: u64, reading: &Reading) {
        // A block that is over with its first reading says nothing.
        if let Some(average) = self.first.and_then(|first| first.until(reading)).or(self.latest) {
            self.length = length_of(average.duration_ns as u64);
        }
        (self.begin, self.first, self.from) = (Some(begin), None, None);
    }

    /// Measures the block once more, from the next iteration on.
    fn repeat(&mut self, reading: Reading) -> Look {
        self.begin_block(reading.iteration.number + 1, &reading);
        (self.last, self.step) = (Some(reading), Some(reading));
        self.repeats += 1;
        if self.repeats > REPEATS_MAX { Look::Unmeasurable } else { Look::Open }
    }

    fn sample(&mut self, reading: &Reading) {
        let is_new = self.step.is_none_or(|step| step.iteration.number != reading.iteration.number);
        let Some(step) = (if is_new { self.step.replace(*reading) } else { None }) else { return };
        let Some(sample) = step.until(reading) else { return };
        self.latest = Some(sample);
        if self.from.is_none() {
            return;
        }
        let iterations = reading.iteration.number - step.iteration.number;
        let arm = arm_of(self.block);
        let measured = self.measured(arm);
        measured.iterations = measured.iterations.saturating_add(iterations);
        measured.samples.push_back(sample);
        if measured.samples.len() > SAMPLES_MAX {
            measured.samples.pop_front();
        }
    }

    /// Harm that is certain before the block has ended: it has more bytes than the whole of it may.
    fn exceeds(&self, reading: &Reading) -> Option<String> {
        let is_judged = self.block < ORDER.len() && arm_of(self.block) == Arm::With;
        let from = self.from.filter(|_| is_judged)?;
        let counted = self.length.saturating_sub(self.uncounted()) as f64;
        let copied = reading.link_bytes.saturating_sub(from.link_bytes) as f64;
        self.excess(LINK_BYTES, copied / counted)
    }

    /// Reason why a block with the plan is harm: more bytes, and behind the order more of what the plan
    /// promised to lower, or more time if launches wait.
    fn harm(&self, block: &Sample) -> Option<String> {
        let is_confirmed = self.block > ORDER.len();
        let promised = is_confirmed.then(|| Benefit::of(self.promise).figure);
        let duration = (is_confirmed && self.launches_wait).then_some(DURATION);
        [Some(LINK_BYTES), promised, duration]
            .into_iter()
            .flatten()
            .find_map(|figure| self.excess(figure, (figure.of)(block)))
    }

    /// So much of a figure in an iteration with the plan, if that is more than without it.
    fn excess(&self, Figure { of, verb, amount }: Figure, with: f64) -> Option<String> {
        let without = self.without.mean(of)?;
        (with > without * (1.0 + self.margin(of))).then(|| {
            format!(
                "a block of iterations with the plan {verb} {} each, and those without it {}",
                amount(with),
                amount(without)
            )
        })
    }

    /// Relative difference between blocks without the plan, or between iterations while there is one
    /// block alone: what is no more than that is no harm.
    fn margin(&self, of: fn(&Sample) -> f64) -> f64 {
        let Measured { blocks, samples, .. } = &self.without;
        let values: Vec<f64> = match blocks.len() {
            0 | 1 => samples.iter().map(of).collect(),
            _ => blocks.iter().map(of).collect(),
        };
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(most, f64::min);
        let spread = if most > 0.0 { (most - least) / (most + least) } else { 0.0 };
        spread.clamp(NOISE_MIN, NOISE_MAX)
    }

    fn judge(&mut self) -> Look {
        let Benefit { figure: Figure { of, verb, amount }, saved_min } = Benefit::of(self.promise);
        let (Some(without), Some(with)) = (self.without.mean(of), self.with.mean(of)) else {
            return Look::Measured;
        };
        let p = p_value(&self.without.values(of), &self.with.values(of));
        self.p_value = Some(p);
        let saved = if without > 0.0 { 1.0 - with / without } else { 0.0 };
        if saved < saved_min || p >= LEVEL {
            return Look::Fails(format!(
                "iterations with the plan {verb} {}, and those without it {}: p = {p:.3}",
                amount(with),
                amount(without)
            ));
        }
        if let (Some(before), Some(after)) = (self.without.mean(duration_ns), self.with.mean(duration_ns)) {
            let is_slower = p_value(&self.with.values(duration_ns), &self.without.values(duration_ns)) < LEVEL;
            if is_slower && after > before * (1.0 + SLOWER_MAX) {
                let [after, before] = [after, before].map(milliseconds);
                return Look::Fails(format!("iterations with the plan took {after}, and those without it {before}"));
            }
        }
        Look::Confirmed
    }
}

/// A duration in words.
fn milliseconds(ns: f64) -> String {
    format!("{:.1} ms", ns / 1e6)
}

/// Faults in words.
fn gpu_faults(faults: f64) -> String {
    format!("{faults:.0} GPU faults")
}

/// Bytes in words.
pub(crate) fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1_048_576.0)
}

#[cfg(test)]
mod tests;
