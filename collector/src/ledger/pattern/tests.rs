//! Sequences of accesses, and the faults of a driver for them: in batches sorted by address, with
//! its prefetches, on a GPU that may be too small.

use std::collections::{BTreeMap, HashMap, VecDeque};

use abi::RecordKind;

use super::*;

const ALL: u32 = u32::MAX;

/// Deterministic pseudo-random numbers by seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    fn shuffle(&mut self, places: &mut [Place]) {
        for last in (1..places.len()).rev() {
            places.swap(last, usize::try_from(self.below(last as u64 + 1)).unwrap());
        }
    }
}

/// GPU with room for some blocks, whose oldest arrival is evicted first.
struct Card {
    room: usize,
    blocks: VecDeque<u64>,
    resident: HashMap<u64, u32>,
}

impl Card {
    fn new(room: usize) -> Self {
        Self { room, blocks: VecDeque::new(), resident: HashMap::new() }
    }

    fn has(&self, place: Place) -> bool {
        self.resident.get(&(place / 32)).is_some_and(|slots| slots & (1 << (place % 32)) != 0)
    }

    fn serve(&mut self, block: u64, faulted: u32) {
        if !self.resident.contains_key(&block) {
            self.blocks.push_back(block);
            if self.blocks.len() > self.room {
                self.resident.remove(&self.blocks.pop_front().unwrap());
            }
        }
        let slots = self.resident.entry(block).or_default();
        *slots |= faulted;
        *slots |= prefetched(*slots, faulted);
    }
}

/// Prefetches of the driver: the largest region around each fault of which more than half is
/// resident.
fn prefetched(slots: u32, faulted: u32) -> u32 {
    let mut brought = 0;
    for slot in (0..32).filter(|slot| faulted & (1 << slot) != 0) {
        for size in [2, 4, 8, 16, 32] {
            let region = if size == 32 { ALL } else { ((1 << size) - 1) << (slot / size * size) };
            if (slots & region).count_ones() * 100 > size * 51 {
                brought |= region;
            }
        }
    }
    brought
}

/// Pattern found for accesses, with a window of them in flight, on a GPU with room for this many
/// blocks.
fn seen(accesses: &[Place], window: usize, room: usize) -> Pattern {
    let mut card = Card::new(room);
    let mut order: Option<Order> = None;
    let (mut next, mut batch) = (0, 0_u16);
    while next < accesses.len() {
        let mut faults: BTreeMap<u64, u32> = BTreeMap::new();
        let mut missing = 0;
        while next < accesses.len() && missing < window {
            if !card.has(accesses[next]) {
                *faults.entry(accesses[next] / 32).or_default() |= 1 << (accesses[next] % 32);
                missing += 1;
            }
            next += 1;
        }
        batch = batch.wrapping_add(1);
        for (block, slots) in faults {
            let record = BlockRecord {
                address: block << 21,
                slots,
                gpu: 1,
                cause: batch,
                kind: RecordKind::GpuFaults as u16,
                ..BlockRecord::default()
            };
            order.get_or_insert_with(|| Order::new(&record)).faulted(&record);
            card.serve(block, slots);
        }
    }
    order.unwrap().pattern()
}

const BASE: Place = 0x7f_0000_0000;
const WINDOWS: [usize; 6] = [1, 2, 5, 16, 33, 64];
/// Lengths in units of 64 KiB: 32 MiB to 1 GiB.
const LENGTHS: [u64; 4] = [512, 800, 2048, 16384];
const ROOMY: usize = 1 << 20;

fn walk(length: u64) -> Vec<Place> {
    (BASE..BASE + length).collect()
}

#[test]
fn single_ordered_pass_is_sequential_in_either_direction_at_any_concurrency() {
    for length in LENGTHS {
        for window in WINDOWS.into_iter().filter(|window| length / *window as u64 >= 32) {
            let mut places = walk(length);
            for way in ["up", "down"] {
                let Pattern { kind, confidence, .. } = seen(&places, window, ROOMY);
                assert_eq!(kind, PatternKind::Sequential, "{way}, {length} places, {window} at once");
                assert!(confidence > 0.8, "{confidence}");
                places.reverse();
            }
        }
    }
}

#[test]
fn several_passes_over_more_than_fits_are_cyclic() {
    for (length, window) in LENGTHS.into_iter().flat_map(|length| WINDOWS.map(|window| (length, window))) {
        if length / (window as u64) < 32 {
            continue;
        }
        for passes in [2, 3, 6] {
            let places: Vec<_> = (0..passes).flat_map(|_| walk(length)).collect();
            for places in [places.clone(), places.into_iter().rev().collect()] {
                let kind = seen(&places, window, usize::try_from(length / 32 * 3 / 4).unwrap()).kind;
                assert_eq!(kind, PatternKind::Cyclic, "{length} places, {window} at once, {passes} passes");
            }
        }
    }
}

#[test]
fn constant_distance_is_a_stride_from_128_kib_on() {
    for stride in [2, 3, 4, 5, 8, 16, 31, 32, 33, 64, 100] {
        for window in WINDOWS {
            let mut places: Vec<_> = (0..400).map(|at| BASE + at * stride).collect();
            for sign in [1, -1] {
                let kind = seen(&places, window, ROOMY).kind;
                let stride_bytes = sign * i64::try_from(stride * SLOT_BYTES).unwrap();
                let expected = PatternKind::Strided { stride_bytes };
                assert_eq!(kind, expected, "{stride} places, {window} at once");
                places.reverse();
            }
        }
    }
}

#[test]
fn stride_of_two_and_a_half_slots_is_found() {
    let places: Vec<_> = (0..400).map(|at| BASE + at * 5 / 2).collect();
    let kind = seen(&places, 16, ROOMY).kind;
    assert_eq!(kind, PatternKind::Strided { stride_bytes: 160 << 10 });
}

#[test]
fn permuted_accesses_have_no_order_whether_they_fit_or_not() {
    for seed in 1..12 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        let lengths = if seed == 1 { &LENGTHS[..] } else { &LENGTHS[..2] };
        for (length, window) in lengths.iter().flat_map(|length| WINDOWS.map(|window| (*length, window))) {
            let mut places = walk(length);
            dice.shuffle(&mut places);
            for room in [ROOMY, usize::try_from(length / 64).unwrap()] {
                let Pattern { kind, steps, .. } = seen(&places, window, room);
                let is_none = matches!(kind, PatternKind::Random | PatternKind::Unknown);
                assert!(is_none, "{kind:?}: seed {seed}, {length} places, {window} at once, room for {room}, {steps}");
                if length / window as u64 > 100 {
                    assert_eq!(kind, PatternKind::Random, "seed {seed}, {length} places, {window} at once, {room}");
                }
            }
        }
    }
}

#[test]
fn few_large_batches_are_sufficient() {
    // As a GPU with thousands of threads faults: 256 at once, which is the driver's maximum per
    // batch.
    let once = walk(768);
    assert_eq!(seen(&once, 256, ROOMY).kind, PatternKind::Sequential);
    let down: Vec<_> = once.iter().rev().copied().collect();
    assert_eq!(seen(&down, 256, ROOMY).kind, PatternKind::Sequential);
    let again: Vec<_> = [&once[..], &once[..], &once[..]].concat();
    assert_eq!(seen(&again, 256, 4).kind, PatternKind::Cyclic);
    for seed in 1..200 {
        let mut shuffled = walk(1024);
        Dice(seed * 0x9e37_79b9).shuffle(&mut shuffled);
        assert_eq!(seen(&shuffled, 256, ROOMY).kind, PatternKind::Random, "seed {seed}");
    }
}

#[test]
fn small_part_with_most_of_the_faults_is_a_hot_set() {
    for seed in 1..20 {
        let mut dice = Dice(seed * 0x9e37_79b9);
        for window in WINDOWS {
            let places: Vec<_> = (0..6000)
                .map(|_| BASE + if dice.below(10) < 9 { 640 + dice.below(160) } else { dice.below(2048) })
                .collect();
            // Room for less than the hot part, which would not fault otherwise.
            let kind = seen(&places, window, 2).kind;
            assert_eq!(kind, PatternKind::HotSet, "seed {seed}, {window} at once");
        }
    }
}

#[test]
fn few_faults_have_an_unknown_pattern() {
    assert_eq!(seen(&walk(4), 1, ROOMY), Pattern { steps: 2, ..Pattern::UNKNOWN });
    assert_eq!(seen(&walk(64), 64, ROOMY).kind, PatternKind::Unknown);
}

#[test]
fn pattern_follows_a_change_of_order() {
    let mut dice = Dice(99);
    let mut shuffled = walk(4096);
    dice.shuffle(&mut shuffled);
    let first_random: Vec<_> = shuffled.iter().copied().chain(walk(4096)).collect();
    assert_eq!(seen(&first_random, 8, 4).kind, PatternKind::Sequential);
    let then_random: Vec<_> = walk(4096).into_iter().chain(shuffled).collect();
    assert_eq!(seen(&then_random, 8, 4).kind, PatternKind::Random);
}

#[test]
fn second_gpu_does_not_disturb_and_is_followed_once_it_is_alone() {
    let record = |gpu, block: u64| BlockRecord {
        address: block << 21,
        slots: 1,
        gpu,
        cause: u16::try_from(block % 65536).unwrap(),
        ..BlockRecord::default()
    };
    let mut order = Order::new(&record(1, 0));
    for block in 0..100 {
        order.faulted(&record(1, block));
        order.faulted(&record(2, 5000 - block));
    }
    assert_eq!(order.pattern().kind, PatternKind::Strided { stride_bytes: 2 << 20 });
    for block in 0..200 {
        order.faulted(&record(2, 9000 - block));
    }
    assert_eq!(order.pattern().kind, PatternKind::Strided { stride_bytes: -(2 << 20) });
}

#[test]
fn pattern_state_takes_at_most_512_bytes() {
    assert!(size_of::<Order>() <= 512, "{}", size_of::<Order>());
}
