//! Working set that exceeds the available memory. The blocks with the most returns are retained, as
//! many as fit, and the rest streams through the remaining frames. Common part of `cycle` and
//! `hot-cold`, which differ in their phases.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use model::{
    Action, Advice, Block, Expected, Outcome, Place, Proposal, Share, Step, Verdict, VerdictKind, block::BLOCK_BYTES,
    policy::REST,
};

use super::{
    renewal_rate::{INTERVAL, RenewalRate},
    retention::{Claim, Pressure, RetainedSet, arrived_bytes, is_mostly_resident, others_bytes, whole_blocks},
};
use crate::act::{
    intervals::Intervals,
    limits::{ADVISED_PARTS_MAX, control_spacing},
    live::live_policy::{Next, Running, View, has_passed},
};

/// Minimum [`WorkingSet::skew`] of a hot set, for `hot-cold`; below it, the use is even, for `cycle`.
pub(crate) const EVEN_UP_TO: f64 = 1.5;
/// Time without arrivals at the GPU after which the phase has ended.
const QUIET: Duration = Duration::from_secs(10);
/// Blocks of the rest per control block, which is not mapped remotely. Its faults show the
/// program's progress.
const BLOCKS_PER_CONTROL: usize = 16;

/// Treatment of the blocks that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The rest is fetched and evicted.
    Stream,
    /// The rest stays on the host, with remote mappings of the GPU.
    Remote,
}

impl Rest {
    fn requested(view: &View<'_>) -> Self {
        match view.word(&REST) {
            // The GPU cannot execute atomics across PCIe.
            "remote" if !view.uses_gpu_atomics() => Self::Remote,
            _ => Self::Stream,
        }
    }
}

/// Blocks of a thrashing process, most returns first.
#[derive(Debug)]
pub(crate) struct WorkingSet<'a> {
    verdict: &'a Verdict,
    blocks: Vec<&'a Block>,
    fitting: usize,
    per_interval_bytes: u64,
}

impl<'a> WorkingSet<'a> {
    /// Blocks of the process; `None` if it does not thrash, or would fit and is evicted by others.
    pub(crate) fn of(view: &View<'a>) -> Option<Self> {
        let verdict = view.verdict(VerdictKind::CapacityThrash)?;
        let mut blocks: Vec<&Block> = whole_blocks(view).filter(|block| block.bytes_htod > 0).collect();
        // Among equal returns, the last arrival first: it stays longest.
        blocks.sort_by_key(|block| std::cmp::Reverse((block.refetched_bytes, block.last_seen_at)));
        let Pressure { resident_bytes, arrived_bytes: all } = Pressure::of(view);
        if (blocks.len() as u64).saturating_mul(BLOCK_BYTES) <= resident_bytes {
            return None;
        }
        let arrived = verdict.inputs.bytes_htod.saturating_add(verdict.inputs.populated_bytes);
        // Arrivals of all processes in the window. The share of others is assumed to be constant.
        let arrived = arrived.saturating_mul(all / arrived_bytes(view.process, view).max(1));
        let per_interval_bytes =
            arrived / u64::try_from(verdict.window.as_millis() / INTERVAL.as_millis()).unwrap_or(u64::MAX).max(1);
        let arriving = if Rest::requested(view) == Rest::Remote { 0 } else { per_interval_bytes };
        let fitting = RenewalRate::new(view.now, arriving).fitting(view, resident_bytes, others_bytes(view), 0);
        (fitting > 0).then_some(Self { verdict, blocks, fitting, per_interval_bytes })
    }

    /// Ratio of the fitting blocks' share of the returns to their share of the blocks: 1 if all
    /// blocks returned equally often.
    pub(crate) fn skew(&self) -> f64 {
        self.returned() / self.part()
    }

    /// Share of the blocks that fit.
    fn part(&self) -> f64 {
        (self.fitting as f64 / self.blocks.len().max(1) as f64).min(1.0)
    }

    /// Expected share of the fitting blocks in the returns. Until they have returned twice, it is
    /// taken as their share of the blocks: in its second round, a walk has reached only some of
    /// them.
    fn share(&self) -> f64 {
        let typical = self.blocks.get(self.fitting / 2).map_or(0, |block| block.refetched_bytes);
        if self.skew() < EVEN_UP_TO || typical < 2 * BLOCK_BYTES { self.part() } else { self.returned() }
    }

    /// Share of the fitting blocks in all returns so far.
    fn returned(&self) -> f64 {
        let returned = |blocks: &[&Block]| blocks.iter().map(|block| block.refetched_bytes as f64).sum::<f64>();
        let all = returned(&self.blocks);
        if all > 0.0 { returned(self.blocks.get(..self.fitting).unwrap_or(&self.blocks)) / all } else { 0.0 }
    }

    pub(crate) fn propose(&self, view: &View<'_>, policy: &'static str, why: &str) -> (Proposal, Box<dyn Running>) {
        let rest = Rest::requested(view);
        let fitting = self.blocks.iter().take(self.fitting).map(|block| block.address);
        let mut retained = RetainedSet::new(view, fitting, self.per_interval_bytes, 0, Claim::ExceptOthers);
        let mut steps = retained.renew_all(view);
        if rest == Rest::Remote {
            steps.extend(remote(view, &self.blocks, &retained));
        }
        let inputs = &self.verdict.inputs;
        let arrived = inputs.bytes_htod.saturating_add(inputs.populated_bytes).max(1);
        let returned = (inputs.refetched_bytes as f64 / arrived as f64).min(1.0);
        let saved = self.share() * returned;
        let at_most = match rest {
            Rest::Stream => saved,
            Rest::Remote => 1.0,
        };
        let mib = |blocks: usize| (blocks as u64 * BLOCK_BYTES) >> 20;
        let proposal = Proposal {
            process: view.process.id,
            gpu: view.gpu,
            policy,
            reason: format!(
                "{why}: {} of {} MiB stay, with {:.0} % of the refetched bytes; the rest is {}",
                mib(retained.len()),
                mib(self.blocks.len()),
                self.share() * 100.0,
                if rest == Rest::Remote { "mapped remotely" } else { "streamed through the remaining memory" },
            ),
            steps,
            expected: Expected {
                // Half of the set may be evicted before it has found its size.
                link_bytes_saved: Share { at_least: saved / 2.0, at_most },
                faults_saved: Share { at_least: saved / 2.0, at_most: if rest == Rest::Remote { 1.0 } else { saved } },
            },
        };
        let running = Protecting {
            retained,
            rest,
            begun_at: Pressure::of(view).arrived_bytes,
            has_settled: false,
            last: (view.now, Pressure::of(view).arrived_bytes),
            arrived: self.blocks.iter().map(|block| (block.address, block.bytes_htod)).collect(),
            arrived_bytes_before: self.blocks.iter().map(|block| block.bytes_htod).fold(0, u64::saturating_add),
            own_arrived_bytes: arrived_bytes(view.process, view),
            passed_bytes: 0,
        };
        (proposal, Box::new(running))
    }
}

/// Steps that map the rest remotely, on the host: its [`ADVISED_PARTS_MAX`] largest parts.
fn remote(view: &View<'_>, blocks: &[&Block], retained: &RetainedSet) -> Vec<Step> {
    let retained = retained.addresses();
    let mut rest: Vec<u64> =
        blocks.iter().map(|block| block.address).filter(|address| !retained.contains(address)).collect();
    rest.sort_unstable();
    let spacing = control_spacing(BLOCKS_PER_CONTROL, rest.len());
    let is_advised = |(at, _): &(usize, &u64)| at % spacing != spacing / 2;
    let advised = rest.iter().enumerate().filter(is_advised);
    let parts = Intervals::of(advised.map(|(_, address)| (*address, address.saturating_add(BLOCK_BYTES))))
        .largest(ADVISED_PARTS_MAX);
    let advice = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(view.gpu)];
    let all = |advice| parts.iter().map(move |(begin, end)| Step { begin, end, action: Action::Advise(advice) });
    advice.into_iter().flat_map(all).collect()
}

#[derive(Debug)]
struct Protecting {
    retained: RetainedSet,
    rest: Rest,
    /// Cumulative arrived bytes of the GPU at the start of the proposal.
    begun_at: u64,
    /// Whether as many bytes have arrived since as were resident.
    has_settled: bool,
    /// Time of the last arrival, and the cumulative arrived bytes then.
    last: (SystemTime, u64),
    /// Arrivals of each block before the proposal, and their sum.
    arrived: HashMap<u64, u64>,
    arrived_bytes_before: u64,
    /// Cumulative arrived bytes of the process at the last interval.
    own_arrived_bytes: u64,
    passed_bytes: u64,
}

impl Protecting {
    /// Derives the program's progress from arrivals. Only memory that is not retained arrives; the
    /// program has passed a proportional part of the retained memory as well.
    fn record_progress(&mut self, view: &View<'_>) {
        let resident = self.retained.resident_members().filter_map(|address| self.arrived.get(&address));
        let all = self.arrived_bytes_before;
        let moving = all.saturating_sub(resident.copied().fold(0, u64::saturating_add));
        let own_bytes = arrived_bytes(view.process, view);
        let arrived = own_bytes.saturating_sub(self.own_arrived_bytes);
        self.own_arrived_bytes = own_bytes;
        let passed =
            if moving > 0 { u128::from(arrived) * u128::from(all) / u128::from(moving) } else { arrived.into() };
        self.passed_bytes = self.passed_bytes.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX));
    }
}

impl Running for Protecting {
    fn observe(&mut self, view: &View<'_>) {
        self.record_progress(view);
    }

    fn next_steps(&mut self, view: &View<'_>) -> Next {
        let pressure = Pressure::of(view);
        if pressure.arrived_bytes > self.last.1 {
            self.last = (view.now, pressure.arrived_bytes);
        } else if has_passed(QUIET, self.last.0, view.now) {
            return Next::End("no memory has migrated to the GPU for 10 s".to_owned());
        }
        self.has_settled |= pressure.arrived_bytes.saturating_sub(self.begun_at) >= pressure.resident_bytes;
        let steps = self.retained.update(view, 0, || candidates(view));
        if self.retained.is_unused() {
            return Next::End("the retained part is no longer used".to_owned());
        }
        Next::Steps(steps)
    }

    fn record_outcome(&mut self, outcome: &Outcome) {
        self.retained.record_outcome(outcome);
    }

    fn has_settled(&self) -> bool {
        self.has_settled
    }

    fn passed_bytes(&self) -> Option<u64> {
        // Remotely mapped memory does not arrive; the control blocks show its progress.
        (self.rest != Rest::Remote).then_some(self.passed_bytes)
    }
}

/// Addresses of resident blocks, most returns first.
fn candidates(view: &View<'_>) -> Vec<u64> {
    let mut resident: Vec<&Block> = whole_blocks(view).filter(|block| is_mostly_resident(block)).collect();
    resident.sort_by_key(|block| std::cmp::Reverse((block.refetched_bytes, block.last_seen_at)));
    resident.into_iter().map(|block| block.address).collect()
}
