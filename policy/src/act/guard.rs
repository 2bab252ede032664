//! Guard: permitted actions, their budgets, and the memory that they may affect.
//!
//! Orders of live policies and moves of plans are charged to the same accounts, so that no process
//! exceeds a budget by using both.
//!
//! * [`permitted`]: conditions for advice and migrations; [`mod@denied`]: drivers and GPUs that hang
//! * [`account`]: spent budgets and pending orders of a process; [`bucket`]: rate limiter
//! * [`room`]: memory available to a process; [`host_reservations`]: host memory that is reserved already
//! * [`plans`]: moves of plans, by the same rules
//! * [`restrictions`]: what the guard currently prevents

mod account;
mod bucket;
pub mod denied;
mod host_reservations;
mod permitted;
mod plans;
mod restrictions;
mod room;

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use account::Account;
use bucket::Bucket;
use host_reservations::HostReservations;
use model::{
    Action, Advice, Call, CallResult, GpuUuid, Outcome, Place, ProcessId, Step, block::BLOCK_BYTES, policy, text,
};
use permitted::{OwnCalls, denied, may_be_duplicated, unknown_advice};
use room::{eviction_victims, exceeds_gpu, is_at_gpu, is_covered, other_fits_gpu, resident_bytes, room_bytes};

use super::{
    limits::{ABSENT_MAX, Limits, RENEWAL_BYTES},
    scene::{Scene, Target},
};

const PAGE_BYTES: u64 = 4096;

/// Admission of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// May be executed.
    Act,
    /// May be reported as a shadow decision, for this reason.
    Shadow(String),
    /// Denied, for this reason.
    Denied(String),
}

/// Guard, with the accounts of all processes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    node: Option<Bucket>,
    processes: BTreeMap<ProcessId, Account>,
    /// Of the current interval; computed when first asked for.
    host_reservations: OnceCell<HostReservations>,
}

/// GPU memory that the migrations of an order may fill, and what the admitted ones fill. Computed
/// once per order: a large order has thousands of steps, and a large GPU tens of thousands of
/// blocks.
struct GpuRoom {
    /// GPU memory that the process may fill or retain; `None` if the total is unknown.
    total_bytes: Option<u64>,
    /// Bytes of admitted migrations to the GPU.
    admitted_bytes: u64,
}

/// Restrictions that apply to all migrations of the process's memory.
#[derive(Clone, Copy)]
struct MigrationRestrictions {
    /// Whether filling GPU memory evicts other processes that fit, and is denied for that reason.
    evicts_others: bool,
    /// Reason why the memory may be read-duplicated, and must not be migrated.
    may_be_duplicated: Option<&'static str>,
}

impl Guard {
    /// Starts an interval with this scene. Drops the accounts of processes unseen for
    /// [`ABSENT_MAX`]. A process may be missing from one snapshot; its budget stays spent.
    pub(crate) fn begin(&mut self, scene: &Scene<'_>) {
        let now = scene.now;
        let present: BTreeSet<ProcessId> = scene.snapshot.processes.iter().map(|process| process.id).collect();
        self.processes.retain(|process, account| {
            if present.contains(process) {
                account.seen_at = now;
            }
            now.duration_since(account.seen_at).map_or(true, |passed| passed <= ABSENT_MAX)
        });
        self.host_reservations.take();
    }

    /// Admission of a proposal of this policy with these steps.
    pub(crate) fn admission(&self, policy: &str, steps: &[Step], target: &Target<'_>) -> Admission {
        let actions: BTreeSet<Action> = steps.iter().map(|step| step.action).collect();
        if let Some(why) = actions.iter().find_map(|action| permission_denial(policy, *action)) {
            return Admission::Denied(why);
        }
        let restrictions = self.migration_restrictions(target);
        if let Some(why) = actions.iter().find_map(|action| self.denial(*action, restrictions, target)) {
            return Admission::Denied(why);
        }
        if actions.into_iter().any(Action::maps_remotely) && is_unmetered(target) {
            return Admission::Shadow(NO_LINK.to_owned());
        }
        Admission::Act
    }

    /// Splits the steps of a policy into those that may be ordered now, which are charged, and
    /// denied ones with the reason.
    pub(crate) fn admit_steps(
        &mut self,
        policy: &str,
        steps: Vec<Step>,
        target: &Target<'_>,
        limits: &Limits,
    ) -> (Vec<Step>, Vec<Call>) {
        let (mut admitted, mut denied) = (Vec::new(), Vec::new());
        let restrictions = self.migration_restrictions(target);
        let mut gpu_room = GpuRoom { total_bytes: room_bytes(target, limits), admitted_bytes: 0 };
        let mut denials: BTreeMap<Action, Option<String>> = BTreeMap::new();
        for step in steps {
            let denial = denials.entry(step.action).or_insert_with(|| {
                permission_denial(policy, step.action)
                    .or_else(|| self.denial(step.action, restrictions, target))
                    .or_else(|| (step.action.maps_remotely() && is_unmetered(target)).then(|| NO_LINK.to_owned()))
            });
            if let Some(why) = denial {
                denied.push(Call { step, result: CallResult::Denied(why.clone()), duration_ns: 0 });
                continue;
            }
            for (step, verdict) in self.admit(step, &mut gpu_room, target, limits) {
                match verdict {
                    Ok(()) => admitted.push(step),
                    Err(why) => denied.push(Call { step, result: CallResult::Denied(why), duration_ns: 0 }),
                }
            }
        }
        if !admitted.is_empty() {
            self.account(target, limits).pending_orders += 1;
        }
        (admitted, denied)
    }

    /// Splits a step into parts, each admitted and charged, or denied with the reason.
    fn admit(
        &mut self,
        step: Step,
        gpu_room: &mut GpuRoom,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Vec<(Step, Result<(), String>)> {
        if step.begin >= step.end || !step.begin.is_multiple_of(PAGE_BYTES) || !step.end.is_multiple_of(PAGE_BYTES) {
            return vec![(step, Err("it is not page-aligned".to_owned()))];
        }
        if !is_covered(&step, target) {
            return vec![(step, Err("it is outside the memory of the override".to_owned()))];
        }
        match step.action {
            Action::Migrate(place) => self.admit_migration(step, place, gpu_room, target, limits),
            Action::Touch(_) => self.admit_renewal(step, gpu_room, target, limits),
            Action::Advise(Advice::PreferredLocation(Place::Host)) => {
                let left = self.host_left(target, limits);
                let bytes = resident_bytes(&step, target);
                if bytes > left {
                    return vec![(step, Err(host_memory_shortage(left)))];
                }
                let host_preferred = &mut self.account(target, limits).host_preferred;
                if !host_preferred.covers(step.begin, step.end) {
                    host_preferred.insert(step.begin, step.end);
                    self.reserve_host(bytes, target);
                }
                vec![(step, Ok(()))]
            }
            Action::Advise(_) | Action::Withdraw(_) => vec![(step, Ok(()))],
        }
    }

    fn admit_migration(
        &mut self,
        step: Step,
        place: Place,
        gpu_room: &mut GpuRoom,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Vec<(Step, Result<(), String>)> {
        let (budget, why_budget) = self.budget_left(target, limits);
        let (room, why_room) = match place {
            Place::Host => {
                let left = self.host_left(target, limits);
                (left, host_memory_shortage(left))
            }
            Place::Gpu(_) if headroom(target).is_some_and(|headroom| headroom < limits.host_reserve_bytes) => {
                (0, host_memory_shortage(0))
            }
            Place::Gpu(_) => self.gpu_left(gpu_room, target, limits),
        };
        let (most, why) = if budget <= room { (budget, why_budget) } else { (room, why_room) };
        if step.bytes() <= most {
            self.charge(&step, place, gpu_room, target, limits);
            return vec![(step, Ok(()))];
        }
        // Whole blocks: the driver migrates them best.
        let end = step.begin.saturating_add(most) / BLOCK_BYTES * BLOCK_BYTES;
        if end <= step.begin {
            return vec![(step, Err(why))];
        }
        let first = Step { end, ..step };
        self.charge(&first, place, gpu_room, target, limits);
        vec![(first, Ok(())), (Step { begin: end, ..step }, Err(why))]
    }

    fn admit_renewal(
        &mut self,
        step: Step,
        gpu_room: &GpuRoom,
        target: &Target<'_>,
        limits: &Limits,
    ) -> Vec<(Step, Result<(), String>)> {
        let now = target.scene.now;
        let (room, why_room) = self.gpu_left(gpu_room, target, limits);
        let (budget, why_budget) = self.budget_left(target, limits);
        let reserved_blocks = self.account(target, limits).reserved_blocks.entry(target.gpu).or_default();
        let (mut fits, mut affordable) = (room / BLOCK_BYTES, budget / RENEWAL_BYTES);
        let (mut end, mut charged) = (step.begin, 0_u64);
        let why = loop {
            if end >= step.end {
                break None;
            }
            let block = end / BLOCK_BYTES * BLOCK_BYTES;
            let is_new = !reserved_blocks.contains_key(&block);
            match (affordable.checked_sub(1), fits.checked_sub(u64::from(is_new))) {
                (None, _) => break Some(why_budget),
                (_, None) => break Some(why_room),
                (Some(left), Some(room)) => (affordable, fits) = (left, room),
            }
            reserved_blocks.insert(block, now);
            charged += RENEWAL_BYTES;
            end = block.saturating_add(BLOCK_BYTES).min(step.end);
        };
        self.spend(charged, target, limits);
        let mut parts = vec![(Step { end, ..step }, Ok(()))];
        parts.extend(why.map(|why| (Step { begin: end, ..step }, Err(why))));
        parts.retain(|(part, _)| part.begin < part.end);
        parts
    }

    /// Reason why this action is denied for the process, whatever the step.
    fn denial(&self, action: Action, restrictions: MigrationRestrictions, target: &Target<'_>) -> Option<String> {
        if let Some(row) = denied(action, target) {
            return Some(format!("with this driver and GPU, {}: {}", row.why, row.url));
        }
        match action {
            Action::Advise(_) => self.unknown_advice(target),
            Action::Withdraw(_) => None,
            Action::Migrate(_) | Action::Touch(_) => {
                let evicts_others = restrictions.evicts_others && action != Action::Migrate(Place::Host);
                let why = "it is larger than the GPU, and already evicts processes that fit";
                restrictions.may_be_duplicated.or(evicts_others.then_some(why)).map(str::to_owned)
            }
        }
    }

    fn migration_restrictions(&self, target: &Target<'_>) -> MigrationRestrictions {
        MigrationRestrictions {
            evicts_others: self.evicts_others(target),
            may_be_duplicated: may_be_duplicated(target),
        }
    }

    /// Whether the process exceeds the GPU, and evicts another process that fits or is protected
    /// from eviction by reserved blocks.
    fn evicts_others(&self, target: &Target<'_>) -> bool {
        if !exceeds_gpu(target) {
            return false;
        }
        let with_reserved =
            self.processes.iter().filter(|(_, account)| account.reserved_blocks.contains_key(&target.gpu));
        let mut affected = with_reserved.map(|(other, _)| *other).chain(eviction_victims(target));
        affected.any(|other| other_fits_gpu(target, other))
    }

    /// Reason why the process may neither get nor keep advice.
    pub(crate) fn unknown_advice(&self, target: &Target<'_>) -> Option<String> {
        let account = self.processes.get(&target.process.id);
        if let Some(why) = account.and_then(|account| account.withdrawal_error.clone()) {
            return Some(why);
        }
        let own = account.map_or(OwnCalls::NONE, Account::own_calls);
        unknown_advice(target, own).map(str::to_owned)
    }

    /// Bytes that may be migrated now, and a description of the budget that limits them.
    fn budget_left(&mut self, target: &Target<'_>, limits: &Limits) -> (u64, String) {
        let now = target.scene.now;
        let budget = target.directive.budget;
        let rate = budget
            .bytes_per_second
            .map_or(limits.process_bytes_per_second, |rate| rate.min(limits.process_bytes_per_second));
        let node = self
            .node
            .get_or_insert_with(|| Bucket::full(limits.node_bytes_per_second, now))
            .left(limits.node_bytes_per_second, now);
        let account = self.account(target, limits);
        let process = account.bucket.left(rate, now);
        let in_all = budget.bytes.map_or(u64::MAX, |bytes| bytes.saturating_sub(account.moved_bytes));
        let least = node.min(process).min(in_all);
        let why = if least == in_all {
            budget_exhausted(budget.bytes.unwrap_or(0))
        } else if least == process {
            format!("the rate limit of the process is {}/s", text::bytes(rate))
        } else {
            format!("the rate limit of the node is {}/s", text::bytes(limits.node_bytes_per_second))
        };
        (least, why)
    }

    fn charge(&mut self, step: &Step, place: Place, gpu_room: &mut GpuRoom, target: &Target<'_>, limits: &Limits) {
        self.spend(step.bytes(), target, limits);
        if place == Place::Host {
            let account = self.account(target, limits);
            account.pending_to_host_bytes = account.pending_to_host_bytes.saturating_add(step.bytes());
            self.reserve_host(step.bytes(), target);
        } else {
            gpu_room.admitted_bytes = gpu_room.admitted_bytes.saturating_add(step.bytes());
        }
    }

    fn spend(&mut self, bytes: u64, target: &Target<'_>, limits: &Limits) {
        if let Some(node) = &mut self.node {
            node.take(bytes);
        }
        self.charge_process(bytes, target, limits);
    }

    /// Charges bytes to the process, but not to the node.
    pub(crate) fn charge_process(&mut self, bytes: u64, target: &Target<'_>, limits: &Limits) {
        let account = self.account(target, limits);
        account.bucket.take(bytes);
        account.moved_bytes = account.moved_bytes.saturating_add(bytes);
    }

    /// Adds bytes of the process to the reservations, if they were computed before its account had them.
    fn reserve_host(&mut self, bytes: u64, target: &Target<'_>) {
        if let Some(reservations) = self.host_reservations.get_mut() {
            reservations.add(target.process.cgroup.as_deref(), bytes);
        }
    }

    /// Host memory in bytes that may be filled for the process. Reservations for any process reduce the
    /// headroom of the node, and those for processes of the same cgroup the headroom of the cgroup.
    fn host_left(&self, target: &Target<'_>, limits: &Limits) -> u64 {
        let left = |bytes: u64, promised: u64| bytes.saturating_sub(limits.host_reserve_bytes).saturating_sub(promised);
        let reservations = self.host_reservations.get_or_init(|| HostReservations::of(target.scene, &self.processes));
        let of_cgroup = reservations.cgroup_bytes(target.process.cgroup.as_deref());
        left(target.scene.node_headroom_bytes, reservations.node_bytes())
            .min(left(headroom(target).unwrap_or(0), of_cgroup))
    }

    /// GPU memory in bytes that may be filled or retained for the process, without its reserved
    /// blocks, and the reason for the limit.
    fn gpu_left(&mut self, gpu_room: &GpuRoom, target: &Target<'_>, limits: &Limits) -> (u64, String) {
        let Some(room) = gpu_room.total_bytes else {
            return (0, NO_GPU_MEMORY.to_owned());
        };
        let blocks = self.account(target, limits).reserved_blocks.get(&target.gpu).map_or(0, BTreeMap::len);
        let reserved_bytes = (blocks as u64 * BLOCK_BYTES).saturating_add(gpu_room.admitted_bytes);
        (
            room.saturating_sub(reserved_bytes),
            format!(
                "others leave {} of the GPU, of which {} are reserved already",
                text::bytes(room),
                text::bytes(reserved_bytes)
            ),
        )
    }

    /// Removes the reservations of blocks that have left the GPU. Recent ones remain, because a
    /// new block may not be visible yet.
    pub(crate) fn release_reservations(&mut self, target: &Target<'_>, limits: &Limits) {
        let now = target.scene.now;
        let reserved_blocks =
            self.processes.get_mut(&target.process.id).and_then(|account| account.reserved_blocks.get_mut(&target.gpu));
        if let Some(reserved_blocks) = reserved_blocks {
            let is_new = |at: SystemTime| now.duration_since(at).is_ok_and(|passed| passed <= limits.window);
            reserved_blocks.retain(|address, at| is_at_gpu(*address, target) || is_new(*at));
        }
    }

    /// Removes all reservations of a process at a GPU, after the end of a decision.
    pub(crate) fn release_all(&mut self, process: ProcessId, gpu: GpuUuid) {
        if let Some(account) = self.processes.get_mut(&process) {
            account.reserved_blocks.remove(&gpu);
        }
    }

    /// Records the outcome of an order.
    pub(crate) fn record_outcome(&mut self, outcome: &Outcome) {
        if let Some(account) = self.processes.get_mut(&outcome.process) {
            account.record_outcome(outcome);
        }
    }

    /// Counts a pending withdrawal by uvmd.
    pub(crate) fn count_withdrawal(&mut self, process: ProcessId) {
        if let Some(account) = self.processes.get_mut(&process) {
            account.pending_orders = account.pending_orders.saturating_add(1);
        }
    }

    /// Sets the error of a failed withdrawal, or clears it.
    pub(crate) fn set_withdrawal_error(&mut self, process: ProcessId, why: Option<String>) {
        if let Some(account) = self.processes.get_mut(&process) {
            account.withdrawal_error = why;
        }
    }

    fn account(&mut self, target: &Target<'_>, limits: &Limits) -> &mut Account {
        self.processes
            .entry(target.process.id)
            .or_insert_with(|| Account::new(limits.process_bytes_per_second, target.scene.now))
    }
}

const NO_LINK: &str = "the GPU's link traffic is not measured, and remote accesses raise no faults";
const NO_GPU_MEMORY: &str = "the GPU's memory size is unknown";

fn budget_exhausted(budget_bytes: u64) -> String {
    format!("the budget of {} is used up", text::bytes(budget_bytes))
}

/// Whether the traffic of the GPU's link is not measured.
pub(crate) fn is_unmetered(target: &Target<'_>) -> bool {
    !target.scene.links.contains_key(&target.gpu)
}

fn headroom(target: &Target<'_>) -> Option<u64> {
    target.scene.headroom_bytes.get(&target.process.id).copied()
}

fn host_memory_shortage(left: u64) -> String {
    format!("too little host memory: {} are available for it", text::bytes(left))
}

/// Reason why a policy may not order an action: its row in the registry does not list it.
/// Withdrawals need no permission.
fn permission_denial(policy: &str, action: Action) -> Option<String> {
    let is_permitted = || policy::named(policy).is_some_and(|row| row.actions.contains(&action.name()));
    let needs_none = matches!(action, Action::Withdraw(_));
    (!needs_none && !is_permitted()).then(|| format!("{policy} has no permission for {}", action.name()))
}
