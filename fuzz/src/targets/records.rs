//! `collector`: output of the probes, any field of which may be any value in a driver's memory.
//!
//! Input: steps of a fixed length: a kind, and its bytes. Sums never decrease, and retained state
//! is bounded.

use abi::{
    BlockRecord, CountKey, Lifecycle, Tally,
    count::EvictionKey,
};
use collector::{BlockLimits, Roots, fuzzing::Fed};
use model::ProcessId;

const LIMITS: BlockLimits = BlockLimits { of_process: 8, of_all: 12, ranges_of_all: 16, returns_of_process: 4 };
const ENDED_MAX: usize = 4;
/// Length of the longest record, a lifecycle.
const STEP_BYTES: usize = 81;

pub(super) fn run(input: &[u8]) {
    let roots = Roots { proc: "/nonexistent/proc".into(), sys: "/nonexistent/sys".into() };
    let mut fed = Fed::new(&roots, LIMITS, ENDED_MAX);
    for step in input.chunks_exact(STEP_BYTES) {
        let number = |at: usize| u64::from_le_bytes(step[at..at + 8].try_into().expect("it has eight bytes"));
        let short = |at: usize| u32::from_le_bytes(step[at..at + 4].try_into().expect("it has four bytes"));
        let half = |at: usize| u16::from_le_bytes(step[at..at + 2].try_into().expect("it has two bytes"));
        let tally = Tally { events: number(33), amount: number(41) };
        match step[0] % 6 {
            0 => drop(Lifecycle::from_bytes(&step[1..81]).map(|record| fed.lifecycle(&record))),
            1 => drop(BlockRecord::from_bytes(&step[1..49]).map(|record| fed.block(&record))),
            2 => fed.count(CountKey { generation: number(1), gpu: short(9), kind: half(13), detail: half(15) }, tally),
            3 => fed.eviction(
                EvictionKey { victim: number(1), evictor: number(9), gpu: short(17), cause: short(21) },
                tally,
            ),
            4 => {
                let begin = number(17) & 0x7fff_ffff_f000;
                let bytes = number(25) & 0xff_ffff_f000;
                let ranges: Vec<_> = (0..u64::from(step[2] % 32))
                    .map(|at| begin + at * 2 * bytes..begin + (at * 2 + 1) * bytes)
                    .filter(|range| !range.is_empty())
                    .collect();
                let process = ProcessId { pid: short(5), start_ticks: number(9) };
                fed.mappings(process, &ranges, number(33));
            }
            _ => check(&mut fed),
        }
    }
    check(&mut fed);
}

fn check(fed: &mut Fed) {
    // The excess is forgotten once it was reported.
    drop(fed.processes());
    let processes = fed.processes();
    let (mut blocks, mut ended) = (0, 0);
    for process in &processes {
        blocks += process.blocks.known;
        ended += usize::from(process.exited_at.is_some());
        assert!(process.name.len() <= 16 * 3, "a name has 16 bytes, each of which may be replaced");
        assert!(process.blocks.known <= LIMITS.of_process as u64);
        for (gpu, residency) in &process.residency {
            assert!(residency.min_bytes <= residency.bytes && residency.bytes <= residency.max_bytes, "{gpu:?} {residency:?}");
        }
    }
    assert!(blocks <= LIMITS.of_all as u64, "{blocks} blocks are kept");
    assert!(ended <= ENDED_MAX, "{ended} that ended are kept");
}
