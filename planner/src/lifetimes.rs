//! Births and deaths: allocation of tensors before their first touch, and drops of dead ones, as
//! every plan for managed memory needs them.
//!
//! Without them first touches fault, and the driver migrates dead data.

use trace::{
    Iteration, KernelId, TensorId,
    id::{Id, Table},
};

use super::{Act, Action, Tier};

const MIB: u64 = 1 << 20;

/// Time to populate memory: 2 us for each block, as by the driver on request.
const POPULATE_NS_PER_BYTE: f64 = 1e3 / MIB as f64;

/// A share of some bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; no share is negative")]
pub(super) fn share(bytes: u64, share: f64) -> u64 {
    (bytes as f64 * share) as u64
}

/// Memory of a tensor: whole blocks of 2 MiB if it is large, else the granules of 64 KiB that
/// migrate together.
pub(super) fn footprint_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes >= MIB { 2 * MIB } else { MIB / 16 })
}

/// Footprints by tensor.
pub(super) fn footprints(iteration: &Iteration) -> Table<TensorId, u64> {
    iteration.tensors().values().iter().map(|tensor| footprint_bytes(tensor.bytes)).collect()
}

/// Live bytes at each kernel.
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

/// Drops of dead tensors.
pub(super) fn drops(iteration: &Iteration) -> Vec<Action> {
    let ends =
        iteration.kernels().ids().flat_map(|kernel| iteration.deaths(kernel).map(move |tensor| (kernel, tensor)));
    ends.map(|(kernel, tensor)| Action { begin: next(kernel), tensor, act: Act::Drop, part: None, done_before: None })
        .collect()
}

/// Allocations of tensors before their birth, ahead by the time that they take, as far as the load
/// stays within the budget. The load grows by them. Tensors that the CPU writes are migrated
/// instead. Tensors for which `needs_memory` is false have memory already.
pub(super) fn births(
    iteration: &Iteration,
    footprints: &Table<TensorId, u64>,
    load: &mut Table<KernelId, u64>,
    budget_bytes: u64,
    needs_memory: impl Fn(TensorId) -> bool,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for birth in iteration.kernels().ids() {
        for tensor in iteration.births(birth).filter(|&tensor| needs_memory(tensor)) {
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
                if lead_ns as f64 >= bytes as f64 * POPULATE_NS_PER_BYTE || load[before] + bytes > budget_bytes {
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
