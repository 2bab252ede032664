//! `stream`: more than the GPU holds is walked through in one direction. Each fault brings a piece, and the next piece faults again; the driver's own
//! prefetcher never looks beyond a block. So what comes next is brought ahead of the walk, block after block; what lies behind is what the driver evicts
//! first anyway.
//!
//! Accesses to what was brought raise no fault, so it would not show how far the walk has come. So the first part of a block is left out every few blocks,
//! and its fault says that the walk is there: a tripwire.
//!
//! Parameters: `ahead_mib`, how far ahead memory is brought at most (three quarters of what the GPU holds); `rest`, `auto` or `stream`: whether memory that is
//! only read is copied instead of moved, as for `cycle`.

use std::time::{Duration, SystemTime};

use model::{
    Action, Block, Expected, Outcome, Pattern, PatternKind, Place, Plan, Range, Share, Step, VerdictKind,
    block::BLOCK_BYTES, verdict::Involved,
};

use super::{
    duplicates::Duplicates,
    keep::{Kept, Pressure, arrived_bytes, is_held, whole_blocks},
    reactor::{Next, Reactor, Running, View},
    walk::{Direction, Walk},
};

/// The driver brings no less for a fault: what is left out of a block for a tripwire.
const TRIPWIRE_BYTES: u64 = 64 << 10;
/// Nearer than so many blocks to the walk nothing is brought while it faults: it would be there first.
const GAP_BLOCKS: u64 = 1;
/// How much of what is brought ahead may be used up before the next tripwire tells.
const BETWEEN_TRIPWIRES: (u64, u64) = (7, 10);
/// Of what the process has of the GPU, this part is brought ahead; less where it comes back, as some of it is kept then.
const AHEAD: (u64, u64) = (3, 4);
const AHEAD_OF_RETURN: (u64, u64) = (1, 3);
/// A range that is walked through again beside others is left alone unless it has so much of the traffic.
const SHARE: f64 = 0.8;
/// With less ahead it is not worth it.
const AHEAD_MIN_BLOCKS: u64 = 4;
/// A pattern that fewer of the late faults fit is none to rely on.
const CONFIDENCE: f64 = 0.75;
/// What may be brought in vain, as a part of all: what is ahead of the walk when it ends.
const OVERSHOOT: f64 = 0.05;
/// When the walk has not been seen to go on for so long, it has stopped.
const STOPPED: Duration = Duration::from_secs(10);
/// So many looks in a row at which faults were only seen where the walk is not, and it has turned.
const STRAYED_LOOKS: u32 = 5;

/// The policy.
#[derive(Debug)]
pub(crate) struct Stream;

impl Reactor for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let verdict = view.verdict(VerdictKind::Streaming).or_else(|| view.verdict(VerdictKind::CapacityThrash))?;
        // What the process has of the GPU: the rest is others'.
        let held_bytes = view.resident().bytes;
        let is_most = |range: &Range| {
            let has_most = |of: &&Involved| of.begin < range.end && range.begin < of.end && of.share >= SHARE;
            verdict.ranges.iter().any(|of| has_most(&of))
        };
        let is_large = |range: &Range| range.end - range.begin > held_bytes;
        let range = view.ranges.iter().find(|range| is_walked(range) && is_large(range) && is_most(range))?;
        let walk = Walk::of(range, view.blocks, view.key(), verdict.kind == VerdictKind::CapacityThrash)?;
        let most = view.parameter::<u64>("ahead_mib").map_or(u64::MAX, |mib| mib.saturating_mul(1 << 20));
        let ahead = ahead_blocks(&walk, held_bytes, most);
        if ahead < AHEAD_MIN_BLOCKS {
            return None;
        }
        let may_duplicate = view.parameters.get("rest").is_none_or(|rest| rest == "auto");
        // In the window that told of it the GPU may still have been filling up: from now on each byte that comes pushes one out.
        let inputs = &verdict.inputs;
        let copied = inputs.bytes_htod.saturating_add(inputs.bytes_dtoh).max(1) as f64;
        let grows = 2.0 * inputs.bytes_htod as f64 / copied - 1.0;
        let mut running = Streaming {
            next: walk.after(walk.position(), 1 + GAP_BLOCKS),
            walk,
            most_ahead_bytes: most,
            ahead,
            kept: None,
            passed_blocks: 0,
            mine_bytes: arrived_bytes(view.process, view),
            arrived_bytes: 0,
            seen: view.now,
            strayed: 0,
            duplicates: may_duplicate.then(Duplicates::default),
            begun_at: Pressure::of(view).arrived_bytes,
            has_settled: false,
        };
        let steps = running.bring(view);
        let plan = Plan {
            process: view.process.id,
            gpu: view.gpu,
            policy: self.name(),
            reason: format!(
                "{} MiB are walked through {}, and the GPU holds {}: {} MiB are brought ahead of the walk",
                (range.end - range.begin) >> 20,
                if running.walk.direction() == Direction::Up { "upwards" } else { "downwards" },
                held_bytes >> 20,
                (ahead * BLOCK_BYTES) >> 20,
            ),
            steps,
            expected: Expected {
                // What is brought would have come anyway, but for what is ahead when the walk ends.
                link_bytes_saved: Share {
                    at_least: -OVERSHOOT - grows.max(0.0),
                    at_most: if may_duplicate { 0.5 } else { 0.0 },
                },
                faults_saved: Share {
                    at_least: 0.5,
                    at_most: 1.0 - TRIPWIRE_BYTES as f64 / (tripwire_each(ahead) * BLOCK_BYTES) as f64,
                },
            },
        };
        Some((plan, Box::new(running)))
    }
}

fn is_walked(range: &Range) -> bool {
    let Pattern { kind, confidence, .. } = range.pattern;
    matches!(kind, PatternKind::Sequential | PatternKind::Cyclic) && confidence >= CONFIDENCE
}

#[derive(Debug)]
struct Streaming {
    walk: Walk,
    /// What is brought next; `None` at the end.
    next: Option<u64>,
    most_ahead_bytes: u64,
    /// Blocks.
    ahead: u64,
    /// What stays, once the walk has begun again.
    kept: Option<Kept>,
    passed_blocks: u64,
    /// What had arrived for the process at the last look; and since it began, with what is kept as if it had arrived too.
    mine_bytes: u64,
    arrived_bytes: u64,
    /// When it was seen to go on.
    seen: SystemTime,
    strayed: u32,
    duplicates: Option<Duplicates>,
    /// What had arrived at the GPU when it began, or when duplication did.
    begun_at: u64,
    /// Whether as much has arrived since as there is room for.
    has_settled: bool,
}

impl Running for Streaming {
    fn go_on(&mut self, view: &View<'_>) -> Next {
        let Some(range) = view.ranges.iter().find(|range| self.walk.is_in(range)) else {
            return Next::Over("the memory was freed".to_owned());
        };
        // Tripwires alone look like a stride.
        if matches!(range.pattern.kind, PatternKind::Random | PatternKind::HotSet) {
            return Next::Over(format!("the memory is not walked through any more: {}", range.pattern.kind.name()));
        }
        match self.walk.look(view.blocks) {
            Some(0) => {}
            Some(blocks) => {
                self.passed_blocks = self.passed_blocks.saturating_add(blocks);
                (self.seen, self.strayed) = (view.now, 0);
            }
            None => self.strayed = self.strayed.saturating_add(1),
        }
        if self.strayed >= STRAYED_LOOKS {
            return Next::Over("the walk has turned".to_owned());
        }
        if view.now.duration_since(self.seen).is_ok_and(|quiet| quiet >= STOPPED) {
            return Next::Over("the walk has stopped, or has not been seen for 10 s".to_owned());
        }
        self.note_arrivals(view);
        self.ahead = ahead_blocks(&self.walk, view.resident().bytes, self.most_ahead_bytes).max(AHEAD_MIN_BLOCKS);
        let mut steps = self.keep(view);
        steps.extend(self.duplicate(view));
        steps.extend(self.bring(view));
        Next::Steps(steps)
    }

    fn carried_out(&mut self, outcome: &Outcome) {
        if let Some(duplicates) = &mut self.duplicates {
            duplicates.carried_out(outcome);
        }
    }

    fn has_settled(&self) -> bool {
        self.has_settled
    }

    fn passed_bytes(&self) -> Option<u64> {
        // It is at the last tripwire at least, and not at the next one yet; between them it is where what arrives is.
        let least = self.passed_blocks.saturating_mul(BLOCK_BYTES);
        let most = least.saturating_add(tripwire_each(self.ahead).saturating_mul(BLOCK_BYTES));
        Some(self.arrived_bytes.clamp(least, most))
    }
}

impl Streaming {
    fn note_arrivals(&mut self, view: &View<'_>) {
        let mine = arrived_bytes(view.process, view);
        let came = mine.saturating_sub(self.mine_bytes);
        self.mine_bytes = mine;
        let kept = self.kept.as_ref().map_or(0, |kept| kept.held().count() as u64);
        let all = self.walk.blocks();
        let came = came.saturating_mul(all) / all.saturating_sub(kept).max(1);
        self.arrived_bytes = self.arrived_bytes.saturating_add(came);
    }

    /// What of the walked memory stays, where it comes back: as much as is not needed for what comes next.
    fn keep(&mut self, view: &View<'_>) -> Vec<Step> {
        if !self.walk.wraps() {
            return Vec::new();
        }
        // What lies behind the walk is needed last of all, and is there.
        let behind = |walk: &Walk| -> Vec<u64> {
            let held = whole_blocks(view).filter(|block| is_held(block));
            let mut held: Vec<(u64, u64)> = held
                .filter_map(|block| Some((walk.distance(block.address, walk.position())?, block.address)))
                .collect();
            held.sort_unstable();
            held.into_iter().map(|(_, address)| address).collect()
        };
        // What is brought pushes out what was brought before and is used by now; and a little is late.
        let left_bytes = (self.ahead.saturating_mul(2)).saturating_mul(BLOCK_BYTES);
        if let Some(kept) = &mut self.kept {
            return kept.look(view, || behind(&self.walk));
        }
        let kept = Kept::new(view, behind(&self.walk), 0).leaving(view, left_bytes);
        let steps = kept.renewals(view);
        self.kept = Some(kept);
        steps
    }

    fn duplicate(&mut self, view: &View<'_>) -> Vec<Step> {
        let Some(duplicates) = &mut self.duplicates else {
            self.has_settled = true;
            return Vec::new();
        };
        let pressure = Pressure::of(view);
        self.has_settled |= pressure.arrived_bytes.saturating_sub(self.begun_at) >= pressure.held_bytes;
        if duplicates.has_begun() {
            duplicates.look(view)
        } else if self.has_settled || view.written == Some(false) {
            self.begun_at = pressure.arrived_bytes;
            duplicates.begin(view, &Kept::none())
        } else {
            Vec::new()
        }
    }

    /// What is to be brought now, so that so much is ahead of the walk.
    fn bring(&mut self, view: &View<'_>) -> Vec<Step> {
        let walk = &self.walk;
        // Where the walk has overtaken what was brought, it is met again a little ahead.
        let behind = |next: u64| {
            walk.distance(walk.position(), next)
                .is_none_or(|blocks| blocks == 0 || blocks > self.ahead + GAP_BLOCKS + 1)
        };
        if self.next.is_none_or(behind) {
            self.next = walk.after(walk.position(), 1 + GAP_BLOCKS);
        }
        let mut steps: Vec<Step> = Vec::new();
        while let Some(next) =
            self.next.filter(|next| walk.distance(walk.position(), *next).is_some_and(|blocks| blocks <= self.ahead))
        {
            if !is_there(next, view.blocks) {
                let is_tripwire = (next / BLOCK_BYTES).is_multiple_of(tripwire_each(self.ahead));
                let (begin, end) = walk.clipped(next);
                let begin = if is_tripwire { begin.saturating_add(TRIPWIRE_BYTES) } else { begin };
                if begin < end {
                    join(&mut steps, Step { begin, end, action: Action::Migrate(Place::Gpu(view.gpu)) });
                }
            }
            self.next = walk.after(next, 1);
        }
        steps
    }
}

fn ahead_blocks(walk: &Walk, held_bytes: u64, most_bytes: u64) -> u64 {
    let (part, of) = if walk.wraps() { AHEAD_OF_RETURN } else { AHEAD };
    (held_bytes / of * part).min(most_bytes) / BLOCK_BYTES
}

fn tripwire_each(ahead: u64) -> u64 {
    (ahead * BETWEEN_TRIPWIRES.0 / BETWEEN_TRIPWIRES.1).max(2)
}

/// Whether nearly all of a block is at the GPU.
fn is_there(address: u64, blocks: &[Block]) -> bool {
    let at = blocks.binary_search_by_key(&address, |block| block.address);
    at.ok().and_then(|at| blocks.get(at)).is_some_and(|block| block.resident.bytes > BLOCK_BYTES / 4 * 3)
}

/// Adds a step to those before it, as a part of the last where they follow each other.
fn join(steps: &mut Vec<Step>, step: Step) {
    match steps.last_mut() {
        Some(last) if last.end == step.begin => last.end = step.end,
        Some(last) if last.begin == step.end => last.begin = step.begin,
        _ => steps.push(step),
    }
}
