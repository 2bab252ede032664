//! Both sides of a plan.
#![cfg(test)]

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicU64, Ordering},
    thread,
};

use call_ring::{
    Dim3, Group, Kind, LayoutError, Memory, Mode, PLAN_BYTES, Plan, PlanMemory, TOTAL_BYTES, Target, Token,
    call::{Call, Read, Reader},
    operation::{apply, copy_of},
    plan::{
        Counter, Destination, HEADER_BYTES, HEARTBEAT_AGE_MAX_NS, MOVES_MAX, Move, PERIOD_MAX, Reason, Report, State,
        TABLE_WORDS, Table, heartbeat,
    },
    token::Signature,
};
use proptest::prelude::*;

const GPU: [u8; 16] = *b"0123456789abcdef";
const SECOND_NS: u64 = 1_000_000_000;

fn words(count: usize) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

fn token(number: u64) -> Token {
    let size = Dim3::new(1, 1, 1);
    Token { signature: Signature::of_kernel(number, size, size, 0), pointers: None }
}

const fn move_of(begin_op: u32, wait_op: Option<u32>) -> Move {
    Move { begin: 0x20_0000, bytes: 0x1000, destination: Destination::Gpu, begin_op, wait_op, expiry_op: None }
}

const fn plan<'a>(tokens: &'a [Token], moves: &'a [Move]) -> Plan<'a> {
    Plan { gpu: GPU, first_launch: 7, budget_bytes: 1 << 20, handover_wait_ns: 0, tokens, moves }
}

/// Publishes a plan as uvmd does.
fn publish(words: &[AtomicU64], plan: &Plan<'_>) -> Result<u64, Reason> {
    let copy = copy_of(words);
    let (generation, operations) = PlanMemory::open(&copy).unwrap().publish(plan)?;
    apply(operations, words);
    Ok(generation)
}

/// Report as uvmd reads it.
fn report(words: &[AtomicU64]) -> Report {
    let copy = copy_of(&words[..HEADER_BYTES / 8]);
    let memory = PlanMemory::open(&copy).unwrap();
    memory.report(&memory)
}

#[test]
fn published_plan_round_trips() {
    let (shared, own) = (words(PLAN_BYTES / 8), words(TABLE_WORDS));
    let memory = PlanMemory::create(&shared).unwrap();
    assert_eq!((memory.generation(), report(&shared).state), (0, Some(State::None)));
    let tokens: Vec<Token> = (0..5).map(token).collect();
    let to_host = Move { destination: Destination::Host, expiry_op: Some(2), ..move_of(4, None) };
    let moves = [move_of(0, Some(3)), to_host, move_of(4, Some(1))];
    let generation = publish(&shared, &plan(&tokens, &moves)).unwrap();
    let table = Table::new(&own);
    assert!(memory.copy_to(generation, table));
    let head = table.check().unwrap();
    assert_eq!((head.gpu, head.first_launch, head.period, head.moves), (GPU, 7, 5, 3));
    assert!(tokens.iter().enumerate().all(|(op, token)| table.token(op) == *token));
    assert!(moves.iter().enumerate().all(|(at, planned)| table.move_at(at) == Some(*planned)));
    // The next plan, and a withdrawal.
    let next = publish(&shared, &plan(&tokens[..1], &[])).unwrap();
    assert!(next > generation && !memory.copy_to(generation, table) && memory.copy_to(next, table));
    assert_eq!(table.check().map(|head| head.period), Ok(1));
    apply(PlanMemory::open(&copy_of(&shared)).unwrap().withdraw(), &shared);
    let withdrawn = memory.generation();
    assert!(withdrawn > next && memory.copy_to(withdrawn, table));
    assert_eq!(table.check(), Err(Reason::Withdrawn));
}

#[test]
fn invalid_plan_is_refused_by_both_sides_with_its_reason() {
    let tokens: Vec<Token> = (0..4).map(token).collect();
    let excess_tokens = vec![token(1); PERIOD_MAX + 1];
    let excess_moves = vec![move_of(0, None); MOVES_MAX + 1];
    let large = [Move { bytes: 1 << 19, ..move_of(0, None) }, Move { bytes: (1 << 19) + 0x1000, ..move_of(1, None) }];
    let end = Move { begin: u64::MAX - 0xfff, bytes: 0x1000, ..move_of(0, None) };
    for (tokens, moves, reason) in [
        (&tokens[..0], &[][..], Reason::Period),
        (&excess_tokens, &[], Reason::Period),
        (&tokens, &excess_moves, Reason::MoveCount),
        (&tokens, &[move_of(1, None), move_of(0, None)], Reason::Order),
        (&tokens, &[move_of(4, None)], Reason::Op),
        (&tokens, &[move_of(0, Some(4))], Reason::Op),
        (&tokens, &[Move { bytes: 0, ..move_of(0, None) }], Reason::Range),
        (&tokens, &[Move { begin: 0x20_0800, ..move_of(0, None) }], Reason::Range),
        (&tokens, &[Move { bytes: 0x800, ..move_of(0, None) }], Reason::Range),
        (&tokens, &[end], Reason::Range),
        (&tokens, &large, Reason::Budget),
    ] {
        let shared = words(PLAN_BYTES / 8);
        let memory = PlanMemory::create(&shared).unwrap();
        assert_eq!(publish(&shared, &plan(tokens, moves)), Err(reason));
        assert_eq!(memory.generation(), 0, "nothing is written");
    }
    // The helper also validates values that the process writes.
    let (shared, own) = (words(PLAN_BYTES / 8), words(TABLE_WORDS));
    let memory = PlanMemory::create(&shared).unwrap();
    let generation = publish(&shared, &plan(&tokens, &[move_of(0, None)])).unwrap();
    let destination = 64 + 8 + PERIOD_MAX + 2;
    assert_eq!(shared[destination].swap(3, Ordering::Relaxed), Destination::Gpu as u64);
    assert!(memory.copy_to(generation, Table::new(&own)));
    assert_eq!(Table::new(&own).check(), Err(Reason::Destination));
}

#[test]
fn a_plan_that_is_being_written_is_not_copied() {
    let (shared, own) = (words(PLAN_BYTES / 8), words(TABLE_WORDS));
    let memory = PlanMemory::create(&shared).unwrap();
    let generation = publish(&shared, &plan(&[token(1)], &[])).unwrap();
    // As after the exit of uvmd during a write.
    shared[16].store(generation + 1, Ordering::Relaxed);
    assert!(!memory.copy_to(generation, Table::new(&own)) && !memory.copy_to(generation + 1, Table::new(&own)));
    let next = publish(&shared, &plan(&[token(1)], &[])).unwrap();
    assert!(next > generation && next & 1 == 0 && memory.copy_to(next, Table::new(&own)));
}

#[test]
fn copies_during_writes_are_consistent() {
    let (shared, own) = (words(PLAN_BYTES / 8), words(TABLE_WORDS));
    let memory = PlanMemory::create(&shared).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..2000_u64 {
                let tokens = vec![token(number); 64];
                publish(&shared, &Plan { first_launch: u32::try_from(number).unwrap(), ..plan(&tokens, &[]) }).unwrap();
            }
        });
        let mut copies = 0;
        while !writer.is_finished() || copies == 0 {
            let generation = memory.generation();
            if generation != 0 && memory.copy_to(generation, Table::new(&own)) {
                let table = Table::new(&own);
                let first_launch = table.check().unwrap().first_launch;
                assert!((0..64).all(|op| table.token(op) == token(first_launch.into())));
                copies += 1;
            }
        }
    });
}

#[test]
fn heartbeat_expires_after_five_seconds() {
    let shared = words(PLAN_BYTES / 8);
    let memory = PlanMemory::create(&shared).unwrap();
    let now_ns = 100 * SECOND_NS;
    assert!(!memory.is_live(now_ns), "no heartbeat yet");
    apply([heartbeat(now_ns)], &shared);
    assert!(memory.is_live(now_ns) && memory.is_live(now_ns + HEARTBEAT_AGE_MAX_NS));
    assert!(!memory.is_live(now_ns + HEARTBEAT_AGE_MAX_NS + 1));
    // Times of a call that began before the beat, and of another clock.
    assert!(memory.is_live(now_ns - 1) && !memory.is_live(now_ns - 2 * SECOND_NS));
}

#[test]
fn states_and_counters_round_trip() {
    let shared = words(PLAN_BYTES / 8);
    let memory = PlanMemory::create(&shared).unwrap();
    for state in [
        State::None,
        State::Following,
        State::Drifted(9),
        State::Stopped(Reason::Failed(700)),
        State::Stopped(Reason::Exit),
        State::Refused(Reason::Period),
        State::Refused(Reason::ProgramAdvice),
    ] {
        memory.set_state(4, state);
        let report = report(&shared);
        assert_eq!((report.generation, report.state), (4, Some(state)));
    }
    memory.count(Counter::Late, 2);
    memory.count(Counter::BytesToHost, 1 << 40);
    memory.count(Counter::Expired, 3);
    let counters = report(&shared).counters;
    assert_eq!((counters.late, counters.bytes_to_host, counters.expired, counters.moves), (2, 1 << 40, 3, 0));
    shared[25].store(9 << 56, Ordering::Relaxed);
    assert_eq!(report(&shared).state, None);
    assert!(matches!(PlanMemory::open(&shared[1..]), Err(LayoutError::Size { .. })));
    shared[1].store(3 << 32, Ordering::Relaxed);
    assert_eq!(PlanMemory::open(&shared).unwrap_err(), LayoutError::Version { major: 3 });
    shared[0].store(0, Ordering::Relaxed);
    assert_eq!(PlanMemory::open(&shared).unwrap_err(), LayoutError::Header);
}

/// Records a launch as the helper does. Returns the hash of its pointers.
fn launch(memory: &Memory<'_>, function: u64, addresses: &[u64], number: u32) -> Option<NonZeroU32> {
    let words = [function, Dim3::new(3, 2, 1).to_word(), Dim3::new(64, 1, 1).to_word(), 48 + (u64::from(number) << 32)];
    let mut group = Group::with_target(memory.lane(0), memory.stamp(1, 2), Kind::Launch, 0, Target::Stream(5), words);
    group.enable_pointers_hash();
    addresses.iter().zip(0..).for_each(|(address, at)| group.add_pointer(8 * at, *address));
    let hash = group.pointers_hash();
    assert!(group.publish());
    hash
}

fn next(words: &[AtomicU64]) -> Call {
    let memory = Memory::open(words).unwrap();
    let (mut reads, copy) = (Vec::new(), |place, bytes: &mut [u8]| memory.copy_to(place, bytes));
    let (lane, mut position) = (memory.lane(0), None);
    Reader::default().read(&lane, &mut position, copy, |read| reads.push(read)).unwrap();
    apply(position.map(|position| lane.consume(position)), words);
    match reads.pop() {
        Some(Read::Call(call)) if reads.is_empty() => call,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_sides_have_the_same_token_and_number_of_a_launch() {
    let words = words(TOTAL_BYTES / 8);
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let (grid, block) = (Dim3::new(3, 2, 1), Dim3::new(64, 1, 1));
    for (addresses, number) in
        [&[][..], &[0x1000], &[0x1000, 0x2000], &[0x2000, 0x1000], &[9; 6]].into_iter().zip([1, 2, 0, u32::MAX, 64])
    {
        let pointers = launch(&memory, 7, addresses, number);
        let call = next(&words);
        let token = Token { signature: Signature::of_kernel(7, grid, block, 48), pointers };
        assert_eq!((call.token(), call.number), (Some(token), Some(number)));
        assert!(pointers.is_some());
        assert_eq!(Token::from_word(token.to_word()), token);
        // Other calls are not ops of an iteration.
        assert!(Group::begin(memory.lane(0), memory.stamp(1, 2), Kind::Sync, 0, [0, 1, 0, 0, 0]).publish());
        assert_eq!(next(&words).number, None);
        assert!(
            Group::begin(memory.lane(0), memory.stamp(1, 2), Kind::GraphLaunch, 0, [1, 9, number.into(), 0, 0])
                .publish()
        );
        let graph = next(&words);
        assert_eq!(
            (graph.token().map(|token| token.signature), graph.number),
            (Some(Signature::of_graph(9)), Some(number))
        );
    }
}

#[test]
fn tokens_differ_by_each_part_of_a_launch() {
    let (grid, block) = (Dim3::new(3, 2, 1), Dim3::new(64, 1, 1));
    let signatures = [
        Signature::of_kernel(7, grid, block, 48),
        Signature::of_kernel(8, grid, block, 48),
        Signature::of_kernel(7, block, grid, 48),
        Signature::of_kernel(7, grid, block, 0),
        Signature::of_graph(7),
    ];
    for (at, signature) in signatures.iter().enumerate() {
        assert!(!signatures[at + 1..].contains(signature));
    }
    // Each bit of a handle counts.
    assert_ne!(Signature::of_graph(0x55d0_1234_5680), Signature::of_graph(0x7f11_1234_5680));
    let signatures = |of: fn(u64) -> Signature| (0..64).map(move |bit| of(1 << bit)).chain([of(0)]);
    for of in
        [Signature::of_graph, |function| Signature::of_kernel(function, Dim3::new(1, 1, 1), Dim3::new(1, 1, 1), 0)]
    {
        assert!(signatures(of).enumerate().all(|(at, one)| !signatures(of).skip(at + 1).any(|other| other == one)));
    }
    let words = words(TOTAL_BYTES / 8);
    let memory = Memory::create(&words, Mode::Record).unwrap();
    let hashes = [&[][..], &[0], &[1, 2], &[2, 1]].map(|addresses| launch(&memory, 7, addresses, 0));
    let token = Token { pointers: hashes[2], ..token(1) };
    assert_eq!(hashes.map(|hash| token.matches_pointers(hash)), [false, false, true, false]);
    assert!(token.matches_pointers(None) && Token { pointers: None, ..token }.matches_pointers(hashes[0]));
}

proptest! {
    #[test]
    fn a_table_of_any_words_is_refused_or_within_its_bounds(
        period in prop_oneof![0_u64..70, any::<u64>()],
        moves in prop_oneof![0_u64..9, any::<u64>()],
        budget in any::<u64>(),
        values in prop::collection::vec(
            (prop_oneof![(0_u64..1 << 20).prop_map(|page| page << 12), any::<u64>()],
             prop_oneof![(0_u64..1 << 20).prop_map(|pages| pages << 12), any::<u64>()],
             prop_oneof![(1_u64..3, 0_u64..70).prop_map(|(to, expiry)| to | expiry << 32), any::<u64>()],
             prop_oneof![(0_u64..70, 0_u64..70).prop_map(|(begin, wait)| begin | wait << 32), any::<u64>()]),
            0..9,
        ),
    ) {
        let words = words(TABLE_WORDS);
        for (at, value) in [(3, period), (4, moves), (5, budget)] {
            words[at].store(value, Ordering::Relaxed);
        }
        for (at, (begin, bytes, destination, ops)) in values.into_iter().enumerate() {
            for (within, value) in [begin, bytes, destination, ops].into_iter().enumerate() {
                words[8 + PERIOD_MAX + at * 4 + within].store(value, Ordering::Relaxed);
            }
        }
        let table = Table::new(&words);
        if let Ok(head) = table.check() {
            prop_assert!((1..=PERIOD_MAX).contains(&head.period) && head.moves <= MOVES_MAX);
            let mut bytes = 0_u64;
            for at in 0..head.moves {
                let planned = table.move_at(at).unwrap();
                prop_assert!((planned.begin_op as usize) < head.period);
                let others = [planned.wait_op, planned.expiry_op];
                prop_assert!(others.into_iter().flatten().all(|op| (op as usize) < head.period));
                prop_assert!(planned.bytes > 0 && (planned.begin | planned.bytes).is_multiple_of(0x1000));
                bytes += planned.bytes;
            }
            prop_assert!(bytes <= head.budget_bytes);
        }
    }

    #[test]
    fn any_word_decodes_to_a_state_or_none(word in any::<u64>()) {
        let shared = words(PLAN_BYTES / 8);
        let memory = PlanMemory::create(&shared).unwrap();
        shared[25].store(word, Ordering::Relaxed);
        if let Some(state) = report(&shared).state {
            memory.set_state(2, state);
            prop_assert_eq!(report(&shared).state, Some(state));
        }
    }
}
