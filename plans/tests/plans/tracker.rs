//! Positions of programs in plans carried out from outside the process.

use call_ring::{
    Plan, Token,
    plan::{Destination, Move},
};
use plans::{Begun, Ending, Tracker};

use super::*;

const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;
/// Launches of an iteration, each with 2 MiB of its own.
const PERIOD: u32 = 4;

/// A program of some iterations, and its memory.
fn iterated(iterations: u64) -> (Program, recorder::Program) {
    let mut program = Program::default();
    (0..u64::from(PERIOD)).for_each(|op| program.malloc(BASE + op * 2 * MIB, 2 * MIB));
    let mut has = recorder::Program::default();
    program.calls.iter().for_each(|call| has.advance(&call.action));
    program.calls.clear();
    for _ in 0..iterations {
        (0..u64::from(PERIOD)).for_each(|op| program.launch(op + 1, &[BASE + op * 2 * MIB]));
        program.sync();
    }
    (program, has)
}

fn tokens() -> Vec<Token> {
    iterated(1).0.calls.iter().filter_map(Call::token).collect()
}

fn step(op: u64, begin_op: u32, wait_op: Option<u32>) -> Move {
    Move {
        begin: BASE + op * 2 * MIB,
        bytes: 2 * MIB,
        destination: Destination::Host,
        begin_op,
        wait_op,
        expiry_op: None,
    }
}

/// Moves, two of them after the same launch; the last one is waited for in the next iteration.
fn moves() -> [Move; 3] {
    [step(0, 0, None), step(1, 2, Some(3)), step(2, 2, Some(1))]
}

fn tracker_of(moves: &[Move], first_launch: u32) -> Tracker {
    let tokens = tokens();
    Tracker::new(&Plan {
        gpu: [1; 16],
        first_launch,
        budget_bytes: u64::MAX,
        handover_wait_ns: 0,
        tokens: &tokens,
        moves,
    })
}

fn begun(tracker: &mut Tracker) -> Vec<(usize, Option<u64>)> {
    tracker.take_begun().into_iter().map(|Begun { at, deadline_launch, .. }| (at, deadline_launch)).collect()
}

#[test]
fn moves_begin_after_their_launches_from_the_next_iteration_on() {
    let (program, has) = iterated(3);
    let mut tracker = tracker_of(&moves(), 1 + 100 * PERIOD);
    // The plan is published within the first iteration.
    tracker.add(&program.calls[2..5], &has).unwrap();
    assert_eq!((begun(&mut tracker), tracker.launches(), tracker.iterations()), (vec![], 0, 0));
    tracker.add(&program.calls[5..8], &has).unwrap();
    assert_eq!((begun(&mut tracker), tracker.launches()), (vec![(0, None), (1, Some(3)), (2, Some(5))], 3));
    tracker.add(&program.calls[8..], &has).unwrap();
    assert_eq!(begun(&mut tracker), [(0, None), (1, Some(7)), (2, Some(9))]);
    assert_eq!((tracker.launches(), tracker.iterations()), (8, 2));
}

#[test]
fn numbers_of_launches_go_on_after_their_greatest() {
    let (mut program, has) = iterated(2);
    let launches = program.calls.iter_mut().filter_map(|call| call.number.as_mut());
    launches.for_each(|number| *number = number.wrapping_sub(4));
    let mut tracker = tracker_of(&moves(), 1);
    tracker.add(&program.calls, &has).unwrap();
    assert_eq!(tracker.iterations(), 2);
}

#[test]
fn program_that_launches_without_end_has_a_bounded_number_of_moves_begun() {
    let (program, has) = iterated(4096);
    let mut tracker = tracker_of(&moves(), 1);
    tracker.add(&program.calls, &has).unwrap();
    assert_eq!((begun(&mut tracker).len(), tracker.skipped()), (4096, 2 * 4096));
}

#[test]
fn launch_that_is_not_the_planned_one_ends_the_plan_and_begins_nothing() {
    let (mut program, has) = iterated(1);
    program.launch(1, &[BASE]);
    program.launch(7, &[BASE]);
    let mut tracker = tracker_of(&[step(0, 1, None)], 1);
    assert_eq!(tracker.add(&program.calls, &has), Err(Ending::Drifted { op: 1 }));
    assert_eq!(begun(&mut tracker).len(), 1, "of the iteration before");
    // The same function with another pointer.
    let (mut program, has) = iterated(1);
    program.launch(1, &[BASE + 4096]);
    assert_eq!(tracker_of(&moves(), 1).add(&program.calls, &has), Err(Ending::Drifted { op: 0 }));
}

#[test]
fn calls_without_records_end_the_plan() {
    let (mut program, has) = iterated(2);
    let is_sync = |call: &Call| call.token().is_none();
    program.calls.retain(|call| !is_sync(call));
    assert_eq!(tracker_of(&moves(), 1).add(&program.calls, &has), Err(Ending::Gap));
}

#[test]
fn move_that_expires_is_late_from_its_expiry_on() {
    let (program, has) = iterated(1);
    let mut tracker = tracker_of(&[Move { expiry_op: Some(3), ..step(0, 0, Some(1)) }], 1);
    tracker.add(&program.calls, &has).unwrap();
    assert_eq!(begun(&mut tracker), [(0, Some(3))]);
}

#[test]
fn launch_without_a_record_ends_the_plan() {
    let (mut program, has) = iterated(2);
    // A launch that the driver refused.
    program.calls.remove(6);
    (0..).zip(&mut program.calls).for_each(|(sequence, call)| call.stamp.sequence = sequence);
    assert_eq!(tracker_of(&moves(), 1).add(&program.calls, &has), Err(Ending::Missing { op: 1 }));
}

#[test]
fn free_of_planned_memory_ends_the_plan() {
    let (mut program, has) = iterated(1);
    program.malloc(BASE + 64 * MIB, MIB);
    program.call(Action::Free { stream: 0, address: BASE + 64 * MIB });
    // Memory of the last launch is not moved.
    program.call(Action::Free { stream: 0, address: BASE + 6 * MIB });
    let mut tracker = tracker_of(&moves(), 1);
    tracker.add(&program.calls, &has).unwrap();
    let at = program.calls.len();
    program.call(Action::Free { stream: 0, address: BASE + 2 * MIB });
    assert_eq!(tracker.add(&program.calls[at..], &has), Err(Ending::Freed));
}

#[test]
fn advice_of_the_program_on_planned_memory_refuses_or_ends_the_plan() {
    let advise = |advice, address| Action::Advise { address, bytes: MIB, advice, to: 0 };
    let (program, mut has) = iterated(1);
    let add = |has: &recorder::Program, action| {
        let mut program = Program::default();
        program.call(action);
        tracker_of(&moves(), 1).add(&program.calls, has)
    };
    // Access by a device, and memory that is not moved.
    assert_eq!(add(&has, advise(5, BASE)), Ok(()));
    assert_eq!(add(&has, advise(3, BASE + 6 * MIB)), Ok(()));
    assert_eq!(add(&has, advise(3, BASE + 5 * MIB)), Err(Ending::ProgramAdvice));
    assert_eq!(add(&has, advise(1, BASE)), Err(Ending::ProgramAdvice));
    has.advance(&advise(3, BASE + 2 * MIB));
    assert_eq!(tracker_of(&moves(), 1).add(&program.calls, &has), Err(Ending::ProgramAdvice));
    has.advance(&advise(4, BASE + 2 * MIB));
    assert_eq!(tracker_of(&moves(), 1).add(&program.calls, &has), Ok(()));
}

#[test]
fn memory_that_is_not_managed_refuses_the_plan() {
    let (program, mut has) = iterated(1);
    let add = |has: &recorder::Program, step| tracker_of(&[step], 1).add(&program.calls, has);
    assert_eq!(add(&has, Move { bytes: 8 * MIB, ..step(0, 0, None) }), Ok(()), "of neighbours");
    assert_eq!(add(&has, Move { bytes: 10 * MIB, ..step(0, 0, None) }), Err(Ending::NotAllocated));
    let kind = MemoryKind::Device;
    has.advance(&Action::Malloc { stream: 0, address: BASE + 8 * MIB, bytes: 2 * MIB, kind, device: 0 });
    assert_eq!(add(&has, Move { bytes: 10 * MIB, ..step(0, 0, None) }), Err(Ending::NotAllocated));
}
