//! `ping-pong`: memory that a CPU and the GPU use in turn stays on the host, and the GPU reaches it across the link.
//!
//! Parameters: `bounces`, how often a block must have changed sides to be meant.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use model::{
    Action, Advice, Block, Expected, Place, Plan, Share, Step, Verdict, VerdictKind, block::BLOCK_BYTES,
    policy::BOUNCES, verdict::Involved,
};

use super::{
    intervals::Intervals,
    live_policy::{LivePolicy, Named, Next, Running, View, has_passed},
};

/// Twice there and back.
const ALTERNATIONS: u64 = 4;
/// A range with less of the traffic is not worth advice.
const SHARE: f64 = 0.1;
/// Of so many blocks one is left alone, and shows how the program goes on; of fewer than half of that, none is.
const WITNESS_EACH: usize = 32;
/// Time without a change of sides of the control blocks after which the phase has ended.
const QUIET: Duration = Duration::from_secs(10);

/// The policy.
#[derive(Debug)]
pub(crate) struct PingPong;

#[derive(Debug)]
struct Watching {
    /// Blocks left alone, with how often each has changed sides.
    witnesses: BTreeMap<u64, u64>,
    /// Time of the last change of sides of one of them.
    seen: SystemTime,
    memory: Intervals,
}

impl LivePolicy for PingPong {
    fn propose(&self, view: &View<'_>) -> Option<(Plan, Box<dyn Running>)> {
        let verdict = view.verdict(VerdictKind::PingPong).or_else(|| view.verdict(VerdictKind::DriverThrottling))?;
        let least = view.number(&BOUNCES).unwrap_or(ALTERNATIONS);
        let blocks = alternating(view, verdict, least);
        let (meant, witnesses) = with_witnesses(&blocks);
        let memory = clipped(view, verdict, &meant);
        if memory.is_empty() {
            return None;
        }
        if view.does_atomics() {
            return None;
        }
        let advice = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(view.gpu)];
        let steps = memory
            .iter()
            .flat_map(|(begin, end)| advice.map(|advice| Step { begin, end, action: Action::Advise(advice) }));
        let share = memory.bytes() as f64 / (memory.bytes() + witnesses.len() as u64 * BLOCK_BYTES) as f64;
        let plan = Plan {
            process: view.process.id,
            gpu: view.gpu,
            policy: self.name(),
            reason: reason(verdict, memory.bytes()),
            steps: steps.collect(),
            expected: expected(verdict, share),
        };
        let witnesses = witnesses.into_iter().map(|block| (block.address, block.bounces)).collect();
        Some((plan, Box::new(Watching { witnesses, seen: view.now, memory })))
    }
}

impl Running for Watching {
    fn go_on(&mut self, view: &View<'_>) -> Next {
        let is_mapped = |(begin, end)| view.ranges.iter().any(|range| range.begin < end && begin < range.end);
        if !self.memory.iter().any(is_mapped) {
            return Next::Over("the memory was freed".to_owned());
        }
        if view.does_atomics() {
            return Next::Over("the GPU does atomics on it, each of which migrates host memory to the GPU".to_owned());
        }
        for block in view.blocks {
            if let Some(bounces) = self.witnesses.get_mut(&block.address)
                && *bounces < block.bounces
            {
                *bounces = block.bounces;
                self.seen = view.now;
            }
        }
        if !self.witnesses.is_empty() && has_passed(QUIET, self.seen, view.now) {
            return Next::Over("memory without advice has not bounced for 10 s".to_owned());
        }
        Next::Steps(Vec::new())
    }
}

/// Blocks that go back and forth in the ranges that the verdict is about.
fn alternating<'a>(view: &View<'a>, verdict: &Verdict, least: u64) -> Vec<&'a Block> {
    let inside = |block: &&Block| {
        meant(verdict).any(|range| range.begin < block.address.saturating_add(BLOCK_BYTES) && block.address < range.end)
    };
    view.blocks.iter().filter(|block| block.bounces >= least).filter(inside).collect()
}

fn meant(verdict: &Verdict) -> impl Iterator<Item = &Involved> {
    verdict.ranges.iter().filter(|range| range.traffic_ratio >= SHARE)
}

/// Blocks to advise, and control blocks without advice.
fn with_witnesses<'a>(blocks: &[&'a Block]) -> (Vec<&'a Block>, Vec<&'a Block>) {
    let is_witness = |at: usize| blocks.len() >= WITNESS_EACH / 2 && at % WITNESS_EACH == WITNESS_EACH / 4;
    let (witnesses, meant): (Vec<_>, Vec<_>) = blocks.iter().copied().enumerate().partition(|(at, _)| is_witness(*at));
    let bare = |of: Vec<(usize, &'a Block)>| of.into_iter().map(|(_, block)| block).collect();
    (bare(meant), bare(witnesses))
}

/// The mapped parts of them, within ranges that the verdict involves.
fn clipped(view: &View<'_>, verdict: &Verdict, blocks: &[&Block]) -> Intervals {
    let mut memory = Intervals::default();
    for range in view
        .ranges
        .iter()
        .filter(|range| meant(verdict).any(|meant| meant.begin < range.end && range.begin < meant.end))
    {
        for block in blocks {
            memory.insert(block.address.max(range.begin), (block.address.saturating_add(BLOCK_BYTES)).min(range.end));
        }
    }
    memory
}

fn reason(verdict: &Verdict, bytes: u64) -> String {
    format!(
        "a CPU and the GPU use {} MiB in turn: it stays on the host, mapped remotely by the GPU ({} bounces in a window)",
        bytes >> 20,
        verdict.inputs.bounces
    )
}

/// All faults on what gets advice, if the verdict's ranges have all of them; and no more bytes than now.
fn expected(verdict: &Verdict, share: f64) -> Expected {
    let of_traffic: f64 = meant(verdict).map(|range| range.traffic_ratio).sum::<f64>().clamp(0.0, 1.0);
    Expected {
        link_bytes_saved: Share { at_least: 0.0, at_most: share },
        faults_saved: Share { at_least: 0.8 * share * of_traffic, at_most: share },
    }
}
