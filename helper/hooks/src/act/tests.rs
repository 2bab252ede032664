//! Execution of commands with a fake driver.

use core::ffi::{c_char, c_void};
use std::{cell::RefCell, sync::atomic::Ordering};

use call_ring::{Mode, TOTAL_BYTES, command::Action};

use super::*;
use crate::{
    program::{replace, text},
    zeroed::{self, Words},
};

const GPU: [u8; 16] = *b"0123456789abcdef";
const CONTEXT: Handle = 7;
const PIECE: u64 = 0x1_0000;
const BEGIN: u64 = 0x10_0000;

type During = Box<dyn FnMut(u64) -> i32>;

thread_local! {
    /// Advice calls: address, end, advice.
    static CALLS: RefCell<Vec<(u64, u64, u32)>> = const { RefCell::new(Vec::new()) };
    /// Hook of advice calls, by address; returns the driver's result.
    static DURING: RefCell<Option<During>> = const { RefCell::new(None) };
}

extern "C" fn device_count(count: *mut i32) -> CuResult {
    replace(count, 1);
    CuResult(0)
}

extern "C" fn device_get(device: *mut i32, _: i32) -> CuResult {
    replace(device, 0);
    CuResult(0)
}

extern "C" fn device_uuid(uuid: *mut [u8; 16], _: i32) -> CuResult {
    replace(uuid, GPU);
    CuResult(0)
}

const extern "C" fn set_current(_: Handle) -> CuResult {
    CuResult(0)
}

extern "C" fn context_device(device: *mut i32) -> CuResult {
    replace(device, 0);
    CuResult(0)
}

extern "C" fn attribute(value: *mut c_void, _: u32, _: u64) -> CuResult {
    replace(value.cast(), CONTEXT);
    CuResult(0)
}

extern "C" fn advise(address: u64, bytes: usize, advice: u32, _: i32) -> CuResult {
    CALLS.with_borrow_mut(|calls| calls.push((address, address + bytes as u64, advice)));
    DURING.with_borrow_mut(|during| CuResult(during.as_mut().map_or(0, |during| during(address))))
}

extern "C" fn dlsym(_: *mut c_void, name: *const c_char) -> *mut c_void {
    match text(name.cast()).collect::<Vec<u8>>().as_slice() {
        b"cuDeviceGetCount" => device_count as *mut c_void,
        b"cuDeviceGet" => device_get as *mut c_void,
        b"cuDeviceGetUuid" => device_uuid as *mut c_void,
        b"cuCtxSetCurrent" => set_current as *mut c_void,
        b"cuCtxGetDevice" => context_device as *mut c_void,
        b"cuPointerGetAttribute" => attribute as *mut c_void,
        b"cuMemAdvise" => advise as *mut c_void,
        _ => core::ptr::null_mut(),
    }
}

const fn piece(at: u64) -> Range {
    Range::new(BEGIN + at * PIECE, PIECE)
}

/// Executor of a program with three adjacent blocks.
fn executor() -> Executor {
    driver::find(dlsym, core::ptr::null_mut());
    let mut words = Words::new(zeroed::private(16).unwrap());
    let memory = Memory::create(zeroed::private(TOTAL_BYTES / 8).unwrap(), Mode::Act).unwrap();
    let executor = Executor {
        memory,
        permission: Permission::new(memory, Box::leak(Box::default())),
        blocks: Blocks::new().unwrap(),
        advised: Advised::new().unwrap(),
        gate: Gate::new(&mut words).unwrap(),
        stream: Stream::new(&mut words).unwrap(),
    };
    executor.gate.set_owner();
    for at in 0..3 {
        assert!(executor.blocks.add(Block::new(piece(at).begin, PIECE, CONTEXT, true)));
    }
    executor
}

/// Answer to a command about all blocks, and the advice calls made for it.
fn executed(executor: &Executor, action: Action, during: Option<During>) -> (Answer, Vec<(u64, u64, u32)>) {
    CALLS.take();
    DURING.set(during);
    let command = Command { action, gpu: GPU, begin: BEGIN, end: BEGIN + 3 * PIECE };
    let Response { answer, advice_calls } = executor.execute(&command, &mut Watch::new(executor.gate));
    let calls = CALLS.take();
    assert_eq!(advice_calls, calls.len() as u64);
    (answer, calls)
}

fn all(advice: u32) -> Vec<(u64, u64, u32)> {
    (0..3).map(|at| (piece(at).begin, piece(at).end, advice)).collect()
}

#[test]
fn a_command_is_refused_before_its_first_call_and_fails_after_it() {
    type Change = fn(&Executor);
    let changes: [(Change, Answer); 5] = [
        (|executor| assert!(executor.advised.note(piece(2), Subject::LOCATION)), Answer::ProgramAdvice),
        (|executor| assert!(executor.blocks.remove(piece(2).begin).is_some()), Answer::NotAllocated),
        (|executor| executor.memory.set_mode(Mode::Record), Answer::NotActing),
        (|executor| executor.permission.is_filter_requested.store(true, Ordering::Relaxed), Answer::NotActing),
        (|executor| executor.gate.shut(), NOT_READY),
    ];
    for (change, refused) in changes {
        let before = executor();
        change(&before);
        assert_eq!(executed(&before, Action::PreferGpu, None), (refused, vec![]));
        let meanwhile = executor();
        let during = Box::new(move |address| {
            if address == piece(0).begin {
                change(&meanwhile);
            }
            0
        });
        let (answer, calls) = executed(&meanwhile, Action::PreferGpu, Some(during));
        assert_eq!((answer, calls.len() < 3), (NOT_READY, true), "{refused:?}");
    }
    assert_eq!(executed(&executor(), Action::PreferGpu, None), (Answer::Done, all(3)));
    let fails = Box::new(|address| if address == piece(1).begin { 801 } else { 0 });
    let expected = all(3).into_iter().take(2).collect();
    assert_eq!(executed(&executor(), Action::PreferGpu, Some(fails)), (Answer::Failed(801), expected));
}

#[test]
fn withdrawals_skip_advice_of_the_program_and_freed_memory() {
    let executor = executor();
    assert_eq!(executed(&executor, Action::PreferNowhere, None), (Answer::Done, all(4)));
    // Advice on other subjects, and on an unknown one.
    for subject in [Subject::of(1, 0).0, Subject::of(5, 0).0, Subject::UNKNOWN] {
        assert!(executor.advised.note(piece(1), subject));
    }
    assert_eq!(executed(&executor, Action::PreferNowhere, None), (Answer::Done, all(4)));
    assert_eq!(executed(&executor, Action::PreferGpu, None), (Answer::ProgramAdvice, vec![]));
    // Advice on a byte counts for its whole page.
    let byte = Range::new(piece(1).begin + 0x2010, 1);
    assert!(executor.advised.note(byte, Subject::LOCATION));
    let (first, after) = ((piece(1).begin, piece(1).begin + 0x2000), (piece(1).begin + 0x3000, piece(1).end));
    let expected = [(piece(0).begin, piece(0).end), first, after, (piece(2).begin, piece(2).end)];
    let with = |advice: &[u32]| {
        expected.iter().flat_map(|(begin, end)| advice.iter().map(|advice| (*begin, *end, *advice))).collect()
    };
    assert_eq!(executed(&executor, Action::PreferNowhere, None), (Answer::Done, with(&[4])));
    // The GPU is preferred first, which may fail.
    assert_eq!(executed(&executor, Action::UnsetPreferredHost, None), (Answer::Done, with(&[3, 4])));
    assert!(executor.blocks.remove(piece(0).begin).is_some());
    assert!(executor.blocks.remove(piece(2).begin).is_some());
    let (answer, calls) = executed(&executor, Action::PreferNowhere, None);
    assert_eq!((answer, calls.len()), (Answer::Done, 2));
    assert!(executor.advised.note(piece(1), Subject::LOCATION));
    assert_eq!(executed(&executor, Action::PreferNowhere, None), (Answer::ProgramAdvice, vec![]));
    assert!(executor.blocks.remove(piece(1).begin).is_some());
    assert_eq!(executed(&executor, Action::PreferNowhere, None), (Answer::NotAllocated, vec![]));
}

#[test]
fn a_withdrawal_that_fails_in_part_is_made_for_the_rest() {
    let executor = executor();
    let fails = |address| if address == piece(0).begin { 801 } else { 0 };
    let expected = (Answer::Failed(801), all(6));
    assert_eq!(executed(&executor, Action::NoAccessByGpu, Some(Box::new(fails))), expected);
    let before = |address| if address == piece(0).begin { 801 } else { 0 };
    assert!(executor.advised.note(Range { end: piece(2).end, ..piece(0) }, Subject::of(6, 0).0));
    assert_eq!(executed(&executor, Action::NoAccessByGpu, Some(Box::new(before))), (Answer::ProgramAdvice, vec![]));
    executor.memory.set_mode(Mode::Off);
    assert_eq!(executed(&executor, Action::DoNotDuplicate, None), (Answer::NotActing, vec![]));
}
