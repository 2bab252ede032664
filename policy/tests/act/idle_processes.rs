//! Processor time of an interval with idle processes in mode shadow, on this machine: it grows with their number and
//! not with its square.
//!
//! `cargo bench -p policy --bench idle_processes`

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a measurement, with parts of the tests"
)]

#[expect(dead_code, reason = "what the tests ask of it")]
mod card;
mod frames;
#[expect(dead_code, reason = "programs of the tests")]
mod program;
mod walker;
#[expect(dead_code, reason = "a world of the tests")]
mod world;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use model::{Counters, Directive, Mode, Process, ProcessId};
use policy::act::Scene;
use world::{INTERVAL, KEY, World, directive};

const INTERVALS: u32 = 20;

fn main() {
    let mut first = None;
    println!("processes   an interval   of each process, compared with the first row");
    for count in [128_u32, 512, 2048, 3583] {
        let each = interval(count) / count;
        let first = *first.get_or_insert(each);
        println!("{count:>9}   {:>8.2?}   {:>6.2}", each * count, each.as_secs_f64() / first.as_secs_f64());
    }
}

/// Mean time of an interval with this number of processes.
fn interval(count: u32) -> Duration {
    let mut world = World::new();
    let mut snapshot = world.snapshot();
    let mut directives: BTreeMap<ProcessId, Directive> = BTreeMap::new();
    for pid in 1..=count {
        let mut process = Process::new(ProcessId { pid, start_ticks: 1 }, "idle");
        process.gpus.insert(KEY, Counters::default());
        directives.insert(process.id, directive(Mode::Shadow, "auto-live"));
        snapshot.processes.push(process);
    }
    let (memory, links, headroom_bytes, following) = Default::default();
    let mut spent = Duration::ZERO;
    for at in 0..INTERVALS {
        let now = world.now + INTERVAL * at;
        snapshot.taken = now;
        let scene = Scene {
            now,
            snapshot: &snapshot,
            verdicts: &world.verdicts,
            memory: &memory,
            links: &links,
            headroom_bytes: &headroom_bytes,
            node_headroom_bytes: 0,
            following: &following,
            directives: &directives,
            on: true,
        };
        let begun = Instant::now();
        let orders = world.acting.observe(&scene);
        spent += begun.elapsed();
        assert!(orders.is_empty());
    }
    spent / INTERVALS
}
