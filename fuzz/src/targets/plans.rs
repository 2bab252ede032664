//! `plans`: a follower of the calls in memory that a program shares with uvmd, up to a plan or a refusal.
//!
//! Input: a byte for the method, one for the number of allocations, and 18 bytes for each of these: kind,
//! whether it is mapped, address and size. Then the records of an iteration, which repeats: a byte of
//! flags, a lane, and the 64 bytes of a record. Whatever they claim, there is no panic, and a plan keeps to
//! its limits. `plans/tests/memory.rs` counts the bytes.

use std::sync::atomic::AtomicU64;

use call_ring::{Group, Kind, Memory, Mode, Record, Stamp, TOTAL_BYTES, memory::LANES, operation::apply, plan::MOVES_MAX, record::RECORD_WORDS};
use plans::{ClaimLimits, FaultCounts, Follower, Settings, State, methods};
use recorder::Merge;

const ALLOCATION_BYTES: usize = 18;
const RECORD_BYTES: usize = 2 + RECORD_WORDS * 8;
/// Iterations of the program: as many as confirm one, and deliveries of faults.
const ITERATIONS: u64 = 12;
/// Most records of an iteration, so that an input takes milliseconds.
const RECORDS_MAX: usize = 64;
/// Methods, of which each input has one: planners have a time limit in uvmd, and inputs are small.
const METHODS: [&str; 3] = ["foresight", "pump", "harmful-plan"];

pub(super) fn run(input: &[u8]) {
    let Some((head, rest)) = input.split_first_chunk::<2>() else { return };
    let [method, allocations] = *head;
    let allocations_bytes = (usize::from(allocations) * ALLOCATION_BYTES).min(rest.len());
    let (allocations, records) = rest.split_at(allocations_bytes);
    let allocations: Vec<Allocation> = allocations.chunks_exact(ALLOCATION_BYTES).map(Allocation::of).collect();
    let method = methods::by_name(METHODS[usize::from(method) % METHODS.len()]).expect("it is a method");
    let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 32 << 20, has_fault_counts: true, probes: None };
    let mut follower = Follower::new(settings, vec![method]);
    let mapped = allocations.iter().filter(|allocation| allocation.is_mapped);
    let mapped = mapped.map(|allocation| allocation.address..allocation.address.saturating_add(allocation.bytes));
    let knows_mappings = allocations.first().is_some_and(|first| first.kind & 0x80 != 0);
    let mapped = knows_mappings.then(|| mapped.collect());
    follower.set_claim_limits(ClaimLimits { allocation_bytes_max: 1 << 50, mapped });

    let words: Vec<AtomicU64> = (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    let memory = Memory::create(&words, Mode::Record).expect("it has the size of a ring");
    for (at, allocation) in (0..).zip(&allocations) {
        let kind = u64::from(allocation.kind & 0x7f) % 5 + 1;
        let words = [0, allocation.address, allocation.bytes, kind, 0];
        Group::begin(memory.lane(0), memory.stamp(at, 1), Kind::Malloc, 0, words).publish();
    }
    let mut merge = Merge::default();
    let (mut launches, mut stamps) = (0_u64, [Stamp::default(); LANES]);
    for iteration in 1..=ITERATIONS {
        let mut ahead = [0; LANES];
        for step in records.chunks_exact(RECORD_BYTES).take(RECORDS_MAX) {
            let values: [u64; RECORD_WORDS] = std::array::from_fn(|at| {
                u64::from_le_bytes(step[2 + at * 8..10 + at * 8].try_into().expect("it has eight bytes"))
            });
            let number = usize::from(step[1]) % LANES;
            let lane = memory.lane(number);
            let mut record = Record::from_words(values);
            // Without numbers in their order, no iteration repeats.
            if step[0] & 1 == 0 {
                if !is_continued(record.kind) {
                    stamps[number] = memory.stamp(iteration * 1_000_000, 1);
                }
                record.stamp = stamps[number];
                if record.kind == Kind::Launch as u8 {
                    launches += 1;
                    record.words[4] = record.words[4] & 0xffff_ffff | launches << 32;
                }
            }
            lane.write(ahead[number], record);
            ahead[number] += 1;
            if step[0] & 2 == 0 {
                lane.publish(ahead[number]);
                ahead[number] = 0;
            }
        }
        let copy = |offset, bytes: &mut [u8]| memory.copy_to(offset, bytes);
        let calls = merge.poll(&memory, copy).expect("all of it is mapped");
        apply(merge.consumed(&memory), &words);
        for call in calls {
            follower.add(call);
        }
        let faults = allocations.iter().map(|allocation| (allocation.address >> 21 << 21, iteration));
        follower.add_fault_counts(Some(faults.collect::<FaultCounts>()));
        check(follower.state());
    }
    for call in merge.finish() {
        follower.add(call);
    }
    check(follower.state());
}

/// Whether a record belongs to the one before.
fn is_continued(kind: u8) -> bool {
    [Kind::Pointers, Kind::Name, Kind::Node].iter().any(|there| *there as u8 == kind)
}

fn check(state: &State) {
    match state {
        State::Planned(planned) => {
            assert!(planned.moves.len() <= MOVES_MAX, "{} moves", planned.moves.len());
            let launches = planned.tokens.len();
            assert!(planned.moves.iter().all(|step| (step.begin_op as usize) < launches), "{planned:?}");
            assert!(planned.moves.iter().all(|step| step.begin.checked_add(step.bytes).is_some()), "{planned:?}");
        }
        State::Watching | State::Probing(_) | State::Planning | State::Refused(_) => {}
    }
}

/// Memory that a program claims.
struct Allocation {
    kind: u8,
    is_mapped: bool,
    address: u64,
    bytes: u64,
}

impl Allocation {
    fn of(bytes: &[u8]) -> Self {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("it has eight bytes"));
        Self { kind: bytes[0], is_mapped: bytes[1] & 1 != 0, address: word(2), bytes: word(10) }
    }
}
