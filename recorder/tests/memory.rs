//! Memory of a recording, by the allocator. A single test, as allocations of other tests would
//! count.
#![cfg(test)]

use std::{
    alloc::System,
    sync::atomic::{AtomicU64, Ordering},
};

use call_ring::{Kind, Memory, Mode, Record, TOTAL_BYTES, operation::apply};
use recorder::{Merge, Window};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const MIB: usize = 1 << 20;
/// Limit for a recording by docs/configuration.md.
const RECORDING_BYTES_MAX: usize = 24 * MIB;
const WINDOW_BYTES: usize = 4 * MIB;

/// Ring that a program fills with arbitrary records.
struct Ring(Vec<AtomicU64>);

impl Ring {
    fn new() -> Self {
        let words: Vec<_> = (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
        Memory::create(&words, Mode::Record).unwrap();
        Self(words)
    }

    /// Writes the records of a call, if they fit.
    fn write(&self, lane: usize, records: &[Record]) -> bool {
        let lane = Memory::open(&self.0).unwrap().lane(lane);
        let fits = lane.has_room(records.len());
        if fits {
            records.iter().enumerate().for_each(|(ahead, record)| lane.write(ahead, *record));
            lane.publish(records.len());
        }
        fits
    }
}

fn record(kind: Kind, sequence: u64, flags: u8, words: [u64; 5]) -> Record {
    let mut record = Record { kind: kind as u8, flags, words, ..Record::default() };
    record.stamp.sequence = sequence;
    record
}

/// Call with `count` further records of a kind.
fn call(first: Record, kind: Kind, count: u16) -> Vec<Record> {
    // Not UTF-8: each byte of a name becomes three.
    let more = Record { kind: kind as u8, count: 4, words: [u64::MAX; 5], ..first };
    let mut records = vec![Record { count, ..first }];
    records.extend((0..count).map(|_| more));
    records
}

/// Flags of a call that adds a node to a graph.
const GRAPH_NODE: u8 = 2 << call_ring::kind::TARGET_SHIFT;

/// A call that adds a node to a graph.
fn node(at: u64) -> Vec<Record> {
    let node = record(Kind::Node, at, 0, [0, at, 0, 0, 0]);
    vec![Record { count: 1, ..record(Kind::Fill, at, GRAPH_NODE, [7, 1, 1, 1, 0]) }, node]
}

/// A call that names a function.
fn name(sequence: u64, function: u64) -> Vec<Record> {
    call(record(Kind::Function, sequence, 0, [0, function, 1024, 0, 0]), Kind::Name, 26)
}

/// Records of a program's call, by number of the call.
type Calls = fn(u64) -> Vec<Record>;

/// Hostile programs.
fn programs() -> Vec<(&'static str, Calls)> {
    vec![
        ("blocks", |at| vec![record(Kind::Malloc, at, 0, [0, at << 12, 4096, 1, 0])]),
        ("functions with long names", |at| name(at, at)),
        ("nodes", node),
        ("launches with all pointers", |at| {
            call(record(Kind::Launch, at, 0, [1, 5, 1 << 32 | 0x1_0001, 1 << 32 | 0x1_0001, 0]), Kind::Pointers, 128)
        }),
        ("syncs", |at| vec![record(Kind::Sync, at, 0, [0, 1, 0, 0, 0])]),
        ("instances", |at| vec![record(Kind::GraphInstantiated, at, 0, [0, 7, at, 0, 0])]),
        // Numbers that never arrive delay all others.
        ("calls that wait", |at| call(record(Kind::Launch, at * 2 + 1, 0, [1, 5, 0, 0, 0]), Kind::Pointers, 1)),
        ("names that wait", |at| name(at * 2 + 1, at)),
        ("nodes, and then names that wait", |at| if at < 40_000 { node(at) } else { name(at * 2, at) }),
        ("nodes, and then launches that wait", |at| {
            if at < 40_000 { node(at) } else { vec![record(Kind::Free, at * 2, 0, [0; 5])] }
        }),
    ]
}

#[test]
fn memory_of_a_recording_is_within_the_documented_limit() {
    let ring = Ring::new();
    for (what, records) in programs() {
        let region = Region::new(ALLOCATOR);
        let held = || region.change().bytes_allocated - region.change().bytes_deallocated;
        let (mut merge, mut window) = (Merge::default(), Window::new(WINDOW_BYTES));
        let (mut at, mut most) = (0, 0);
        for _ in 0..16 {
            let memory = Memory::open(&ring.0).unwrap();
            while ring.write(0, &records(at)) {
                at += 1;
            }
            // If no number is issued, waiting calls wait for ever.
            ring.0[8].store(if what.ends_with("wait") { 0 } else { at }, Ordering::Relaxed);
            loop {
                let Ok(calls) = merge.poll_part(&memory, |offset, bytes| memory.copy_to(offset, bytes));
                apply(merge.consumed(&memory), &ring.0);
                for call in calls {
                    window.add(call);
                    most = most.max(held());
                }
                most = most.max(held());
                if !merge.has_more() {
                    break;
                }
            }
        }
        println!("{what}: {at} calls, {:.1} MiB", most as f64 / MIB as f64);
        assert!(at > 1000 && most <= RECORDING_BYTES_MAX, "{most} bytes of {what}");
    }
}
