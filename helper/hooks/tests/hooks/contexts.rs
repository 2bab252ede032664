//! Ends of contexts: memory ends with its context.

use std::{ptr::null, sync::atomic::Ordering};

use call_ring::call::Action;

use crate::{driver, program::Program};

type OfHandle = extern "C" fn(u64) -> i32;
type Launch = extern "C" fn(u64, u32, u32, u32, u32, u32, u32, u32, u64, *const *const u64, *const usize) -> i32;

fn freed(address: u64) -> Action {
    Action::Free { stream: 0, address }
}

/// Allocates memory in a context of its own, and returns the context.
fn context_with_memory(program: &Program, address: u64) -> u64 {
    let context = address << 8;
    driver::CURRENT.store(context, Ordering::Relaxed);
    program.allocate(address, 4096);
    context
}

#[test]
fn memory_ends_with_a_detached_context() {
    let program = Program::start();
    let context = context_with_memory(&program, 0x1_0000);
    let detach: OfHandle = program.function(c"cuCtxDetach");
    assert_eq!(detach(context + 16), 0, "of another context");
    assert_eq!(program.actions(), []);
    driver::RESULT.store(201, Ordering::Relaxed);
    assert_eq!((detach(context), program.actions()), (201, vec![]));
    driver::RESULT.store(0, Ordering::Relaxed);
    assert_eq!((detach(context), program.actions()), (0, vec![freed(0x1_0000)]));
    assert_eq!((detach(context), program.actions()), (0, vec![]), "once");
}

#[test]
fn attached_context_ends_with_its_last_reference() {
    let program = Program::start();
    let context = context_with_memory(&program, 0x2_0000);
    let attach: extern "C" fn(*mut u64, u32) -> i32 = program.function(c"cuCtxAttach");
    let detach: OfHandle = program.function(c"cuCtxDetach");
    driver::CREATED.store(context, Ordering::Relaxed);
    let mut attached = 0;
    assert_eq!((attach(&raw mut attached, 0), attached), (0, context));
    assert_eq!((detach(context), program.actions()), (0, vec![]), "of two references");
    driver::RESULT.store(201, Ordering::Relaxed);
    assert_eq!(attach(&raw mut attached, 0), 201);
    driver::RESULT.store(0, Ordering::Relaxed);
    assert_eq!((detach(context), program.actions()), (0, vec![freed(0x2_0000)]));
}

#[test]
fn references_end_with_a_destroyed_context() {
    let program = Program::start();
    let context = context_with_memory(&program, 0x5_0000);
    let attach: extern "C" fn(*mut u64, u32) -> i32 = program.function(c"cuCtxAttach");
    let [destroy, detach]: [OfHandle; 2] = [c"cuCtxDestroy_v2", c"cuCtxDetach"].map(|name| program.function(name));
    driver::CREATED.store(context, Ordering::Relaxed);
    let mut attached = 0;
    assert_eq!([attach(&raw mut attached, 0), attach(&raw mut attached, 0)], [0, 0]);
    assert_eq!((destroy(context), program.actions()), (0, vec![freed(0x5_0000)]));
    // A new context has the same handle, and one reference.
    program.allocate(0x5_0000, 4096);
    assert_eq!((detach(context), program.actions()), (0, vec![freed(0x5_0000)]));
}

#[test]
fn functions_are_queried_again_after_any_reference_to_a_context_ends() {
    const FUNCTION: u64 = 0x7900;
    let program = Program::start();
    let attach: extern "C" fn(*mut u64, u32) -> i32 = program.function(c"cuCtxAttach");
    let detach: OfHandle = program.function(c"cuCtxDetach");
    let launch: Launch = program.function(c"cuLaunchKernel");
    let argument = 0_u64;
    let queries = || {
        let before = driver::PARAMETER_QUERIES.load(Ordering::Relaxed);
        assert_eq!(launch(FUNCTION, 1, 1, 1, 1, 1, 1, 0, 0, &(&raw const argument), null()), 0);
        driver::PARAMETER_QUERIES.load(Ordering::Relaxed) - before
    };
    let mut attached = 0;
    driver::CREATED.store(0x6_0000, Ordering::Relaxed);
    assert_eq!(attach(&raw mut attached, 0), 0);
    let first = queries();
    assert_eq!((first > 0, queries()), (true, 0));
    assert_eq!((detach(0x6_0000), queries()), (0, first), "of two references");
    assert_eq!((detach(0x6_0000), queries()), (0, first), "the last one");
    program.calls();
}

#[test]
fn memory_of_a_green_context_is_of_the_primary_context() {
    const PRIMARY: u64 = 0x9_0000;
    let program = Program::start();
    let retain: extern "C" fn(*mut u64, i32) -> i32 = program.function(c"cuDevicePrimaryCtxRetain");
    driver::CREATED.store(PRIMARY, Ordering::Relaxed);
    let mut primary = 0;
    assert_eq!((retain(&raw mut primary, 0), primary), (0, PRIMARY));
    driver::GREEN.store(context_with_memory(&program, 0x3_0000), Ordering::Relaxed);
    let destroy: OfHandle = program.function(c"cuGreenCtxDestroy");
    assert_eq!((destroy(0x77), program.actions()), (0, vec![]), "the primary context lives");
    let reset: extern "C" fn(i32) -> i32 = program.function(c"cuDevicePrimaryCtxReset_v2");
    assert_eq!((reset(0), program.actions()), (0, vec![freed(0x3_0000)]));
}

#[test]
fn memory_ends_with_a_green_context_that_has_the_last_reference_to_the_primary_one() {
    let program = Program::start();
    driver::GREEN.store(context_with_memory(&program, 0x4_0000), Ordering::Relaxed);
    let destroy: OfHandle = program.function(c"cuGreenCtxDestroy");
    driver::RESULT.store(201, Ordering::Relaxed);
    driver::IS_PRIMARY_ACTIVE.store(0, Ordering::Relaxed);
    assert_eq!((destroy(0x77), program.actions()), (201, vec![]));
    driver::RESULT.store(0, Ordering::Relaxed);
    assert_eq!((destroy(0x77), program.actions()), (0, vec![freed(0x4_0000)]));
}

#[test]
fn memory_of_a_green_context_of_an_unknown_device_is_in_no_destroyed_context() {
    let program = Program::start();
    let context = context_with_memory(&program, 0x7_0000);
    driver::GREEN.store(context, Ordering::Relaxed);
    driver::DEVICES.store(2, Ordering::Relaxed);
    driver::DEVICE_RESULT.store(1, Ordering::Relaxed);
    let green_destroy: OfHandle = program.function(c"cuGreenCtxDestroy");
    assert_eq!((green_destroy(0x77), program.actions()), (0, vec![]));
    // A new context with the same handle: the memory is not its own.
    let destroy: OfHandle = program.function(c"cuCtxDestroy_v2");
    assert_eq!((destroy(context), program.actions()), (0, vec![]));
}
