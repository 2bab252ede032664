//! Carries a schedule out by the clock, apart from how it was planned: where every tensor is, when, and what the GPU holds.

use std::collections::HashMap;

use planner::{Act, Machine, Schedule, Tier};
use trace::{Iteration, TensorId};

/// Iterations that are carried out; those from the third on are looked at.
const ITERATIONS: usize = 8;
const SETTLED: usize = 2;

pub(crate) struct Replay {
    /// How long each of the iterations took that are looked at.
    pub(crate) duration_ns: Vec<u64>,
    /// The most bytes on the GPU in them at once.
    pub(crate) peak_bytes: u64,
}

/// A stay of bytes on the GPU. The time counts twice: what ends with a kernel ends before what begins with the next.
type Stay = (u64, u64, u64);

/// # Panics
/// If a kernel runs with a tensor that is not there.
pub(crate) fn replay(iteration: &Iteration, machine: &Machine, schedule: &Schedule) -> Replay {
    let (mut now, mut out_free, mut back_free) = (0, 0, 0);
    let mut done = vec![0; schedule.actions().len()];
    // When a tensor came to the GPU; and of those away or on the way, when they will be there.
    let mut since: HashMap<TensorId, u64> = HashMap::new();
    let mut away: HashMap<TensorId, Option<u64>> = HashMap::new();
    let (mut stays, mut began): (Vec<Stay>, Vec<u64>) = (Vec::new(), Vec::new());
    for (id, _) in iteration.tensors().iter().filter(|(_, tensor)| tensor.persistent) {
        since.insert(id, 0);
    }
    for turn in 0..ITERATIONS {
        began.push(now);
        for (id, kernel) in iteration.kernels().iter() {
            for (place, action) in schedule.actions().iter().enumerate().filter(|(_, action)| action.begin == id) {
                let bytes = iteration.tensors()[action.tensor].bytes;
                if action.act == Act::Move(Tier::Host) {
                    out_free = now.max(out_free) + machine.host.out.transfer_ns(bytes);
                    done[place] = out_free;
                    // One that wraps and did not leave in the iteration before the first has nothing to do.
                    if let Some(came) = since.remove(&action.tensor) {
                        stays.push((came, out_free, bytes));
                    }
                    away.insert(action.tensor, None);
                } else {
                    let start = now.max(back_free);
                    back_free = start + machine.host.back.transfer_ns(bytes);
                    done[place] = back_free;
                    if away.contains_key(&action.tensor) {
                        since.insert(action.tensor, start);
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
                    let there = arrival.is_some_and(|arrival| arrival <= now);
                    assert!(there || turn == 0, "kernel {id} at {now} needs tensor {}: {arrival:?}", operand.tensor);
                }
            }
            for born in iteration.births(id) {
                since.insert(born, now);
            }
            now += kernel.duration_ns;
            for dead in iteration.deaths(id) {
                // What dies is on the GPU: it was used.
                let came = since.remove(&dead).unwrap();
                stays.push((came, now, iteration.tensors()[dead].bytes));
            }
        }
    }
    stays.extend(since.into_iter().map(|(id, came)| (came, now, iteration.tensors()[id].bytes)));
    let ends = began.iter().skip(1).copied().chain([now]);
    let duration_ns = began.iter().zip(ends).skip(SETTLED).map(|(began, end)| end - began).collect();
    Replay { duration_ns, peak_bytes: peak(&stays, began[SETTLED]) }
}

fn peak(stays: &[Stay], from: u64) -> u64 {
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for &(came, gone, bytes) in stays.iter().filter(|(came, gone, _)| gone > came) {
        let bytes = i64::try_from(bytes).unwrap();
        changes.extend([(came, bytes), (gone, -bytes)]);
    }
    // Of those at the same time, what goes comes first.
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
