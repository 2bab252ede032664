//! `ping-pong`: keeps memory that a CPU and the GPU use in turn on the host, with remote mappings
//! of the GPU.
//!
//! Parameters: `bounces`, the minimum bounces of a block to be included.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use model::{
    Action, Advice, Block, Expected, Place, Proposal, Range, Share, Step, Verdict, VerdictKind, block::BLOCK_BYTES,
    policy::BOUNCES, verdict::Involved,
};

use crate::act::{
    intervals::Intervals,
    limits::{ADVISED_PARTS_MAX, control_spacing},
    live::live_policy::{LivePolicy, Named, Next, Running, View, has_passed},
};

/// Default minimum of bounces: two round trips.
const BOUNCES_MIN: u64 = 4;
/// Minimum share of the traffic for a range to get advice.
const SHARE: f64 = 0.1;
/// Blocks per control block, which gets no advice and shows the program's progress. With fewer than
/// half of this number, no block is a control block.
const BLOCKS_PER_CONTROL: usize = 32;
/// Time without bounces of the control blocks after which the phase has ended.
const QUIET: Duration = Duration::from_secs(10);

/// Policy for ping-pong.
#[derive(Debug)]
pub(crate) struct PingPong;

#[derive(Debug)]
struct Watching {
    /// Control blocks by address, with the bounces of each.
    controls: BTreeMap<u64, u64>,
    /// Time of the last bounce of a control block.
    bounced_at: SystemTime,
    /// Advised memory.
    memory: Intervals,
}

impl LivePolicy for PingPong {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let verdict = view.verdict(VerdictKind::PingPong).or_else(|| view.verdict(VerdictKind::DriverThrottling))?;
        // The policy maps memory for one GPU. Between two GPUs, the remedies advise a location.
        if verdict.inputs.is_between_gpus() || view.uses_gpu_atomics() {
            return None;
        }
        let least = view.number(&BOUNCES).unwrap_or(BOUNCES_MIN);
        let blocks = bouncing(view, verdict, least);
        let (advised, controls) = split_controls(&blocks);
        let all = clipped(view, verdict, &advised);
        let memory = all.largest(ADVISED_PARTS_MAX);
        if memory.is_empty() {
            return None;
        }
        let advice = [Advice::PreferredLocation(Place::Host), Advice::AccessedBy(view.gpu)];
        let steps = memory
            .iter()
            .flat_map(|(begin, end)| advice.map(|advice| Step { begin, end, action: Action::Advise(advice) }));
        let share = memory.bytes() as f64 / (all.bytes() + controls.len() as u64 * BLOCK_BYTES) as f64;
        let proposal = Proposal {
            process: view.process.id,
            gpu: view.gpu,
            policy: self.name(),
            reason: reason(verdict, memory.bytes(), all.bytes()),
            steps: steps.collect(),
            expected: expected(verdict, share),
        };
        let controls = controls.into_iter().map(|block| (block.address, block.bounces)).collect();
        Some((proposal, Box::new(Watching { controls, bounced_at: view.now, memory })))
    }
}

impl Running for Watching {
    fn next_steps(&mut self, view: &View<'_>) -> Next {
        let is_mapped = |(begin, end)| view.ranges.iter().any(|range| range.begin < end && begin < range.end);
        if !self.memory.iter().any(is_mapped) {
            return Next::End("the memory was freed".to_owned());
        }
        if view.uses_gpu_atomics() {
            return Next::End("the GPU does atomics on it, each of which migrates host memory to the GPU".to_owned());
        }
        for block in view.blocks {
            if let Some(bounces) = self.controls.get_mut(&block.address)
                && *bounces < block.bounces
            {
                *bounces = block.bounces;
                self.bounced_at = view.now;
            }
        }
        if !self.controls.is_empty() && has_passed(QUIET, self.bounced_at, view.now) {
            return Next::End("memory without advice has not bounced for 10 s".to_owned());
        }
        Next::Steps(Vec::new())
    }
}

/// Blocks in the verdict's ranges with at least this number of bounces.
fn bouncing<'a>(view: &View<'a>, verdict: &Verdict, least: u64) -> Vec<&'a Block> {
    let inside = |block: &&Block| {
        involved_ranges(verdict)
            .any(|range| range.begin < block.address.saturating_add(BLOCK_BYTES) && block.address < range.end)
    };
    view.blocks.iter().filter(|block| block.bounces >= least).filter(inside).collect()
}

fn involved_ranges(verdict: &Verdict) -> impl Iterator<Item = &Involved> {
    verdict.ranges.iter().filter(|range| range.traffic_ratio >= SHARE)
}

/// Blocks to advise, and control blocks without advice.
fn split_controls<'a>(blocks: &[&'a Block]) -> (Vec<&'a Block>, Vec<&'a Block>) {
    let spacing = control_spacing(BLOCKS_PER_CONTROL, blocks.len());
    let is_control = |at: usize| blocks.len() >= BLOCKS_PER_CONTROL / 2 && at % spacing == spacing / 4;
    let (controls, advised): (Vec<_>, Vec<_>) = blocks.iter().copied().enumerate().partition(|(at, _)| is_control(*at));
    let bare = |of: Vec<(usize, &'a Block)>| of.into_iter().map(|(_, block)| block).collect();
    (bare(advised), bare(controls))
}

/// Mapped parts of the blocks, within the verdict's ranges.
fn clipped(view: &View<'_>, verdict: &Verdict, blocks: &[&Block]) -> Intervals {
    let is_involved =
        |range: &&&Range| involved_ranges(verdict).any(|each| each.begin < range.end && range.begin < each.end);
    let ranges: Vec<&Range> = view.ranges.iter().filter(is_involved).copied().collect();
    let mut memory = Intervals::default();
    for block in blocks {
        let end = block.address.saturating_add(BLOCK_BYTES);
        let first = ranges.partition_point(|range| range.end <= block.address);
        for range in ranges.iter().skip(first).take_while(|range| range.begin < end) {
            memory.insert(block.address.max(range.begin), end.min(range.end));
        }
    }
    memory
}

fn reason(verdict: &Verdict, bytes: u64, all_bytes: u64) -> String {
    let part = if bytes < all_bytes {
        format!(", in the {ADVISED_PARTS_MAX} largest parts of {} MiB", all_bytes >> 20)
    } else {
        String::new()
    };
    format!(
        "a CPU and the GPU use {} MiB in turn{part}: it stays on the host, mapped remotely by the GPU ({} bounces in a window)",
        bytes >> 20,
        verdict.inputs.bounces
    )
}

/// Expected savings: all faults on advised memory, as far as the verdict's ranges have them, and no
/// more bytes than now.
fn expected(verdict: &Verdict, share: f64) -> Expected {
    let of_traffic: f64 = involved_ranges(verdict).map(|range| range.traffic_ratio).sum::<f64>().clamp(0.0, 1.0);
    Expected {
        link_bytes_saved: Share { at_least: 0.0, at_most: share },
        faults_saved: Share { at_least: 0.8 * share * of_traffic, at_most: share },
    }
}

#[cfg(test)]
mod tests {
    use model::{GpuKey, GpuUuid, Pattern, Process, ProcessId, RangeCounts, Residency, verdict::Inputs};

    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const GPU: GpuUuid = GpuUuid([1; 16]);

    fn verdict(end: u64) -> Verdict {
        let whole = Involved { begin: 0, end, pattern: Pattern::UNKNOWN, traffic_ratio: 1.0, refetch_ratio: 0.0 };
        Verdict {
            process: ProcessId { pid: 1, start_ticks: 1 },
            gpu: GpuKey::Known(GPU),
            peer: None,
            kind: VerdictKind::PingPong,
            started_at: NOW,
            confirmed_at: NOW,
            ended_at: None,
            ranges: vec![whole],
            window: Duration::from_secs(2),
            inputs: Inputs::default(),
            total: Inputs::default(),
            checks: Vec::new(),
        }
    }

    /// Steps and reason of the proposal about a range of `count` blocks, of which these bounce.
    fn proposed(count: u64, bounces: impl Fn(u64) -> bool) -> Proposal {
        let bounces = |at: u64| if bounces(at) { BOUNCES_MIN } else { 0 };
        let block = |at: u64| Block { bounces: bounces(at), ..Block::new(at * BLOCK_BYTES, NOW) };
        let (blocks, end): (Vec<Block>, u64) = ((0..count).map(block).collect(), count * BLOCK_BYTES);
        let (counts, residency) = (RangeCounts::default(), Residency::default());
        let range = Range { begin: 0, end, mapped: true, counts, residency, pattern: Pattern::UNKNOWN };
        let process = Process::new(ProcessId { pid: 1, start_ticks: 1 }, "program");
        let view =
            View { verdicts: &[&verdict(end)], ranges: &[&range], blocks: &blocks, ..View::of_test(&process, GPU) };
        PingPong.propose(&view).unwrap().0
    }

    #[test]
    fn scattered_memory_gets_advice_in_its_largest_parts() {
        // Every second block bounces, and block 1001 between two of them.
        let proposal = proposed(2000, |at| at.is_multiple_of(2) || at == 1001);
        assert_eq!(proposal.steps.len(), 2 * ADVISED_PARTS_MAX);
        assert!(
            proposal.steps.iter().any(|step| step.end - step.begin == 3 * BLOCK_BYTES),
            "the largest part is advised"
        );
        assert!(proposal.reason.contains("in the 128 largest parts of"), "{}", proposal.reason);
        assert!(proposal.expected.faults_saved.at_most < 0.2, "the rest is not promised");
    }

    #[test]
    fn contiguous_memory_gets_advice_except_on_its_control_blocks() {
        for blocks in [100, 2000, 40_000] {
            let proposal = proposed(blocks, |_| true);
            // The journal permits each process 160 ranges with advice, whatever others have.
            assert!(proposal.steps.len() < 160, "{blocks}: {}", proposal.steps.len());
            let advised: u64 = proposal.steps.iter().map(Step::bytes).sum::<u64>() / 2;
            assert!(advised < blocks * BLOCK_BYTES, "{blocks}: some are control blocks");
            assert!(advised >= blocks * BLOCK_BYTES / 100 * 96, "{blocks}: {}", proposal.reason);
        }
    }
}
