//! Trial of a plan: blocks of iterations without the plan (A) and with it (B).
//!
//! Counts are read at intervals, not when iterations begin. A block is judged by the counts between
//! the first readings in two iterations, divided by the number of iterations between them. Blocks
//! are long compared with the interval. The first part of a block is not counted, because memory is
//! still where the other arm left it.
//!
//! A block that copies more bytes over the link is harm, whatever the plan promises. A benefit is a
//! lower value of the promised figure. For a confirmed plan, a higher value of that figure is harm,
//! too.
//!
//! A published plan takes effect at the next iteration. It is published in the last iteration
//! before a block with the plan, and withdrawn at the start of a block without it.
//!
//! The number of iterations in a block is estimated from the last block, and for the first block
//! from the iteration that the plan was derived from. A block that takes twice its intended time
//! ends with the next iteration. A block that is over before it was read is repeated.

use std::collections::VecDeque;

use model::{ArmFigures, IterationBegin, policy::Promise};

use super::permutation::p_value;
use crate::act::limits::{NOISE_MAX, NOISE_MIN};

/// Order of the blocks. Both arms have the same mean position, so a trend favours neither.
const ORDER: [Arm; 8] =
    [Arm::Without, Arm::With, Arm::With, Arm::Without, Arm::With, Arm::Without, Arm::Without, Arm::With];
/// Minimum iterations per block.
const BLOCK_ITERATIONS: u64 = 4;
/// Minimum duration of a block: 40 default intervals. A reading is late by one or two of them.
const BLOCK_NS: u64 = 4_000_000_000;
/// Uncounted first part of a block: 1 / this.
const UNCOUNTED_PART: u64 = 4;
/// Maximum repetitions of a block before the trial is abandoned.
const REPEATS_MAX: u32 = 3;
/// Consecutive harmful blocks before a confirmed plan is rolled back. Other processes may cause a
/// single one.
const HARMFUL_BLOCKS_MAX: u32 = 2;
/// Maximum relative increase of the iteration time.
const SLOWER_MAX: f64 = 0.03;
/// Significance level of the permutation test.
const LEVEL: f64 = 0.05;
/// Maximum samples per arm for the medians; the oldest are dropped.
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
    /// Last iteration that has begun.
    pub(crate) iteration: IterationBegin,
    /// Bytes over the link for the process, in both directions.
    pub(crate) link_bytes: u64,
    /// GPU faults of the process.
    pub(crate) faults: u64,
}

/// Figures per iteration, averaged over one or more iterations.
#[derive(Clone, Copy, Debug)]
struct Sample {
    link_bytes: f64,
    faults: f64,
    duration_ns: f64,
}

impl Reading {
    /// Mean of the iterations until a later reading; `None` if both are in the same iteration.
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

/// Measurements of one arm.
#[derive(Clone, Debug, Default)]
struct ArmSamples {
    /// One sample per block.
    blocks: Vec<Sample>,
    /// One sample per iteration, or for the iterations between two readings.
    samples: VecDeque<Sample>,
    iterations: u64,
}

impl ArmSamples {
    fn figures(&self) -> ArmFigures {
        let median_of = |value: fn(&Sample) -> f64| median(self.samples.iter().map(value).collect());
        ArmFigures {
            iterations: self.iterations,
            link_bytes: median_of(LINK_BYTES.value),
            faults: median_of(FAULTS.value),
            duration_ns: median_of(duration_ns),
        }
    }

    fn mean(&self, value: fn(&Sample) -> f64) -> Option<f64> {
        let count = self.blocks.len();
        (count > 0).then(|| self.blocks.iter().map(value).sum::<f64>() / count as f64)
    }

    fn values(&self, value: fn(&Sample) -> f64) -> Vec<f64> {
        self.blocks.iter().map(value).collect()
    }
}

/// Figure of an iteration that a plan may change.
#[derive(Clone, Copy, Debug)]
struct Figure {
    value: fn(&Sample) -> f64,
    /// Verb of the messages, as in "iterations copied 5 MiB": "copied", "had" or "took".
    verb: &'static str,
    /// Value with its unit.
    format: fn(f64) -> String,
}

const LINK_BYTES: Figure = Figure { value: |sample| sample.link_bytes, verb: "copied", format: mib };
const FAULTS: Figure = Figure { value: |sample| sample.faults, verb: "had", format: gpu_faults };
const DURATION: Figure = Figure { value: duration_ns, verb: "took", format: milliseconds };

const fn duration_ns(sample: &Sample) -> f64 {
    sample.duration_ns
}

/// Figure that a plan promises to lower.
#[derive(Clone, Copy, Debug)]
struct Benefit {
    figure: Figure,
    /// Minimum saved share of the figure.
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

/// Arm of a block. After the last block of [`ORDER`], a confirmed plan stays in force.
fn arm_of(block: usize) -> Arm {
    ORDER.get(block).copied().unwrap_or(Arm::With)
}

/// Result of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Assessment {
    /// Block still in progress.
    Pending,
    /// Block completed.
    Measured,
    /// Benefit proven.
    Confirmed,
    /// Harm, or no benefit, with the evidence.
    Failed(String),
    /// Iteration times vary too much to be measured.
    Unmeasurable,
}

/// Trial of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    promise: Promise,
    /// Iterations per block.
    length: u64,
    /// Index of the block; beyond [`ORDER`] for a confirmed plan.
    block: usize,
    /// First iteration of the block; `None` before the first reading.
    begin: Option<u64>,
    /// First reading in the block.
    first: Option<Reading>,
    /// First counted reading of the block.
    counted_from: Option<Reading>,
    last: Option<Reading>,
    /// First reading in the current iteration.
    iteration_start: Option<Reading>,
    /// Sample between `iteration_start` and its predecessor.
    last_sample: Option<Sample>,
    without: ArmSamples,
    with: ArmSamples,
    p_value: Option<f64>,
    /// Repetitions of the block.
    repeats: u32,
    /// Consecutive harmful blocks, the last one included.
    harmful_blocks: u32,
    /// Whether launches wait until moves of the plan are handed over.
    launches_wait: bool,
}

/// Iterations per block, for this duration of an iteration.
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
            counted_from: None,
            last: None,
            iteration_start: None,
            last_sample: None,
            without: ArmSamples::default(),
            with: ArmSamples::default(),
            p_value: None,
            repeats: 0,
            harmful_blocks: 0,
            launches_wait: false,
        }
    }

    /// The same trial for a plan whose launches wait until moves are handed over. As waits may grow
    /// at any time, the duration of iterations is checked after the confirmation, too.
    pub(crate) fn with_waiting_launches(self) -> Self {
        Self { launches_wait: true, ..self }
    }

    /// Whether the plan is to be published: in a block with the plan, and in the last iteration
    /// before one.
    pub(crate) fn wants_plan(&self) -> bool {
        let is_with = |block: usize| arm_of(block) == Arm::With;
        let (Some(begin), Some(last)) = (self.begin, self.last) else { return false };
        is_with(self.block)
            || (last.iteration.number + 1 >= begin.saturating_add(self.length) && is_with(self.block + 1))
    }

    /// Figures without and with the plan.
    pub(crate) fn figures(&self) -> (ArmFigures, ArmFigures) {
        (self.without.figures(), self.with.figures())
    }

    /// Number of blocks that are evaluated.
    pub(crate) fn blocks(&self) -> u64 {
        (self.without.blocks.len() + self.with.blocks.len()) as u64
    }

    /// Number of blocks measured so far, including those that are no longer evaluated.
    pub(crate) const fn measured_blocks(&self) -> u64 {
        self.block as u64
    }

    /// P-value of the permutation test; `None` before it.
    pub(crate) const fn p_value(&self) -> Option<f64> {
        self.p_value
    }

    /// Processes a reading. Called at each interval.
    pub(crate) fn read(&mut self, reading: Reading) -> Assessment {
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
            if counts && self.counted_from.is_none() {
                self.counted_from = Some(reading);
            }
            return self.exceeds(&reading).map_or(Assessment::Pending, Assessment::Failed);
        }
        // A late reading includes iterations of the next arm.
        let is_late = number.checked_sub(end).is_some_and(|beyond| beyond >= self.uncounted());
        let Some(block) = self.counted_from.filter(|_| !is_late).and_then(|from| from.until(&reading)) else {
            return self.repeat(reading);
        };
        self.begin_block(if number < end { number + 1 } else { end }, &reading);
        self.repeats = 0;
        let arm = arm_of(self.block);
        self.block = self.block.saturating_add(1);
        let measured = self.samples_mut(arm);
        measured.blocks.push(block);
        // After the order, all blocks have the plan, and each is judged alone.
        let too_many = measured.blocks.len().saturating_sub(ORDER.len());
        measured.blocks.drain(..too_many);
        let harm = if arm == Arm::With { self.harm(&block) } else { None };
        self.harmful_blocks = if harm.is_some() { self.harmful_blocks + 1 } else { 0 };
        let is_over = self.block <= ORDER.len() || self.harmful_blocks >= HARMFUL_BLOCKS_MAX;
        if let Some(why) = harm.filter(|_| is_over) {
            return Assessment::Failed(why);
        }
        if self.block == ORDER.len() { self.judge() } else { Assessment::Measured }
    }

    const fn samples_mut(&mut self, arm: Arm) -> &mut ArmSamples {
        match arm {
            Arm::Without => &mut self.without,
            Arm::With => &mut self.with,
        }
    }

    const fn uncounted(&self) -> u64 {
        self.length / UNCOUNTED_PART
    }

    /// Whether the block has had at least these iterations and this duration.
    fn has_lasted(&self, reading: &Reading, iterations: u64, duration_ns: u64) -> bool {
        self.first.is_some_and(|first| {
            reading.iteration.number.saturating_sub(first.iteration.number) >= iterations
                && reading.iteration.at_ns.saturating_sub(first.iteration.at_ns) >= duration_ns
        })
    }

    /// Begins a block at an iteration. Its length is derived from the mean iteration of the last
    /// block.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a duration, which is not negative")]
    fn begin_block(&mut self, begin: u64, reading: &Reading) {
        // A block that was over at its first reading has no mean.
        if let Some(average) = self.first.and_then(|first| first.until(reading)).or(self.last_sample) {
            self.length = length_of(average.duration_ns as u64);
        }
        (self.begin, self.first, self.counted_from) = (Some(begin), None, None);
    }

    /// Restarts the block at the next iteration.
    fn repeat(&mut self, reading: Reading) -> Assessment {
        self.begin_block(reading.iteration.number + 1, &reading);
        (self.last, self.iteration_start) = (Some(reading), Some(reading));
        self.repeats += 1;
        if self.repeats > REPEATS_MAX { Assessment::Unmeasurable } else { Assessment::Pending }
    }

    /// Adds a sample if the reading is the first in a new iteration.
    fn sample(&mut self, reading: &Reading) {
        let is_new = self.iteration_start.is_none_or(|start| start.iteration.number != reading.iteration.number);
        let Some(start) = (if is_new { self.iteration_start.replace(*reading) } else { None }) else { return };
        let Some(sample) = start.until(reading) else { return };
        self.last_sample = Some(sample);
        if self.counted_from.is_none() {
            return;
        }
        let iterations = reading.iteration.number - start.iteration.number;
        let arm = arm_of(self.block);
        let measured = self.samples_mut(arm);
        measured.iterations = measured.iterations.saturating_add(iterations);
        measured.samples.push_back(sample);
        if measured.samples.len() > SAMPLES_MAX {
            measured.samples.pop_front();
        }
    }

    /// Harm that is certain before the end of the block: it already has more bytes than all of its
    /// counted iterations may have.
    fn exceeds(&self, reading: &Reading) -> Option<String> {
        let is_judged = self.block < ORDER.len() && arm_of(self.block) == Arm::With;
        let from = self.counted_from.filter(|_| is_judged)?;
        let end = self.begin?.saturating_add(self.length);
        let counted = end.saturating_sub(from.iteration.number) as f64;
        let copied = reading.link_bytes.saturating_sub(from.link_bytes) as f64;
        self.excess(LINK_BYTES, copied / counted)
    }

    /// Reason why a block with the plan is harmful. A block with more bytes is always harmful. For
    /// a confirmed plan, so is more of the promised figure, or more time if launches wait.
    fn harm(&self, block: &Sample) -> Option<String> {
        let is_confirmed = self.block > ORDER.len();
        let promised = is_confirmed.then(|| Benefit::of(self.promise).figure);
        let duration = (is_confirmed && self.launches_wait).then_some(DURATION);
        [Some(LINK_BYTES), promised, duration]
            .into_iter()
            .flatten()
            .find_map(|figure| self.excess(figure, (figure.value)(block)))
    }

    /// Reports a figure that exceeds its mean without the plan by more than the margin.
    fn excess(&self, Figure { value, verb, format }: Figure, with: f64) -> Option<String> {
        let without = self.without.mean(value)?;
        (with > without * (1.0 + self.margin(value))).then(|| {
            format!(
                "a block of iterations with the plan {verb} {} each, and those without it {}",
                format(with),
                format(without)
            )
        })
    }

    /// Noise of a figure: the relative spread of the blocks without the plan, or of their
    /// iterations until there are two blocks. A smaller difference is no harm.
    fn margin(&self, value: fn(&Sample) -> f64) -> f64 {
        let ArmSamples { blocks, samples, .. } = &self.without;
        let values: Vec<f64> = match blocks.len() {
            0 | 1 => samples.iter().map(value).collect(),
            _ => blocks.iter().map(value).collect(),
        };
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = values.iter().copied().fold(most, f64::min);
        let spread = if most > 0.0 { (most - least) / (most + least) } else { 0.0 };
        spread.clamp(NOISE_MIN, NOISE_MAX)
    }

    /// Judges the plan after the last block of [`ORDER`].
    fn judge(&mut self) -> Assessment {
        let Benefit { figure: Figure { value, verb, format }, saved_min } = Benefit::of(self.promise);
        let (Some(without), Some(with)) = (self.without.mean(value), self.with.mean(value)) else {
            return Assessment::Measured;
        };
        let p = p_value(&self.without.values(value), &self.with.values(value));
        self.p_value = Some(p);
        let saved = if without > 0.0 { 1.0 - with / without } else { 0.0 };
        if saved < saved_min || p >= LEVEL {
            return Assessment::Failed(format!(
                "iterations with the plan {verb} {}, and those without it {}: p = {p:.3}",
                format(with),
                format(without)
            ));
        }
        if let (Some(before), Some(after)) = (self.without.mean(duration_ns), self.with.mean(duration_ns)) {
            let is_slower = p_value(&self.with.values(duration_ns), &self.without.values(duration_ns)) < LEVEL;
            if is_slower && after > before * (1.0 + SLOWER_MAX) {
                let [after, before] = [after, before].map(milliseconds);
                return Assessment::Failed(format!(
                    "iterations with the plan took {after}, and those without it {before}"
                ));
            }
        }
        Assessment::Confirmed
    }
}

/// Formats a duration.
fn milliseconds(ns: f64) -> String {
    format!("{:.1} ms", ns / 1e6)
}

/// Formats a number of faults.
fn gpu_faults(faults: f64) -> String {
    format!("{faults:.0} GPU faults")
}

/// Formats bytes.
pub(crate) fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / 1_048_576.0)
}

#[cfg(test)]
mod tests;
