//! Replay of a schedule by the clock, independent of the planner: location of every tensor, and
//! bytes on the GPU, over time.

use std::collections::HashMap;

use planner::{Act, Machine, Schedule, Tier};
use trace::{Iteration, TensorId};

/// Iterations that are replayed; those from the third on are measured.
const ITERATIONS: usize = 8;
const SETTLED: usize = 2;

pub(crate) struct Replay {
    /// Duration of each measured iteration.
    pub(crate) duration_ns: Vec<u64>,
    /// Peak of bytes on the GPU in the measured iterations.
    pub(crate) peak_bytes: u64,
}

/// A stay of bytes on the GPU: begin, end, bytes.
type Stay = (u64, u64, u64);

/// # Panics
/// If a kernel runs with a tensor that is not on the GPU.
pub(crate) fn replay(iteration: &Iteration, machine: &Machine, schedule: &Schedule) -> Replay {
    let (mut now, mut out_free, mut back_free) = (0, 0, 0);
    let mut done = vec![0; schedule.actions().len()];
    // Arrival of tensors on the GPU; for those on the host or in transfer, the future arrival.
    let mut arrivals: HashMap<TensorId, u64> = HashMap::new();
    let mut away: HashMap<TensorId, Option<u64>> = HashMap::new();
    let (mut stays, mut began): (Vec<Stay>, Vec<u64>) = (Vec::new(), Vec::new());
    for (id, _) in iteration.tensors().iter().filter(|(_, tensor)| tensor.persistent) {
        arrivals.insert(id, 0);
    }
    for turn in 0..ITERATIONS {
        began.push(now);
        for (id, kernel) in iteration.kernels().iter() {
            for (place, action) in schedule.actions().iter().enumerate().filter(|(_, action)| action.begin == id) {
                let bytes = iteration.tensors()[action.tensor].bytes;
                if action.act == Act::Move(Tier::Host) {
                    out_free = now.max(out_free) + machine.host.out.transfer_ns(bytes);
                    done[place] = out_free;
                    // An eviction that wraps and did not happen in the iteration before the first
                    // has no effect.
                    if let Some(arrived) = arrivals.remove(&action.tensor) {
                        stays.push((arrived, out_free, bytes));
                    }
                    away.insert(action.tensor, None);
                } else {
                    let start = now.max(back_free);
                    back_free = start + machine.host.back.transfer_ns(bytes);
                    done[place] = back_free;
                    if away.contains_key(&action.tensor) {
                        arrivals.insert(action.tensor, start);
                        away.insert(action.tensor, Some(back_free));
                    }
                }
            }
            for (place, action) in schedule.actions().iter().enumerate() {
                if action.done_before == Some(id) && (turn > 0 || action.begin <= id) {
                    now = now.max(done[place]);
                }
            }
            for operand in iteration.operands(id) {
                if let Some(arrival) = away.remove(&operand.tensor) {
                    let is_on_gpu = arrival.is_some_and(|arrival| arrival <= now);
                    assert!(
                        is_on_gpu || turn == 0,
                        "kernel {id} at {now} needs tensor {}: {arrival:?}",
                        operand.tensor
                    );
                }
            }
            for born in iteration.births(id) {
                arrivals.insert(born, now);
            }
            now += kernel.duration_ns;
            for dead in iteration.deaths(id) {
                // A dying tensor is on the GPU, since it was used.
                let arrived = arrivals.remove(&dead).unwrap();
                stays.push((arrived, now, iteration.tensors()[dead].bytes));
            }
        }
    }
    stays.extend(arrivals.into_iter().map(|(id, arrived)| (arrived, now, iteration.tensors()[id].bytes)));
    let ends = began.iter().skip(1).copied().chain([now]);
    let duration_ns = began.iter().zip(ends).skip(SETTLED).map(|(began, end)| end - began).collect();
    Replay { duration_ns, peak_bytes: peak(&stays, began[SETTLED]) }
}

fn peak(stays: &[Stay], from: u64) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for &(arrived, ended, bytes) in stays.iter().filter(|(arrived, ended, _)| ended > arrived) {
        let bytes = i64::try_from(bytes).unwrap();
        changes.extend([(arrived, bytes), (ended, -bytes)]);
    }
    // At the same time, ends come before begins.
    changes.sort_unstable();
    let (mut load, mut most) = (0, 0);
    for (at, change) in changes {
        load += change;
        if at >= from {
            most = most.max(load);
        }
    }
    u64::try_from(most).unwrap()
}
