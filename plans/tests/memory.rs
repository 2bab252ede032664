//! Peak memory of a follower while a program makes the largest claims that it can. The file has a
//! single test, because allocations of other tests in the process would count.

#![cfg(test)]

use std::ops::Range;

use call_ring::{
    Dim3, MemoryKind, Stamp, SyncKind, Target,
    call::{Action, Call, Pointer},
};
use peak_alloc::PeakAlloc;
use plans::{ClaimLimits, FaultCounts, Follower, HELD_BYTES_MAX, Settings, State, TURN_BYTES_MAX, methods};
use proptest::{prelude::*, test_runner::TestRunner};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const UNIT: u64 = 2 << 20;
const BASE: u64 = 1 << 40;

/// Follower, and the calls of its program so far.
struct Attack {
    follower: Follower,
    calls: u64,
    launches: u32,
    faults: FaultCounts,
}

impl Attack {
    fn new(limits: ClaimLimits, faults: FaultCounts) -> Self {
        let settings = Settings { user: 0, gpu: [1; 16], gpu_bytes: 17 * UNIT, has_fault_counts: true, probes: None };
        // The method with the most moves. Planners have limits of their own.
        let methods: Vec<_> = methods::by_name("harmful-plan").into_iter().collect();
        let mut follower = Follower::new(settings, methods);
        follower.set_claim_limits(limits);
        Self { follower, calls: 0, launches: 0, faults }
    }

    fn call(&mut self, action: Action) {
        let stamp = Stamp { sequence: self.calls, time_ns: self.calls * 1000, thread: 1 };
        let mut call = Call { stamp, is_asynchronous: false, is_cut: false, number: None, action };
        if call.token().is_some() {
            self.launches += 1;
            call.number = Some(self.launches);
        }
        self.calls += 1;
        self.follower.add(call);
    }

    fn malloc(&mut self, address: u64, bytes: u64, kind: MemoryKind) {
        self.call(Action::Malloc { stream: 0, address, bytes, kind, device: 0 });
    }

    fn launch(&mut self, function: u64, grid: u32, addresses: impl Iterator<Item = u64>) {
        let pointers = Some(addresses.map(|address| Pointer { offset_bytes: 0, address }).collect());
        let (target, grid, block) = (Target::Stream(1), Dim3::new(grid, 1, 1), Dim3::new(1, 1, 1));
        self.call(Action::Launch { target, function, grid, block, shared_bytes: 0, pointers });
    }

    /// Ends an iteration, and delivers its counts as uvmd does.
    fn sync(&mut self) {
        self.call(Action::Sync { kind: SyncKind::Stream, handle: 1 });
        for count in self.faults.values_mut() {
            *count += 1;
        }
        self.follower.add_fault_counts(Some(self.faults.clone()));
    }

    /// Runs iterations until there is a plan or a refusal.
    fn iterate(&mut self, mut iteration: impl FnMut(&mut Self)) {
        for _ in 0..16 {
            if !matches!(self.follower.state(), State::Watching) {
                return;
            }
            iteration(self);
            self.sync();
        }
    }
}

fn blocks(count: u64) -> FaultCounts {
    (0..count).map(|block| (BASE + block * UNIT, 1)).collect()
}

fn mapped(ranges: impl Iterator<Item = Range<u64>>) -> ClaimLimits {
    ClaimLimits { mapped: Some(ranges.collect()), ..ClaimLimits::default() }
}

/// Attack by name, with its program's calls until there is a plan or a refusal.
type NamedAttack = (&'static str, fn() -> Attack);

fn one_claim(bits: u32) -> Attack {
    let mut attack = Attack::new(ClaimLimits::default(), blocks(4));
    attack.malloc(BASE, 1 << bits, MemoryKind::Managed);
    attack.iterate(|attack| (1..25).for_each(|function| attack.launch(function, 1, std::iter::once(BASE))));
    attack
}

fn launches(count: u64, pointers: u64, stride: u64) -> Attack {
    let mut attack = Attack::new(ClaimLimits::default(), blocks(4));
    attack.malloc(BASE, 1 << 40, MemoryKind::Managed);
    attack.iterate(|attack| {
        for launch in 0..count {
            let at = |pointer| BASE + (pointer * count + launch) * stride;
            attack.launch(launch + 1, 1, (0..pointers).map(at));
        }
    });
    attack
}

fn overlapping(bytes: u64, pointers: u64) -> Attack {
    const ALLOCATIONS: u64 = 60_000;
    let mut attack = Attack::new(ClaimLimits::default(), blocks(4));
    (0..ALLOCATIONS).for_each(|at| attack.malloc(BASE + at * 4096, bytes, MemoryKind::Managed));
    attack.iterate(|attack| {
        for launch in 0..ALLOCATIONS / pointers {
            attack.launch(launch + 1, 1, (0..pointers).map(|at| BASE + (launch * pointers + at) * 4096));
        }
    });
    attack
}

/// Names of maximum length, each in as many signatures as an iteration has room for.
fn names() -> Attack {
    const FUNCTIONS: u64 = 2000;
    let mut attack = Attack::new(ClaimLimits::default(), blocks(4));
    attack.malloc(BASE, UNIT, MemoryKind::Managed);
    for function in 0..FUNCTIONS {
        attack.call(Action::Function { function, name: "\u{fffd}".repeat(1024) });
    }
    attack.iterate(|attack| {
        for grid in 1..12_000 {
            let function = u64::from(grid).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            attack.launch(function % FUNCTIONS, grid, std::iter::once(BASE));
        }
    });
    attack
}

fn fragments() -> Attack {
    let ranges = (0..16_384).map(|at| BASE + at * 8 * UNIT..BASE + at * 8 * UNIT + 4096);
    let mut attack = Attack::new(mapped(ranges), blocks(4));
    (0..1000).for_each(|at| attack.malloc(BASE - at * 4096, 1 << 50, MemoryKind::Managed));
    attack.iterate(|attack| {
        (0..1000).for_each(|launch| attack.launch(launch + 1, 1, (0..8).map(|at| BASE - (launch + at) % 1000 * 4096)));
    });
    attack
}

/// Launches that never repeat, allocations and faults: the permanent state of a follower.
fn endless() -> Attack {
    let mut attack = Attack::new(ClaimLimits::default(), blocks(plans::coverage::FAULTED_BLOCKS_MAX as u64));
    (0..60_000).for_each(|at| attack.malloc(BASE + at * UNIT, 4096 + at, MemoryKind::Managed));
    for launch in 0..140_000_u64 {
        attack.launch(launch.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1, 0..launch % 4);
        if launch % 4 == 0 {
            attack.malloc(BASE + launch % 60_000 * UNIT, 4096 + launch, MemoryKind::Managed);
        }
    }
    (0..3).for_each(|_| attack.sync());
    attack
}

/// A long training of 4,000 launches per iteration, each of which names some memory.
fn training() -> Attack {
    let mut attack = Attack::new(ClaimLimits::default(), blocks(4));
    (0..500).for_each(|at| attack.malloc(BASE + at * 4 * UNIT, 4 * UNIT, MemoryKind::Managed));
    for _ in 0..32 {
        for launch in 0..4000_u32 {
            let addresses = (0..5).map(|at| BASE + u64::from((launch + at) % 500) * 4 * UNIT);
            attack.launch(u64::from(launch % 97), 1 + launch / 97, addresses);
        }
        attack.sync();
    }
    attack
}

const ATTACKS: [NamedAttack; 12] = [
    ("a training", training),
    ("2^48", || one_claim(48)),
    ("2^60", || one_claim(60)),
    ("16,000 launches of 8 pointers", || launches(16_000, 8, 4096)),
    ("16,000 launches of 8 blocks", || launches(16_000, 8, UNIT)),
    ("500 launches of 500 pointers", || launches(500, 500, 4096)),
    ("1,000 launches of 39 GiB", || launches(1000, 4, 39 << 30)),
    ("overlapping claims of 2^46", || overlapping(1 << 46, 200)),
    ("overlapping claims of a block", || overlapping(UNIT, 8)),
    ("names", names),
    ("fragments", fragments),
    ("endless", endless),
];

/// Memory of a follower, in bytes.
#[derive(Debug)]
struct Measured {
    /// Peak, including the program's faults in the test.
    peak: usize,
    /// After the last call.
    held: usize,
    /// After the last call, by its own counts.
    counted: usize,
    state: State,
}

fn measure(attack: impl FnOnce() -> Attack) -> Measured {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let Attack { follower, faults, .. } = attack();
    let peak = ALLOCATOR.peak_usage().saturating_sub(before);
    drop(faults);
    let held = ALLOCATOR.current_usage().saturating_sub(before);
    Measured { peak, held, counted: follower.bytes(), state: follower.state().clone() }
}

/// Claims (address, bytes, whether managed); launches, with the claims and offsets that each names;
/// and mappings, if known.
type AnyClaims = (Vec<(u64, u64, bool)>, Vec<Vec<(usize, u64)>>, Option<Vec<(u64, u64)>>);

/// An iteration of launches that name any addresses of any claims.
fn any_claims() -> impl Strategy<Value = AnyClaims> {
    let number = || prop_oneof![any::<u64>(), (0_u32..64).prop_map(|bits| 1_u64 << bits), BASE..BASE + 64 * UNIT];
    let claims = prop::collection::vec((number(), number(), any::<bool>()), 1..40);
    let launches = prop::collection::vec(prop::collection::vec((any::<usize>(), number()), 0..20), 8..60);
    (claims, launches, prop::option::of(prop::collection::vec((number(), number()), 0..20)))
}

#[test]
fn memory_of_a_follower_is_limited_for_any_claims() {
    for (name, attack) in ATTACKS {
        let Measured { peak: bytes, held, counted, state } = measure(attack);
        let end = match &state {
            State::Refused(refusal) => refusal.to_string(),
            State::Planned(planned) => format!("a plan of {} moves", planned.moves.len()),
            State::Watching | State::Probing(_) | State::Planning => "none".to_owned(),
        };
        println!("{name}: {bytes} bytes at most, {held} in the end, {counted} by its counts; {end}");
        assert!(bytes <= HELD_BYTES_MAX + TURN_BYTES_MAX && held <= HELD_BYTES_MAX, "{name}: {bytes}, {held} bytes");
        assert!((held * 7 / 10..=held * 3 / 2).contains(&counted), "{name}: {held} bytes, {counted} by its counts");
        assert!(name == "endless" || state != State::Watching, "{name}");
    }
    let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
    let result = TestRunner::new(config).run(&any_claims(), |(claims, launches, ranges)| {
        let Measured { peak: bytes, held, counted, state } = measure(|| {
            let limits = ClaimLimits {
                mapped: ranges
                    .map(|all| all.iter().map(|(begin, bytes)| *begin..begin.saturating_add(*bytes)).collect()),
                ..ClaimLimits::default()
            };
            let mut attack = Attack::new(limits, FaultCounts::new());
            for (address, bytes, is_managed) in &claims {
                let kind = if *is_managed { MemoryKind::Managed } else { MemoryKind::Device };
                attack.malloc(*address, *bytes, kind);
            }
            attack.iterate(|attack| {
                for (function, pointers) in (1..).zip(&launches) {
                    let claims = &claims;
                    let address = |(claim, offset): &(usize, u64)| {
                        let (begin, bytes, _) = claims[claim % claims.len()];
                        begin.saturating_add(offset % bytes.max(1))
                    };
                    attack.launch(function, 1, pointers.iter().map(address));
                }
            });
            attack
        });
        prop_assert!(bytes <= HELD_BYTES_MAX + TURN_BYTES_MAX && held <= HELD_BYTES_MAX, "{bytes}, {held} bytes");
        prop_assert!(counted * 10 >= held * 7, "{held} bytes, {counted} by its counts");
        prop_assert!(state != State::Watching, "there is a plan or a refusal");
        Ok(())
    });
    result.unwrap();
}
