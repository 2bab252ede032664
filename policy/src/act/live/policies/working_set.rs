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
        let remote = (rest == Rest::Remote).then(|| RemoteRest::of(&self.blocks, &retained));
        if let Some(remote) = &remote {
            steps.extend(remote.steps(view));
        }
        let inputs = &self.verdict.inputs;
        let arrived = inputs.bytes_htod.saturating_add(inputs.populated_bytes).max(1);
        let returned = (inputs.refetched_bytes as f64 / arrived as f64).min(1.0);
        let saved = self.share() * returned;
        // Remotely mapped memory neither arrives nor faults. The rest of it still does.
        let at_most = remote.as_ref().map_or(saved, |remote| 1.0 - (1.0 - self.share()) * (1.0 - remote.share()));
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
                remote
                    .as_ref()
                    .map_or_else(|| "streamed through the remaining memory".to_owned(), RemoteRest::description),
            ),
            steps,
            expected: Expected {
                // Half of the set may be evicted before it has found its size.
                link_bytes_saved: Share { at_least: saved / 2.0, at_most },
                faults_saved: Share { at_least: saved / 2.0, at_most },
            },
        };
        let running = Protecting {
            retained,
            rest,
            arrived_bytes_at_start: Pressure::of(view).arrived_bytes,
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

/// Parts of the rest that are mapped remotely, on the host: the [`ADVISED_PARTS_MAX`] largest between control blocks.
struct RemoteRest {
    parts: Intervals,
    is_limited: bool,
    all_bytes: u64,
}

impl RemoteRest {
    fn of(blocks: &[&Block], retained: &RetainedSet) -> Self {
        let retained = retained.addresses();
        let mut rest: Vec<u64> =
            blocks.iter().map(|block| block.address).filter(|address| !retained.contains(address)).collect();
        rest.sort_unstable();
        let spacing = control_spacing(BLOCKS_PER_CONTROL, rest.len());
        let is_advised = |(at, _): &(usize, &u64)| at % spacing != spacing / 2;
        let advised = rest.iter().enumerate().filter(is_advised);
        let all = Intervals::of(advised.map(|(_, address)| (*address, address.saturating_add(BLOCK_BYTES))));
        let parts = all.largest(ADVISED_PARTS_MAX);
        let all_bytes = (rest.len() as u64).saturating_mul(BLOCK_BYTES);
        Self { is_limited: parts != all, parts, all_bytes }
    }

    /// Share of the rest that is mapped remotely.
    fn share(&self) -> f64 {
        if self.all_bytes == 0 { 1.0 } else { self.parts.bytes() as f64 / self.all_bytes as f64 }
    }

    fn description(&self) -> String {
        let parts = if self.is_limited {
            format!(" in its {ADVISED_PARTS_MAX} largest parts of {} MiB", self.parts.bytes() >> 20)
        } else {
            String::new()
        };
        format!("mapped remotely{parts}")
    }

    fn steps(&self, view: &View<'_>) -> impl Iterator<Item = Step> {
        let advice = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(view.gpu)];
        let all =
            |advice| self.parts.iter().map(move |(begin, end)| Step { begin, end, action: Action::Advise(advice) });
        advice.into_iter().flat_map(all)
    }
}

#[derive(Debug)]
struct Protecting {
    retained: RetainedSet,
    rest: Rest,
    /// Cumulative arrived bytes of the GPU at the start of the proposal.
    arrived_bytes_at_start: u64,
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
        self.has_settled |=
            pressure.arrived_bytes.saturating_sub(self.arrived_bytes_at_start) >= pressure.resident_bytes;
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{GpuKey, GpuUuid, Pattern, Process, ProcessId, Range, RangeCounts, Residency, verdict::Inputs};

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const GPU: GpuUuid = GpuUuid([1; 16]);

    /// Proposal with the rest mapped remotely, for 800 blocks, of which the GPU has these 400.
    fn proposed(is_resident: impl Fn(u64) -> bool) -> Proposal {
        let key = GpuKey::Known(GPU);
        let block = |at: u64| {
            let rounds = if is_resident(at) { 4 } else { 1 };
            let resident = if is_resident(at) { Residency::exactly(BLOCK_BYTES) } else { Residency::default() };
            let bytes = rounds * BLOCK_BYTES;
            let block = Block::new(at * BLOCK_BYTES, NOW);
            Block { gpu: Some(key), bytes_htod: bytes, refetched_bytes: bytes, resident, ..block }
        };
        let blocks: Vec<Block> = (0..800).map(block).collect();
        let (counts, residency) = (RangeCounts::default(), Residency::default());
        let range =
            Range { begin: 0, end: 800 * BLOCK_BYTES, mapped: true, counts, residency, pattern: Pattern::UNKNOWN };
        let process = Process::new(ProcessId { pid: 1, start_ticks: 1 }, "program");
        let verdict = Verdict {
            process: process.id,
            gpu: key,
            peer: None,
            kind: VerdictKind::CapacityThrash,
            started_at: NOW,
            confirmed_at: NOW,
            ended_at: None,
            ranges: Vec::new(),
            window: Duration::from_secs(2),
            inputs: Inputs { bytes_htod: BLOCK_BYTES, refetched_bytes: BLOCK_BYTES, ..Inputs::default() },
            total: Inputs::default(),
            checks: Vec::new(),
        };
        let view = View {
            verdicts: &[&verdict],
            ranges: &[&range],
            blocks: &blocks,
            renewals_per_second: 100_000,
            parameters: &BTreeMap::from([("rest".to_owned(), "remote".to_owned())]),
            ..View::of_test(&process, GPU)
        };
        WorkingSet::of(&view).unwrap().propose(&view, "cycle", "test").0
    }

    fn remote_parts(proposal: &Proposal) -> usize {
        let advice = Action::Advise(Advice::AccessedBy(GPU));
        proposal.steps.iter().filter(|step| step.action == advice).count()
    }

    #[test]
    fn scattered_rest_is_mapped_remotely_in_its_largest_parts() {
        let proposal = proposed(|at| at.is_multiple_of(2));
        assert_eq!(remote_parts(&proposal), ADVISED_PARTS_MAX);
        assert!(proposal.reason.contains("mapped remotely in its 128 largest parts of"), "{}", proposal.reason);
        let Expected { link_bytes_saved, faults_saved } = proposal.expected;
        assert!(link_bytes_saved.at_most < 0.9 && faults_saved.at_most < 0.9, "{:?}", proposal.expected);
        assert!(link_bytes_saved.at_most > 0.8, "retained memory does not arrive: {link_bytes_saved:?}");
    }

    #[test]
    fn contiguous_rest_is_mapped_remotely_except_for_its_control_blocks() {
        let proposal = proposed(|at| at < 400);
        assert!((25..30).contains(&remote_parts(&proposal)), "{}", remote_parts(&proposal));
        assert!(proposal.reason.ends_with("the rest is mapped remotely"), "{}", proposal.reason);
        assert!(proposal.expected.faults_saved.at_most > 0.95, "{:?}", proposal.expected);
    }
}
