//! Control policies for comparisons: one without actions, two popular but wrong ones, and a harmful
//! one that promises a benefit. Selected by name only.

use std::{cmp::Reverse, collections::BTreeSet};

use model::{Action, Advice, Block, Expected, Place, Proposal, Range, Share, Step, block::BLOCK_BYTES};

use crate::act::live::live_policy::{LivePolicy, Named, Next, Running, View};

/// Policy without actions.
#[derive(Debug)]
pub(crate) struct Observe;

/// Policy that keeps all memory on the host, with remote mappings of the GPU. Promises nothing.
#[derive(Debug)]
pub(crate) struct PinHost;

/// Policy that repeatedly migrates all memory to the GPU. Promises nothing.
#[derive(Debug)]
pub(crate) struct PrefetchAll;

/// Harmful policy: repeatedly migrates the most used GPU memory to the host, and promises a
/// benefit. Verification must roll it back.
#[derive(Debug)]
pub(crate) struct Harmful;

/// Permits a thousand times the former cost, so that verification never ends the proposal.
const ANYTHING: Share = Share { at_least: -1000.0, at_most: 1.0 };
const HALF: Share = Share { at_least: 0.5, at_most: 1.0 };

/// Proposal in force that repeats its steps at each interval.
#[derive(Debug)]
struct Repeating {
    steps: fn(&View<'_>) -> Vec<Step>,
}

impl Running for Repeating {
    fn next_steps(&mut self, view: &View<'_>) -> Next {
        Next::Steps((self.steps)(view))
    }
}

/// Proposal in force that gives advice once per range.
#[derive(Debug)]
struct Pinning {
    pinned: BTreeSet<(u64, u64)>,
}

impl Running for Pinning {
    fn next_steps(&mut self, view: &View<'_>) -> Next {
        let new: Vec<&Range> =
            view.ranges.iter().copied().filter(|range| self.pinned.insert((range.begin, range.end))).collect();
        Next::Steps(new.into_iter().flat_map(|range| pins(range, view)).collect())
    }
}

impl LivePolicy for Observe {
    fn propose(&self, _view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        None
    }
}

impl LivePolicy for PinHost {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let steps: Vec<Step> = view.ranges.iter().flat_map(|range| pins(range, view)).collect();
        let pinned = view.ranges.iter().map(|range| (range.begin, range.end)).collect();
        let proposal = proposal(view, self.name(), "all memory stays on the host", steps, ANYTHING)?;
        Some((proposal, Box::new(Pinning { pinned })))
    }
}

impl LivePolicy for PrefetchAll {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let proposal =
            proposal(view, self.name(), "all memory is prefetched to the GPU repeatedly", to_gpu(view), ANYTHING)?;
        Some((proposal, Box::new(Repeating { steps: to_gpu })))
    }
}

impl LivePolicy for Harmful {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let proposal = proposal(
            view,
            self.name(),
            "the most used memory is evicted to the host repeatedly",
            hot_to_host(view),
            HALF,
        )?;
        Some((proposal, Box::new(Repeating { steps: hot_to_host })))
    }
}

fn proposal(view: &View<'_>, policy: &'static str, reason: &str, steps: Vec<Step>, saved: Share) -> Option<Proposal> {
    let expected = Expected { link_bytes_saved: saved, faults_saved: saved };
    let proposal =
        Proposal { process: view.process.id, gpu: view.gpu, policy, reason: reason.to_owned(), steps, expected };
    (!proposal.steps.is_empty()).then_some(proposal)
}

fn pins(range: &Range, view: &View<'_>) -> [Step; 3] {
    let advice = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(view.gpu)];
    let actions = [Action::Advise(advice[0]), Action::Advise(advice[1]), Action::Migrate(Place::Host)];
    actions.map(|action| Step { begin: range.begin, end: range.end, action })
}

fn to_gpu(view: &View<'_>) -> Vec<Step> {
    let all = view.ranges.iter().map(|range| (range.begin, range.end));
    all.map(|(begin, end)| Step { begin, end, action: Action::Migrate(Place::Gpu(view.gpu)) }).collect()
}

/// Migrates the half of the resident blocks with the most arrivals to the host, or all ranges if no
/// blocks are known.
fn hot_to_host(view: &View<'_>) -> Vec<Step> {
    if view.blocks.is_empty() {
        let all = view.ranges.iter().map(|range| (range.begin, range.end));
        return all.map(|(begin, end)| Step { begin, end, action: Action::Migrate(Place::Host) }).collect();
    }
    let mut resident: Vec<&Block> = view.blocks.iter().filter(|block| block.resident.bytes > 0).collect();
    resident.sort_by_key(|block| Reverse(block.bytes_htod));
    resident.truncate(resident.len().div_ceil(2));
    let of_range = |block: &&Block| {
        let range = view
            .ranges
            .iter()
            .find(|range| range.begin < block.address.saturating_add(BLOCK_BYTES) && block.address < range.end)?;
        let (begin, end) = (block.address.max(range.begin), (block.address.saturating_add(BLOCK_BYTES)).min(range.end));
        Some(Step { begin, end, action: Action::Migrate(Place::Host) })
    };
    resident.iter().filter_map(of_range).collect()
}
