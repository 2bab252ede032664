//! What a plan for managed memory does besides what it is about: memory for what is born, before it is touched, and none for what is dead.
//!
//! Without that, first touches fault, and the driver moves what nobody needs any more.

use trace::{
    Iteration, KernelId, TensorId,
    id::{Id, Table},
};

use super::{Act, Action, Tier};

const MIB: u64 = 1 << 20;

/// How long memory takes to become there: 2 us for each block, as by the driver when it is asked for.
const FILL_NS_PER_BYTE: f64 = 1e3 / MIB as f64;

/// A part of so many bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; no part is negative")]
pub(super) fn part(bytes: u64, part: f64) -> u64 {
    (bytes as f64 * part) as u64
}

/// What a tensor takes: whole blocks of 2 MiB if it is large, or the granules of 64 KiB that are moved together.
pub(super) fn footprint_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes >= MIB { 2 * MIB } else { MIB / 16 })
}

/// Footprints by tensor.
pub(super) fn footprints(iteration: &Iteration) -> Table<TensorId, u64> {
    iteration.tensors().values().iter().map(|tensor| footprint_bytes(tensor.bytes)).collect()
}

/// Bytes of what is alive at each kernel.
pub(super) fn load_bytes(iteration: &Iteration, footprints: &Table<TensorId, u64>) -> Table<KernelId, u64> {
    let persistent = iteration.tensors().iter().filter(|(_, tensor)| tensor.persistent);
    let mut live: u64 = persistent.map(|(id, _)| footprints[id]).sum();
    let at_each = iteration.kernels().ids().map(|kernel| {
        live += iteration.births(kernel).map(|tensor| footprints[tensor]).sum::<u64>();
        let now = live;
        live -= iteration.deaths(kernel).map(|tensor| footprints[tensor]).sum::<u64>();
        now
    });
    at_each.collect()
}

/// Drops what is dead.
pub(super) fn drops(iteration: &Iteration) -> Vec<Action> {
    let ends =
        iteration.kernels().ids().flat_map(|kernel| iteration.deaths(kernel).map(move |tensor| (kernel, tensor)));
    ends.map(|(kernel, tensor)| Action { begin: next(kernel), tensor, act: Act::Drop, part: None, done_before: None })
        .collect()
}

/// Memory for what is born, as long before as it takes, but not where that would bring the load above the line; it is added to the load. What the CPU has
/// made is brought. Those who are not wanted have it.
pub(super) fn births(
    iteration: &Iteration,
    footprints: &Table<TensorId, u64>,
    load: &mut Table<KernelId, u64>,
    line_bytes: u64,
    is_wanted: impl Fn(TensorId) -> bool,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for birth in iteration.kernels().ids() {
        for tensor in iteration.births(birth).filter(|&tensor| is_wanted(tensor)) {
            let action = |begin, act| Action { begin, tensor, act, part: None, done_before: None };
            let by_cpu = iteration.uses(tensor).first().is_some_and(|first| first.access.reads());
            if by_cpu {
                actions.push(action(birth, Act::Move(Tier::Gpu)));
                continue;
            }
            let bytes = footprints[tensor];
            let mut begin = birth;
            while let Some(before) = begin.index().checked_sub(1).map(KernelId::new) {
                let lead_ns = iteration.start_ns(birth) - iteration.start_ns(begin);
                if lead_ns as f64 >= bytes as f64 * FILL_NS_PER_BYTE || load[before] + bytes > line_bytes {
                    break;
                }
                load[before] += bytes;
                begin = before;
            }
            actions.push(action(begin, Act::Allocate));
        }
    }
    actions
}

fn next(kernel: KernelId) -> KernelId {
    KernelId::new(kernel.index() + 1)
}
