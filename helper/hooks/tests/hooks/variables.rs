//! Managed variables of modules.

use std::{ptr::null_mut, sync::atomic::Ordering};

use call_ring::{MemoryKind, call::Action};

use crate::{driver, program::Program};

type GetGlobal = extern "C" fn(*mut u64, *mut usize, u64, *const u8) -> i32;
type OfHandle = extern "C" fn(u64) -> i32;

const MODULE: u64 = 0x8000;

fn allocated(address: u64) -> Action {
    Action::Malloc { stream: 0, address, bytes: 8, kind: MemoryKind::Managed, device: 0 }
}

fn freed(address: u64) -> Action {
    Action::Free { stream: 0, address }
}

/// Looks up a variable at an address, in a module.
fn look_up(program: &Program, address: u64, module: u64) -> Vec<Action> {
    let (mut found, mut bytes) = (0, 0);
    driver::CREATED.store(address, Ordering::Relaxed);
    let get: GetGlobal = program.function(c"cuModuleGetGlobal_v2");
    assert_eq!((get(&raw mut found, &raw mut bytes, module, c"name".as_ptr().cast()), found, bytes), (0, address, 8));
    program.actions()
}

#[test]
fn managed_variable_is_memory_until_its_module_is_unloaded() {
    let program = Program::start();
    assert_eq!(look_up(&program, 0x10_0000, MODULE), [allocated(0x10_0000)]);
    assert_eq!(look_up(&program, 0x10_0000, MODULE), [], "known");
    assert_eq!(look_up(&program, 0x20_0000, MODULE + 1), [allocated(0x20_0000)]);
    let unload: OfHandle = program.function(c"cuModuleUnload");
    driver::RESULT.store(1, Ordering::Relaxed);
    let failed = [freed(0x10_0000), Action::NotFreed { address: 0x10_0000 }];
    assert_eq!((unload(MODULE), program.actions()), (1, failed.to_vec()));
    driver::RESULT.store(0, Ordering::Relaxed);
    assert_eq!((unload(MODULE), program.actions()), (0, vec![freed(0x10_0000)]));
    assert_eq!((unload(MODULE), program.actions()), (0, vec![]), "once");
    assert_eq!((unload(MODULE + 1), program.actions()), (0, vec![freed(0x20_0000)]));
}

#[test]
fn variable_of_a_library_ends_with_it_by_whatever_handle_it_was_found() {
    let program = Program::start();
    assert_eq!(look_up(&program, 0x30_0000, MODULE), [allocated(0x30_0000)]);
    let unload: OfHandle = program.function(c"cuLibraryUnload");
    assert_eq!((unload(0x9000), program.actions()), (0, vec![]), "another library");
    driver::MANAGED.store(0, Ordering::Relaxed);
    assert_eq!((unload(0x9100), program.actions()), (0, vec![freed(0x30_0000)]));
}

#[test]
fn variable_ends_with_its_context_once() {
    let program = Program::start();
    assert_eq!(look_up(&program, 0x40_0000, MODULE), [allocated(0x40_0000)]);
    let context = driver::CURRENT.load(Ordering::Relaxed);
    let destroy: OfHandle = program.function(c"cuCtxDestroy_v2");
    assert_eq!(destroy(context), 0);
    assert!(program.actions().contains(&freed(0x40_0000)));
    // The handle of the module and the address are another's now.
    let unload: OfHandle = program.function(c"cuModuleUnload");
    assert_eq!((unload(MODULE), program.actions()), (0, vec![]));
}

#[test]
fn device_variable_is_not_recorded() {
    let program = Program::start();
    driver::MANAGED.store(0, Ordering::Relaxed);
    assert_eq!(look_up(&program, 0x50_0000, MODULE), []);
}

#[test]
fn variable_that_is_looked_up_without_its_size_is_recorded_with_it() {
    let program = Program::start();
    let mut address = 0;
    for (at, name) in (0x51_0000..).zip([c"cuModuleGetGlobal_v2", c"cuLibraryGetGlobal", c"cuLibraryGetManaged"]) {
        let get: GetGlobal = program.function(name);
        driver::CREATED.store(at, Ordering::Relaxed);
        assert_eq!(get(&raw mut address, null_mut(), MODULE, c"name".as_ptr().cast()), 0);
        assert_eq!((address, program.actions()), (at, vec![allocated(at)]), "{name:?}");
    }
}

#[test]
fn managed_variable_of_unknown_size_is_counted() {
    let program = Program::start();
    let unrecorded = program.unrecorded();
    let get: GetGlobal = program.function(c"cuModuleGetGlobal_v2");
    driver::CREATED.store(0x52_0000, Ordering::Relaxed);
    driver::SIZE_RESULT.store(1, Ordering::Relaxed);
    let look_up = || {
        let mut address = 0;
        assert_eq!(get(&raw mut address, null_mut(), MODULE, c"name".as_ptr().cast()), 0);
        (program.actions(), program.unrecorded() - unrecorded)
    };
    assert_eq!(look_up(), (vec![], 1));
    driver::MANAGED.store(0, Ordering::Relaxed);
    assert_eq!(look_up(), (vec![], 1), "not managed");
}

#[test]
fn variable_ends_before_memory_that_has_its_address() {
    const NEW: u64 = 0x60_0000;
    let program = Program::start();
    assert_eq!(look_up(&program, NEW + 0x100, MODULE), [allocated(NEW + 0x100)]);
    let unload_library: OfHandle = program.function(c"cuLibraryUnload");
    // The memory of the library, whose handle is another one, is another thread's at once.
    assert_eq!((unload_library(0x9000), program.actions()), (0, vec![]));
    driver::CREATED.store(NEW, Ordering::Relaxed);
    let allocate: extern "C" fn(*mut u64, usize, u32) -> i32 = program.function(c"cuMemAllocManaged");
    let mut address = 0;
    assert_eq!(allocate(&raw mut address, 4096, 1), 0);
    let new = Action::Malloc { stream: 0, address: NEW, bytes: 4096, kind: MemoryKind::Managed, device: 0 };
    assert_eq!(program.actions(), [freed(NEW + 0x100), new]);
    // A module has the former handle, and ends.
    let unload: OfHandle = program.function(c"cuModuleUnload");
    assert_eq!((unload(MODULE), program.actions()), (0, vec![]));
}

#[test]
fn variable_ends_with_a_free_of_its_address() {
    let program = Program::start();
    assert_eq!(look_up(&program, 0x70_0000, MODULE), [allocated(0x70_0000)]);
    let free: OfHandle = program.function(c"cuMemFree_v2");
    driver::RESULT.store(1, Ordering::Relaxed);
    let refused = vec![freed(0x70_0000), Action::NotFreed { address: 0x70_0000 }];
    assert_eq!((free(0x70_0000), program.actions()), (1, refused), "it is a variable");
    assert_eq!((look_up(&program, 0x70_0000, MODULE)), [], "still known");
    driver::RESULT.store(0, Ordering::Relaxed);
    assert_eq!((free(0x70_0000), program.actions()), (0, vec![freed(0x70_0000)]), "it was one");
    let unload: OfHandle = program.function(c"cuModuleUnload");
    assert_eq!((unload(MODULE), program.actions()), (0, vec![]));
}

#[test]
fn variable_has_ended_if_other_managed_memory_has_its_address() {
    let program = Program::start();
    driver::MEMORY_ID.store(5, Ordering::Relaxed);
    assert_eq!(look_up(&program, 0x80_0000, MODULE), [allocated(0x80_0000)]);
    let unload: OfHandle = program.function(c"cuLibraryUnload");
    assert_eq!((unload(0x9000), program.actions()), (0, vec![]), "the same memory");
    driver::MEMORY_ID.store(0, Ordering::Relaxed);
    assert_eq!((unload(0x9000), program.actions()), (0, vec![]), "unknown");
    driver::MEMORY_ID.store(6, Ordering::Relaxed);
    assert_eq!((unload(0x9000), program.actions()), (0, vec![freed(0x80_0000)]));
}
