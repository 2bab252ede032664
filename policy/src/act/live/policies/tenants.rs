//! `tenants`: a process whose memory would fit loses it to another process, which walks through
//! more memory than the GPU has. Evictions of its own memory cost the walk nothing, because it
//! needs that memory again only after it was evicted anyway. The policy retains the memory of the
//! process that fits, so that the walk evicts its own.

use std::time::{Duration, SystemTime};

use model::{Action, Block, Expected, Outcome, Place, Process, Proposal, Share, block::BLOCK_BYTES, verdict::Victim};

use super::{
    renewal_rate::OTHER_MIN_BYTES,
    retention::{Claim, Pressure, RetainedSet, arrived_bytes, is_mostly_resident, sorted_steps, whole_blocks},
};
use crate::act::live::live_policy::{LivePolicy, Named, Next, Running, View, has_passed};

/// Minimum bytes that a victim loses to other processes in a window: two blocks.
const LOST_MIN_BYTES: u64 = 2 * BLOCK_BYTES;
/// Time without arrivals for other processes after which the pressure has ended.
const QUIET: Duration = Duration::from_secs(10);

/// Policy for processes that share a GPU.
#[derive(Debug)]
pub(crate) struct Tenants;

impl LivePolicy for Tenants {
    fn propose(&self, view: &View<'_>) -> Option<(Proposal, Box<dyn Running>)> {
        let lost = |victim: &&Victim| victim.victim == view.process.id && victim.evictor != view.process.id;
        let lost_bytes = view.victims.iter().filter(lost).map(|victim| victim.bytes).fold(0, u64::saturating_add);
        if lost_bytes < LOST_MIN_BYTES {
            return None;
        }
        let pressure = Pressure::of(view);
        let own: Vec<&Block> = in_use(view).collect();
        let own_bytes = (own.len() as u64).saturating_mul(BLOCK_BYTES);
        if own.is_empty() || own_bytes.saturating_add(OTHER_MIN_BYTES) > pressure.resident_bytes {
            return None;
        }
        // An evictor that would fit, too, may need the memory that it would lose. uvmd does not
        // rank such processes.
        let evictor = view.victims.iter().filter(lost).max_by_key(|victim| victim.bytes)?.evictor;
        let (evictor, evictor_blocks) = view.others().find(|(other, _)| other.id == evictor)?;
        if walked_bytes(view, evictor_blocks) <= pressure.resident_bytes {
            return None;
        }
        let mut retained = RetainedSet::new(view, own.iter().map(|block| block.address), 0, 0, Claim::All);
        let evicted = own
            .iter()
            .filter(|block| !is_mostly_resident(block) && was_mostly_resident(block))
            .map(|block| block.address);
        let mut steps = retained.renew_all(view);
        steps.extend(sorted_steps(evicted, Action::Migrate(Place::Gpu(view.gpu))));
        let proposal = Proposal {
            process: view.process.id,
            gpu: view.gpu,
            policy: self.name(),
            reason: format!(
                "{} lost {} MiB to {} in a window: its {} MiB fit, and {} walks through more than the GPU holds",
                view.process.name,
                lost_bytes >> 20,
                evictor.name,
                own_bytes >> 20,
                evictor.name,
            ),
            steps,
            expected: Expected {
                // All fetched memory was lost before. Some may be lost again until the set has
                // found its size.
                link_bytes_saved: Share { at_least: 0.5, at_most: 1.0 },
                faults_saved: Share { at_least: 0.5, at_most: 1.0 },
            },
        };
        Some((proposal, Box::new(Protecting { retained, others: (view.now, others_arrived(view)) })))
    }
}

#[derive(Debug)]
struct Protecting {
    retained: RetainedSet,
    /// Time of the last arrival for other processes, and the cumulative bytes then.
    others: (SystemTime, u64),
}

impl Running for Protecting {
    fn next_steps(&mut self, view: &View<'_>) -> Next {
        let arrived = others_arrived(view);
        if arrived > self.others.1 {
            self.others = (view.now, arrived);
        } else if has_passed(QUIET, self.others.0, view.now) {
            return Next::End("no memory of other processes has migrated to the GPU for 10 s".to_owned());
        }
        let steps = self.retained.update(view, 0, || in_use(view).map(|block| block.address).collect());
        if self.retained.is_unused() {
            return Next::End("the retained part is no longer used".to_owned());
        }
        Next::Steps(steps)
    }

    fn record_outcome(&mut self, outcome: &Outcome) {
        self.retained.record_outcome(outcome);
    }
}

/// Whole blocks that the process uses at the GPU.
fn in_use<'a>(view: &View<'a>) -> impl Iterator<Item = &'a Block> {
    whole_blocks(view).filter(|block| block.is_used())
}

/// Whether most of the block was evicted, so that a migration of the whole block restores it.
const fn was_mostly_resident(block: &Block) -> bool {
    block.evicted_bytes > BLOCK_BYTES / 2
}

/// Bytes of the blocks that another process uses at the GPU.
fn walked_bytes(view: &View<'_>, blocks: &[Block]) -> u64 {
    let is_used = |block: &&Block| block.gpu == Some(view.key()) && block.is_used();
    (blocks.iter().filter(is_used).count() as u64).saturating_mul(BLOCK_BYTES)
}

fn others_arrived(view: &View<'_>) -> u64 {
    let arrived = |other: &Process| arrived_bytes(other, view);
    view.others().map(|(other, _)| arrived(other)).fold(0, u64::saturating_add)
}
