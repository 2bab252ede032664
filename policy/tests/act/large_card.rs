//! Simulation of the loop on a GPU with 80 GB and a link of 25 GB/s, and a program that uses 1.5
//! times that memory. The GPU evicts like the driver, and orders are executed at once. Prints the
//! remaining share of the link bytes, and the processor time of an interval on this machine,
//! compared with that of a copy of the visited blocks. Then prints the processor time of an interval
//! with idle processes: it grows linearly with their number.
//!
//! `cargo bench -p policy --bench large_card`

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
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use card::Card;
use model::{Counters, Directive, Mode, PatternKind, Process, ProcessId, block::BLOCK_BYTES};
use policy::act::Scene;
use walker::Round;
use world::{INTERVAL, KEY, World, directive};

/// 80 GB in blocks.
const FRAMES: usize = 38_000;
/// 2 MiB at 25 GB/s.
const FETCH: Duration = Duration::from_micros(84);
const ROUNDS: u64 = 20;
const INTERVALS: u32 = 20;

fn main() {
    large_card();
    println!();
    idle_processes();
}

fn large_card() {
    let blocks = FRAMES as u64 * 3 / 2;
    let walk: Round = (0..blocks).map(|block| (block, false)).collect();
    let hot = FRAMES as u64 / 2;
    let cold = blocks - hot;
    let each = cold / 4;
    let step = |at: u64| (0..hot).chain(hot + at * each..hot + (at + 1) * each).map(|block| (block, block < hot));
    let hot_cold: Round = (0..4).flat_map(step).collect();
    println!("{FRAMES} frames, {blocks} blocks; simulated");
    println!(
        "program     policy      link bytes  replays   steps a look   look, ms: median, most   by copying the blocks"
    );
    // 480 MiB.
    let in_parts = (walk.clone(), 240);
    for (name, (round, allocation_blocks), pattern, policies) in [
        ("walk", (walk, usize::MAX), PatternKind::Cyclic, &["observe", "cycle", "stream", "auto-live"][..]),
        ("hot, cold", (hot_cold, usize::MAX), PatternKind::Unknown, &["observe", "hot-cold", "cycle", "auto-live"]),
        ("238 parts", in_parts, PatternKind::Cyclic, &["observe", "cycle"]),
    ] {
        let mut alone = None;
        for policy in policies {
            let result = run(&round, allocation_blocks, pattern, policy);
            let driver = *alone.get_or_insert((result.link_bytes, result.replays));
            let part = |now: u64, then: u64| now as f64 / then as f64 * 100.0;
            println!(
                "{name:<11} {policy:<11} {:>8.1} % {:>6.1} %   {:>10.0}   {:>13.2} {:>8.2}   {:>10.1}   {}",
                part(result.link_bytes, driver.0),
                part(result.replays, driver.1),
                result.steps,
                result.median.as_secs_f64() * 1e3,
                result.most.as_secs_f64() * 1e3,
                result.median.as_secs_f64() / result.copying.as_secs_f64(),
                result.acted.join(", "),
            );
        }
    }
}

fn idle_processes() {
    let mut first = None;
    println!("idle processes    interval   per process, relative to the first row");
    for count in [128_u32, 512, 2048, 3583] {
        let each = interval_duration(count) / count;
        let first = *first.get_or_insert(each);
        println!("{count:>14}   {:>9.2?}   {:>6.2}", each * count, each.as_secs_f64() / first.as_secs_f64());
    }
}

/// Mean processor time of an interval with this number of idle processes.
fn interval_duration(count: u32) -> Duration {
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
            deferred: &BTreeSet::new(),
            directives: &directives,
            acting_enabled: true,
        };
        let begun = Instant::now();
        let orders = world.acting.observe(&scene);
        spent += begun.elapsed();
        assert!(orders.is_empty());
    }
    spent / INTERVALS
}

struct Figures {
    link_bytes: u64,
    replays: u64,
    steps: f64,
    median: Duration,
    most: Duration,
    copying: Duration,
    acted: Vec<&'static str>,
}

fn run(round: &Round, allocation_blocks: usize, pattern: PatternKind, policy: &str) -> Figures {
    let mut card = Card::new(FRAMES);
    card.fetch_duration = FETCH;
    let wanted = (policy != "observe").then(|| directive(Mode::Act, policy));
    let process = card.add(round.clone(), pattern, wanted);
    card.program_mut(process).allocation_blocks = allocation_blocks;
    card.run(ROUNDS);
    let began = Instant::now();
    let copied: Vec<_> = card.program(process).blocks.values().cloned().collect();
    let copying = began.elapsed();
    assert!(copied.len() as u64 * BLOCK_BYTES > 80_000_000_000);
    let mut interval_times = std::mem::take(&mut card.interval_times);
    interval_times.sort_unstable();
    Figures {
        link_bytes: card.link_bytes(),
        replays: card.program(process).counters.replays,
        steps: card.steps as f64 / interval_times.len() as f64,
        median: interval_times[interval_times.len() / 2],
        most: interval_times[interval_times.len() - 1],
        copying,
        acted: card.tried_policies(),
    }
}
