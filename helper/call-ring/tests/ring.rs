//! Both sides of the ring.
#![cfg(test)]

use std::sync::atomic::{AtomicU64, Ordering};

use call_ring::{
    Dim3, Group, Kind, Lane, LayoutError, Memory, MemoryKind, Mode, TOTAL_BYTES, Target,
    call::{Action, Call, Pointer, Read, Reader, USER_SPACE_END},
    group::{NAME_BYTES_MAX, POINTERS_MAX},
    kind::ASYNCHRONOUS,
    memory::{DEDICATED_LANES, HEADER_BYTES, LANES},
    operation::apply,
};
use proptest::prelude::*;

fn words() -> Vec<AtomicU64> {
    (0..TOTAL_BYTES / 8).map(|_| AtomicU64::new(0)).collect()
}

fn create(words: &[AtomicU64]) -> Memory<'_> {
    Memory::create(words, Mode::Record).unwrap()
}

/// Reads all records of a lane.
fn reads(memory: &Memory<'_>, words: &[AtomicU64], lane: &Lane<'_>) -> Vec<Read> {
    let (mut reads, copy) = (Vec::new(), |place, bytes: &mut [u8]| memory.copy_to(place, bytes));
    let mut position = None;
    Reader::default().read(lane, &mut position, copy, |read| reads.push(read)).unwrap();
    apply(position.map(|position| lane.consume(position)), words);
    reads
}

fn calls<const N: usize>(memory: &Memory<'_>, words: &[AtomicU64], lane: &Lane<'_>) -> [Call; N] {
    let reads = reads(memory, words, lane).into_iter();
    let calls = reads.map(|read| if let Read::Call(call) = read { call } else { panic!("{read:?}") });
    calls.collect::<Vec<Call>>().try_into().unwrap()
}

fn malloc<'a>(memory: &Memory<'a>, lane: Lane<'a>, address: u64) -> bool {
    Group::begin(lane, memory.stamp(7, 99), Kind::Malloc, 0, [0, address, 4096, MemoryKind::Managed as u64, 1])
        .publish()
}

fn launch<'a>(memory: &Memory<'a>, lane: Lane<'a>, target: Target, pointers: usize) -> Group<'a> {
    let sizes = [0x1230, Dim3::new(1000, 2, 3).to_word(), Dim3::new(256, 1, 1).to_word(), 48];
    let mut group = Group::with_target(lane, memory.stamp(8, 99), Kind::Launch, ASYNCHRONOUS, target, sizes);
    for at in 0..pointers {
        group.add_pointer(u16::try_from(at * 8).unwrap(), 0x7000_0000 + at as u64);
    }
    group
}

#[test]
fn calls_round_trip() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(0);
    assert!(malloc(&memory, lane, 0x7000_0000));
    let target = Target::Executable { executable: 5, node: 6 };
    assert!(launch(&memory, lane, target, 9).publish());
    let mut named = Group::begin(lane, memory.stamp(9, 99), Kind::Function, 0, [0, 0x1230, 0, 0, 0]);
    named.add_name(b"a_function_whose_name_is_longer_than_a_record_has_room_for".iter().copied());
    assert!(named.publish());

    let memory = Memory::open(&words).unwrap();
    let lane = memory.lane(0);
    let [first, second, third] = calls(&memory, &words, &lane);
    assert_eq!((first.stamp.sequence, first.stamp.time_ns, first.stamp.thread), (0, 7, 99));
    let malloc = Action::Malloc { stream: 0, address: 0x7000_0000, bytes: 4096, kind: MemoryKind::Managed, device: 1 };
    assert_eq!(first.action, malloc);
    assert!(second.is_asynchronous && !second.is_cut);
    let pointers = (0..9).map(|at| Pointer { offset_bytes: at * 8, address: 0x7000_0000 + u64::from(at) }).collect();
    let launch = Action::Launch {
        target,
        function: 0x1230,
        grid: Dim3::new(1000, 2, 3),
        block: Dim3::new(256, 1, 1),
        shared_bytes: 48,
        pointers: Some(pointers),
    };
    assert_eq!(second.action, launch);
    let name = "a_function_whose_name_is_longer_than_a_record_has_room_for".to_owned();
    assert_eq!(third.action, Action::Function { function: 0x1230, name });
    assert_eq!(reads(&memory, &words, &lane), []);
}

#[test]
fn excess_pointers_and_name_bytes_are_cut_and_flagged() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(0);
    assert!(launch(&memory, lane, Target::Stream(0), POINTERS_MAX + 1).publish());
    let mut named = Group::begin(lane, memory.stamp(9, 99), Kind::Function, 0, [0; 5]);
    named.add_name(std::iter::repeat_n(b'x', NAME_BYTES_MAX + 1));
    assert!(named.publish());
    let [launch, named] = calls(&memory, &words, &lane);
    let Action::Launch { pointers: Some(pointers), .. } = launch.action else { panic!("{launch:?}") };
    assert!(launch.is_cut && pointers.len() == POINTERS_MAX);
    assert!(named.is_cut && matches!(named.action, Action::Function { name, .. } if name.len() == NAME_BYTES_MAX));
}

#[test]
fn ranges_outside_user_space_are_invalid() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(0);
    let ranges =
        [(0x1000, 1, true), (USER_SPACE_END - 8, 8, true), (USER_SPACE_END - 8, 9, false), (8, u64::MAX, false)];
    for kind in [Kind::Malloc, Kind::Fill, Kind::Prefetch, Kind::Advise, Kind::Discard] {
        for (address, bytes, is_valid) in ranges {
            assert!(Group::begin(lane, memory.stamp(1, 1), kind, 0, [0, address, bytes, 1, 0]).publish());
            let read = reads(&memory, &words, &lane).pop();
            assert_eq!(matches!(read, Some(Read::Call(_))), is_valid, "{kind:?}: {address:#x}, {bytes}: {read:?}");
            assert!(is_valid || read == Some(Read::Invalid));
        }
    }
}

#[test]
fn call_that_does_not_fit_is_dropped_as_a_whole_and_counted() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(1);
    // Leaves room for three records; the launch has four.
    let fitting = (0..1 << 20).take_while(|at| lane.has_room(4) && malloc(&memory, lane, *at)).count();
    assert_eq!((fitting, lane.dropped()), (lane.capacity() - 3, 0));
    assert!(!launch(&memory, lane, Target::Stream(0), 12).publish());
    assert!(launch(&memory, lane, Target::Stream(0), 8).publish());
    assert_eq!((lane.dropped(), lane.has_room(1)), (1, false));
    let reads = reads(&memory, &words, &lane);
    let (last, mallocs) = reads.split_last().unwrap();
    for (read, at) in mallocs.iter().zip(0..) {
        assert!(matches!(read, Read::Call(Call { action: Action::Malloc { address, .. }, .. }) if *address == at));
    }
    assert!(
        matches!(last, Read::Call(Call { action: Action::Launch { pointers: Some(pointers), .. }, .. }) if pointers.len() == 8)
    );
    assert_eq!((mallocs.len(), lane.has_room(lane.capacity())), (fitting, true));
}

proptest! {
    #[test]
    fn calls_that_wrap_around_the_lane_are_whole(
        rounds in prop::collection::vec(prop::collection::vec(0_usize..200, 1..40), 1..20),
    ) {
        let words = words();
        let memory = create(&words);
        for lane in [memory.lane(1), memory.lane(15)] {
            for pointers in &rounds {
                let published = pointers.iter().filter(|count| lane.has_room(1) && launch(&memory, lane, Target::Stream(0), **count).publish());
                let published: Vec<usize> = published.copied().collect();
                let read = reads(&memory, &words, &lane).into_iter().map(|read| match read {
                    Read::Call(Call { action: Action::Launch { pointers: Some(pointers), .. }, .. }) => pointers.len(),
                    other => panic!("{other:?}"),
                });
                prop_assert_eq!(read.collect::<Vec<usize>>(), published);
            }
        }
    }
}

#[test]
fn lane_has_one_owner_until_it_is_released() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(3);
    assert!(lane.acquire(7) && !lane.acquire(8));
    lane.release();
    assert!(lane.acquire(8));
    assert!(lane.try_lock() && !lane.try_lock());
    lane.unlock();
    assert!(lane.try_lock());
}

#[test]
fn memory_of_another_size_or_version_is_rejected() {
    let all = words();
    assert_eq!(Memory::open(&all).unwrap_err(), LayoutError::Header);
    create(&all);
    assert!(Memory::open(&all).is_ok());
    assert!(matches!(Memory::open(&all[1..]), Err(LayoutError::Size { .. })));
    let header = Memory::open(&all[..HEADER_BYTES / 8]).unwrap();
    assert_eq!(header.lanes().map(|lane| lane.unread(None).records()).sum::<usize>(), 0);
    all[1].store(2 << 32, Ordering::Relaxed);
    assert_eq!(Memory::open(&all).unwrap_err(), LayoutError::Version { major: 2 });
}

#[test]
fn records_of_a_later_version_are_skipped_as_a_whole() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(0);
    let later = call_ring::Record { kind: 40, count: 1, ..Default::default() };
    lane.write(0, later);
    lane.write(1, later);
    lane.publish(2);
    assert!(malloc(&memory, lane, 1));
    let reads = reads(&memory, &words, &lane);
    assert!(matches!(&reads[..], [Read::Unknown, Read::Call(_)]), "{reads:?}");
}

proptest! {
    #[test]
    fn reader_of_arbitrary_memory_ends_and_never_panics(
        words in prop::collection::vec((0_usize..TOTAL_BYTES / 8, any::<u64>()), 0..200),
        heads in prop::collection::vec((0..LANES, 0_u64..200), 0..4),
        records in prop::collection::vec((0..LANES, 0_u64..64, any::<[u64; 8]>()), 0..64),
    ) {
        let memory = self::words();
        create(&memory);
        for (lane, at, words) in records {
            let lane = Memory::open(&memory).unwrap().lane(lane);
            lane.write(usize::try_from(at).unwrap(), call_ring::Record::from_words(words));
        }
        for (lane, records) in heads {
            Memory::open(&memory).unwrap().lane(lane).publish(usize::try_from(records).unwrap());
        }
        for (at, word) in words {
            memory[at].store(word, Ordering::Relaxed);
        }
        if let Ok(ring) = Memory::open(&memory) {
            for lane in ring.lanes() {
                prop_assert!(reads(&ring, &memory, &lane).len() <= lane.capacity());
            }
        }
    }
}

#[test]
fn threads_start_at_different_shared_lanes_and_try_each_once() {
    let words = words();
    let memory = create(&words);
    for thread in 0..7 {
        let lanes = || memory.shared_lanes(thread);
        assert_eq!(lanes().count(), LANES - DEDICATED_LANES);
        assert!(lanes().all(|lane| lane.try_lock()), "each lane once");
        (DEDICATED_LANES..LANES).for_each(|lane| memory.lane(lane).unlock());
        assert!(memory.shared_lanes(thread + 1).next().unwrap().try_lock());
        let first_free = lanes().position(|lane| lane.try_lock());
        assert_eq!(first_free, Some(0), "the next thread starts at another lane");
        (DEDICATED_LANES..LANES).for_each(|lane| memory.lane(lane).unlock());
    }
}

#[test]
fn reader_continues_at_its_own_position_whatever_the_tail() {
    let words = words();
    let memory = create(&words);
    let lane = memory.lane(0);
    assert!((0..5).all(|address| malloc(&memory, lane, address)));
    let mut position = Some(3);
    let mut read = |copy_fails: bool| {
        let mut reads = Vec::new();
        let copy =
            |place, bytes: &mut [u8]| if copy_fails { Err(()) } else { memory.copy_to(place, bytes).map_err(|_| ()) };
        let result = Reader::default().read(&lane, &mut position, copy, |read| reads.push(read));
        (reads.len(), result, position)
    };
    assert_eq!(read(true), (0, Err(()), Some(3)));
    assert_eq!(read(false), (2, Ok(()), Some(5)));
    // The tail in the memory is still at the begin.
    assert_eq!(read(false), (0, Ok(()), Some(5)));
}
