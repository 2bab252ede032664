//! `stream`: a walk in one direction through more memory than the GPU has. Each fault fetches a
//! part of a block, and the next part faults again; the driver's prefetcher does not cross blocks.
//! The policy prefetches ahead of the walk, block by block. The driver evicts the memory behind the
//! walk first anyway.
//!
//! Accesses to prefetched memory raise no fault, so the progress of the walk would be invisible.
//! Every few blocks, the policy therefore omits the first part of a block, whose fault shows the
//! position of the walk: a tripwire.
//!
//! Parameters: `ahead_mib`, the maximum prefetch distance.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use model::{
    Action, Block, Call, CallResult, Expected, Outcome, Pattern, PatternKind, Place, Proposal, Range, Share, Step,
    VerdictKind, block::BLOCK_BYTES, policy::AHEAD_MIB, verdict::Involved,
};

use super::{
    pace::Pace,
    retention::{Claim, RetainedSet, is_mostly_resident, whole_blocks},
    walk::{Direction, Progress, Walk, is_nearly_resident, recent_share},
};
use crate::act::{
    live::live_policy::{LivePolicy, Named, Next, Running, View, has_passed},
    scene::block_at,
};

/// Bytes omitted from a block for a tripwire: the driver fetches at least this much for a fault.
const TRIPWIRE_BYTES: u64 = 64 << 10;
/// Minimum distance of a prefetch from a faulting walk, which would otherwise overtake it.
const GAP_BLOCKS: u64 = 1;
/// Minimum share of a walked range in the traffic, and in the recently active resident blocks.
const SHARE: f64 = 0.8;
/// Windows in which a resident block is recently active. A program may alternate between ranges,
/// and one window may show only one of them.
const RECENT_WINDOWS: u32 = 4;
/// Minimum worthwhile prefetch distance.
const AHEAD_MIN_BLOCKS: u64 = 4;
/// Minimum confidence in a pattern: the share of recent faults that fit it.
const CONFIDENCE: f64 = 0.75;
/// Maximum share of useless prefetches, which are ahead of the walk at its end.
const OVERSHOOT: f64 = 0.05;
/// Time without progress after which the walk has stopped.
const STOPPED: Duration = Duration::from_secs(10);
/// Consecutive intervals with faults only elsewhere after which the walk has turned.
const STRAYED_INTERVALS: u32 = 5;

/// Policy for streaming.
#[derive(Debug)]
pub(crate) struct Stream;

impl LivePolicy for Stream {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let verdict = view.verdict(VerdictKind::Streaming).or_else(|| view.verdict(VerdictKind::CapacityThrash))?;
        // GPU memory of the process alone.
        let resident_bytes = view.resident().bytes;
        let is_most = |range: &Range| {
            let has_most = |of: &&Involved| of.begin < range.end && range.begin < of.end && of.traffic_ratio >= SHARE;
            verdict.ranges.iter().any(|of| has_most(&of))
        };
        let is_large = |range: &Range| range.end - range.begin > resident_bytes;
        let recent = verdict.window.saturating_mul(RECENT_WINDOWS);
        let is_walk = |range: &Range| {
            is_walked(range)
                && is_large(range)
                && is_most(range)
                && recent_share(range, view.blocks, view.key(), recent) >= SHARE
        };
        let range = view.ranges.iter().find(|range| is_walk(range))?;
        let walk = Walk::of(range, view.blocks, view.key(), verdict.kind == VerdictKind::CapacityThrash)?;
        let most = view.number(&AHEAD_MIB).map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        // Beyond half of the range, the position of the walk would be ambiguous.
        let most = (most / BLOCK_BYTES).min((walk.blocks() / 2).saturating_sub(1 + GAP_BLOCKS));
        let pace = Pace::new(resident_bytes / BLOCK_BYTES, most);
        let distance_blocks = pace.prefetch_distance_blocks();
        if distance_blocks < AHEAD_MIN_BLOCKS {
            return None;
        }
        // The GPU may still have been filling up in the verdict's window. From now on, each
        // arriving byte evicts one.
        let inputs = &verdict.inputs;
        let copied = inputs.bytes_htod.saturating_add(inputs.bytes_dtoh).max(1) as f64;
        let grows = 2.0 * inputs.bytes_htod as f64 / copied - 1.0;
        let mut running = Streaming {
            next: walk.block_after(walk.position(), 1 + GAP_BLOCKS),
            walk,
            pace,
            retained: None,
            tripwires: VecDeque::new(),
            passed_blocks: 0,
            ready_blocks: 0,
            progressed_at: view.now,
            strayed: 0,
        };
        let steps = running.prefetch(view);
        let proposal = Proposal {
            process: view.process.id,
            gpu: view.gpu,
            policy: self.name(),
            reason: format!(
                "{} MiB are walked through {}, and the GPU holds {}: {} MiB are prefetched ahead of the walk",
                (range.end - range.begin) >> 20,
                if running.walk.direction() == Direction::Up { "upwards" } else { "downwards" },
                resident_bytes >> 20,
                (distance_blocks * BLOCK_BYTES) >> 20,
            ),
            steps,
            expected: Expected {
                // Prefetched memory would have arrived anyway, except for the part ahead of the
                // walk at its end.
                link_bytes_saved: Share { at_least: -OVERSHOOT - grows.max(0.0), at_most: 0.0 },
                faults_saved: Share {
                    at_least: 0.5,
                    at_most: 1.0 - TRIPWIRE_BYTES as f64 / (distance_blocks * BLOCK_BYTES) as f64,
                },
            },
        };
        Some((proposal, Box::new(running)))
    }
}

fn is_walked(range: &Range) -> bool {
    let Pattern { kind, confidence, .. } = range.pattern;
    matches!(kind, PatternKind::Sequential | PatternKind::Cyclic) && confidence >= CONFIDENCE
}

#[derive(Debug)]
struct Streaming {
    walk: Walk,
    /// Next block to prefetch; `None` at the end.
    next: Option<u64>,
    pace: Pace,
    /// Retained blocks, after the walk has restarted.
    retained: Option<RetainedSet>,
    /// Blocks without their first part that the walk has not reached yet, in the order of the walk.
    tripwires: VecDeque<u64>,
    passed_blocks: u64,
    /// Resident blocks ahead of the walk, within the prefetch distance.
    ready_blocks: u64,
    /// Time of the last progress.
    progressed_at: SystemTime,
    strayed: u32,
}

impl Running for Streaming {
    fn observe(&mut self, view: &View<'_>) {
        match self.walk.advance(view.blocks) {
            Some(Progress { blocks: 0, .. }) => {}
            Some(Progress { blocks, was_late }) => {
                self.passed_blocks = self.passed_blocks.saturating_add(blocks);
                self.record_progress(was_late);
                (self.progressed_at, self.strayed) = (view.now, 0);
            }
            None => self.strayed = self.strayed.saturating_add(1),
        }
        self.ready_blocks = self.count_ready(view);
    }

    fn next_steps(&mut self, view: &View<'_>) -> Next {
        let Some(range) = view.ranges.iter().find(|range| self.walk.is_in(range)) else {
            return Next::End("the memory was freed".to_owned());
        };
        // Tripwires alone look like a stride.
        if matches!(range.pattern.kind, PatternKind::Random | PatternKind::HotSet) {
            return Next::End(format!("the walk has ended: {}", range.pattern.kind.name()));
        }
        if self.strayed >= STRAYED_INTERVALS {
            return Next::End("the walk has turned".to_owned());
        }
        if has_passed(STOPPED, self.progressed_at, view.now) {
            return Next::End("the walk has not advanced for 10 s".to_owned());
        }
        self.pace.set_frames(view.resident().bytes / BLOCK_BYTES);
        let prefetches = self.prefetch(view);
        let copies = prefetches.iter().filter(|step| matches!(step.action, Action::Migrate(_)));
        let prefetch_bytes = copies.map(Step::bytes).fold(0, u64::saturating_add);
        // Renewed before the prefetches arrive, which must not evict the retained part.
        let mut steps = self.renewals(view, prefetch_bytes);
        steps.extend(prefetches);
        Next::Steps(steps)
    }

    fn record_outcome(&mut self, outcome: &Outcome) {
        if let Some(retained) = &mut self.retained {
            retained.record_outcome(outcome);
        }
        // Prefetches that were not executed, because of a budget or too little memory, are
        // repeated, beginning with the first.
        let walk = &self.walk;
        let way = |block: u64| walk.distance(walk.position(), block);
        let is_left = |call: &&Call| {
            let is_late = matches!(call.result, CallResult::Denied(_) | CallResult::Cancelled | CallResult::HostMemory);
            is_late && matches!(call.step.action, Action::Migrate(_))
        };
        let left = outcome.calls.iter().filter(is_left).map(|call| call.step.begin / BLOCK_BYTES * BLOCK_BYTES);
        let Some((first, block)) = left.filter_map(|block| Some((way(block)?, block))).min() else { return };
        if self.next.and_then(way).is_none_or(|next| first < next) {
            self.next = Some(block);
            self.tripwires.retain(|tripwire| way(*tripwire).is_some_and(|way| way < first));
        }
    }

    fn passed_bytes(&self) -> Option<u64> {
        // Resident memory ahead of the walk counts as passed, because it would have been fetched.
        Some(self.passed_blocks.saturating_add(self.ready_blocks).saturating_mul(BLOCK_BYTES))
    }
}

impl Streaming {
    /// Number of blocks ahead of the walk that are resident.
    fn count_ready(&self, view: &View<'_>) -> u64 {
        let walk = &self.walk;
        let end = self.next.and_then(|next| walk.distance(walk.position(), next));
        let end =
            end.or_else(|| walk.blocks_to_end(walk.position())).unwrap_or(0).min(self.pace.prefetch_distance_blocks());
        let blocks = (1..end).filter_map(|way| walk.block_after(walk.position(), way));
        blocks.filter(|block| is_nearly_resident_at(*block, view.blocks)).count() as u64
    }

    /// Renews the retained part of a range that is walked repeatedly. The prefetches limit its
    /// size.
    fn renewals(&mut self, view: &View<'_>, prefetch_bytes: u64) -> Vec<Step> {
        if !self.walk.wraps() {
            return Vec::new();
        }
        // Memory behind the walk is needed last, and is resident.
        let behind = |walk: &Walk| -> Vec<u64> {
            let resident = whole_blocks(view).filter(|block| is_mostly_resident(block));
            // A renewal fetches a block's first page, which a tripwire lacks.
            let mut resident: Vec<(u64, u64)> = resident
                .filter(|block| !self.tripwires.contains(&block.address))
                .filter_map(|block| Some((walk.distance(block.address, walk.position())?, block.address)))
                .collect();
            resident.sort_unstable();
            resident.into_iter().map(|(_, address)| address).collect()
        };
        let other_min_bytes = self.pace.needed_blocks().saturating_mul(BLOCK_BYTES);
        if let Some(retained) = &mut self.retained {
            retained.set_other_min_bytes(other_min_bytes);
            return retained.update(view, prefetch_bytes, || behind(&self.walk));
        }
        let mut retained = RetainedSet::new(view, behind(&self.walk), 0, other_min_bytes, Claim::ExceptOthers);
        let steps = retained.renew_all(view);
        self.retained = Some(retained);
        steps
    }

    /// Steps that prefetch up to the distance of the pace.
    fn prefetch(&mut self, view: &View<'_>) -> Vec<Step> {
        let walk = &self.walk;
        // Prefetches that the walk has overtaken resume a little ahead of it.
        let behind = |next: u64| {
            walk.distance(walk.position(), next).is_none_or(|blocks| blocks == 0 || blocks > walk.blocks() / 2)
        };
        if self.next.map_or(walk.wraps(), behind) {
            self.next = walk.block_after(walk.position(), 1 + GAP_BLOCKS);
        }
        let mut steps: Vec<Step> = Vec::new();
        for _ in 0..self.pace.prefetch_max_blocks() {
            let is_ahead = |next: &u64| {
                walk.distance(walk.position(), *next)
                    .is_some_and(|blocks| blocks <= self.pace.prefetch_distance_blocks())
            };
            let Some(next) = self.next.filter(is_ahead) else { break };
            let (begin, end) = walk.clipped(next);
            if is_nearly_resident_at(next, view.blocks) {
                // Renewed, or prefetches would evict it before the walk reaches it.
                if !self.tripwires.contains(&next) {
                    push_merged(&mut steps, Step { begin, end, action: Action::Touch(view.gpu) });
                }
            } else {
                let is_tripwire = self.is_tripwire(next, view.blocks);
                if is_tripwire {
                    self.tripwires.push_back(next);
                    if let Some(retained) = &mut self.retained {
                        retained.release(next);
                    }
                }
                let begin = if is_tripwire { begin.saturating_add(TRIPWIRE_BYTES) } else { begin };
                if begin < end {
                    push_merged(&mut steps, Step { begin, end, action: Action::Migrate(Place::Gpu(view.gpu)) });
                }
            }
            self.next = walk.block_after(next, 1);
        }
        steps
    }

    /// Processes progress of the walk: to a tripwire, to a block that was not prefetched in time,
    /// or to another fault.
    fn record_progress(&mut self, was_late: bool) {
        if self.tripwires.contains(&self.walk.position()) {
            self.pace.record_tripwire();
        } else if was_late {
            self.pace.record_overtaken();
        }
        let (walk, distance_blocks) = (&self.walk, self.pace.prefetch_distance_blocks());
        let is_ahead =
            |block: &u64| walk.distance(walk.position(), *block).is_some_and(|way| 0 < way && way <= distance_blocks);
        self.tripwires.retain(is_ahead);
    }

    /// Whether a block becomes a tripwire. A resident block cannot, so the last block before a run
    /// of resident ones may become one earlier.
    fn is_tripwire(&self, block: u64, blocks: &[Block]) -> bool {
        let last = self.tripwires.back().copied().unwrap_or_else(|| self.walk.position());
        let way = self.walk.distance(last, block).unwrap_or(0);
        let is_last = || self.walk.block_after(block, 1).is_none_or(|next| is_nearly_resident_at(next, blocks));
        way >= self.pace.tripwire_spacing_blocks() || way >= self.pace.tripwire_spacing_blocks() / 2 && is_last()
    }
}

fn is_nearly_resident_at(address: u64, blocks: &[Block]) -> bool {
    block_at(blocks, address).is_some_and(is_nearly_resident)
}

/// Appends a step, merged with the last one if it continues it upwards. Downward steps stay
/// separate, because steps are executed from their lower end.
fn push_merged(steps: &mut Vec<Step>, step: Step) {
    match steps.last_mut() {
        Some(last) if last.action == step.action && last.end == step.begin => last.end = step.end,
        _ => steps.push(step),
    }
}
