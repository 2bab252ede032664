//! Execution of commands with a fake driver.

use core::ffi::{c_char, c_void};
use std::{cell::RefCell, sync::atomic::Ordering};

use call_ring::{Mode, TOTAL_BYTES, command::Action};

use super::*;
use crate::{
    mapping::{self, Words},
    program::{overwrite, text},
};

const GPU: [u8; 16] = *b"0123456789abcdef";
const CONTEXT: Handle = 7;
const BLOCK_BYTES: u64 = 0x1_0000;
const BEGIN: u64 = 0x10_0000;

type OnAdvice = Box<dyn FnMut(u64) -> i32>;

thread_local! {
    /// Advice calls: address, end, advice.
    static CALLS: RefCell<Vec<(u64, u64, u32)>> = const { RefCell::new(Vec::new()) };
    /// Hook of advice calls, by address; returns the driver's result.
    static ON_ADVICE: RefCell<Option<OnAdvice>> = const { RefCell::new(None) };
}

extern "C" fn device_count(count: *mut i32) -> CuResult {
    overwrite(count, 1);
    CuResult(0)
}

extern "C" fn device_get(device: *mut i32, _: i32) -> CuResult {
    overwrite(device, 0);
    CuResult(0)
}

extern "C" fn device_uuid(uuid: *mut [u8; 16], _: i32) -> CuResult {
    overwrite(uuid, GPU);
    CuResult(0)
}

const extern "C" fn set_current(_: Handle) -> CuResult {
    CuResult(0)
}

extern "C" fn context_device(device: *mut i32) -> CuResult {
    overwrite(device, 0);
    CuResult(0)
}

extern "C" fn attribute(value: *mut c_void, _: u32, _: u64) -> CuResult {
    overwrite(value.cast(), CONTEXT);
    CuResult(0)
}

extern "C" fn advise(address: u64, bytes: usize, advice: u32, _: i32) -> CuResult {
    CALLS.with_borrow_mut(|calls| calls.push((address, address + bytes as u64, advice)));
    ON_ADVICE.with_borrow_mut(|on_advice| CuResult(on_advice.as_mut().map_or(0, |on_advice| on_advice(address))))
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

const fn block_range(at: u64) -> Range {
    Range::new(BEGIN + at * BLOCK_BYTES, BLOCK_BYTES)
}

/// Executor of a program with three adjacent blocks.
fn executor() -> Executor {
    driver::find(dlsym, core::ptr::null_mut());
    let mut words = Words::new(mapping::private(16).unwrap());
    let memory = Memory::create(mapping::private(TOTAL_BYTES / 8).unwrap(), Mode::Act).unwrap();
    let executor = Executor {
        memory,
        permission: Permission::new(memory, Box::leak(Box::default())),
        blocks: Blocks::new().unwrap(),
        program_advice: ProgramAdvice::new().unwrap(),
        gate: Gate::new(&mut words).unwrap(),
        stream: Stream::new(&mut words).unwrap(),
    };
    executor.gate.set_owner();
    for at in 0..3 {
        assert!(executor.blocks.add(Block::new(block_range(at).begin, BLOCK_BYTES, CONTEXT, true)));
    }
    executor
}

/// Result of a command about all blocks, and the advice calls made for it.
fn executed(executor: &Executor, action: Action, on_advice: Option<OnAdvice>) -> (CommandResult, Vec<(u64, u64, u32)>) {
    CALLS.take();
    ON_ADVICE.set(on_advice);
    let command = Command { action, gpu: GPU, begin: BEGIN, end: BEGIN + 3 * BLOCK_BYTES };
    let Response { result, advice_calls } = executor.execute(&command, &mut Watch::new(executor.gate));
    let calls = CALLS.take();
    assert_eq!(advice_calls, calls.len() as u64);
    (result, calls)
}

fn all(advice: u32) -> Vec<(u64, u64, u32)> {
    (0..3).map(|at| (block_range(at).begin, block_range(at).end, advice)).collect()
}

#[test]
fn a_command_is_refused_before_its_first_call_and_fails_after_it() {
    type Change = fn(&Executor);
    let changes: [(Change, CommandResult); 5] = [
        (
            |executor| assert!(executor.program_advice.insert(block_range(2), Subject::LOCATION)),
            CommandResult::ProgramAdvice,
        ),
        (|executor| assert!(executor.blocks.remove(block_range(2).begin).is_some()), CommandResult::NotAllocated),
        (|executor| executor.memory.set_mode(Mode::Record), CommandResult::NotActing),
        (|executor| executor.permission.is_filter_requested.store(true, Ordering::Relaxed), CommandResult::NotActing),
        (|executor| executor.gate.shut(), NOT_READY),
    ];
    for (change, refused) in changes {
        let before = executor();
        change(&before);
        assert_eq!(executed(&before, Action::PreferGpu, None), (refused, vec![]));
        let meanwhile = executor();
        let on_advice = Box::new(move |address| {
            if address == block_range(0).begin {
                change(&meanwhile);
            }
            0
        });
        let (result, calls) = executed(&meanwhile, Action::PreferGpu, Some(on_advice));
        assert_eq!((result, calls.len() < 3), (NOT_READY, true), "{refused:?}");
    }
    assert_eq!(executed(&executor(), Action::PreferGpu, None), (CommandResult::Done, all(3)));
    let fails = Box::new(|address| if address == block_range(1).begin { 801 } else { 0 });
    let expected = all(3).into_iter().take(2).collect();
    assert_eq!(executed(&executor(), Action::PreferGpu, Some(fails)), (CommandResult::Failed(801), expected));
}

#[test]
fn withdrawals_skip_program_advice_and_freed_memory() {
    let executor = executor();
    assert_eq!(executed(&executor, Action::UnsetPreferredLocation, None), (CommandResult::Done, all(4)));
    // Advice on other subjects, and on an unknown one.
    for subject in [Subject::of(1, 0).0, Subject::of(5, 0).0, Subject::UNKNOWN] {
        assert!(executor.program_advice.insert(block_range(1), subject));
    }
    assert_eq!(executed(&executor, Action::UnsetPreferredLocation, None), (CommandResult::Done, all(4)));
    assert_eq!(executed(&executor, Action::PreferGpu, None), (CommandResult::ProgramAdvice, vec![]));
    // Advice on a byte counts for its whole page.
    let byte = Range::new(block_range(1).begin + 0x2010, 1);
    assert!(executor.program_advice.insert(byte, Subject::LOCATION));
    let (first, after) =
        ((block_range(1).begin, block_range(1).begin + 0x2000), (block_range(1).begin + 0x3000, block_range(1).end));
    let expected =
        [(block_range(0).begin, block_range(0).end), first, after, (block_range(2).begin, block_range(2).end)];
    let with = |advice: &[u32]| {
        expected.iter().flat_map(|(begin, end)| advice.iter().map(|advice| (*begin, *end, *advice))).collect()
    };
    assert_eq!(executed(&executor, Action::UnsetPreferredLocation, None), (CommandResult::Done, with(&[4])));
    // The GPU is preferred first, which may fail.
    assert_eq!(executed(&executor, Action::UnsetPreferredHost, None), (CommandResult::Done, with(&[3, 4])));
    assert!(executor.blocks.remove(block_range(0).begin).is_some());
    assert!(executor.blocks.remove(block_range(2).begin).is_some());
    let (result, calls) = executed(&executor, Action::UnsetPreferredLocation, None);
    assert_eq!((result, calls.len()), (CommandResult::Done, 2));
    assert!(executor.program_advice.insert(block_range(1), Subject::LOCATION));
    assert_eq!(executed(&executor, Action::UnsetPreferredLocation, None), (CommandResult::ProgramAdvice, vec![]));
    assert!(executor.blocks.remove(block_range(1).begin).is_some());
    assert_eq!(executed(&executor, Action::UnsetPreferredLocation, None), (CommandResult::NotAllocated, vec![]));
}

#[test]
fn withdrawal_continues_after_a_part_that_fails() {
    let executor = executor();
    let fails = |address| if address == block_range(0).begin { 801 } else { 0 };
    let expected = (CommandResult::Failed(801), all(6));
    assert_eq!(executed(&executor, Action::UnsetAccessedBy, Some(Box::new(fails))), expected);
    let before = |address| if address == block_range(0).begin { 801 } else { 0 };
    assert!(executor.program_advice.insert(Range { end: block_range(2).end, ..block_range(0) }, Subject::of(6, 0).0));
    assert_eq!(
        executed(&executor, Action::UnsetAccessedBy, Some(Box::new(before))),
        (CommandResult::ProgramAdvice, vec![])
    );
    executor.memory.set_mode(Mode::Off);
    assert_eq!(executed(&executor, Action::DisableReadDuplication, None), (CommandResult::NotActing, vec![]));
}
