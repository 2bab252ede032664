//! Modules and libraries: their managed variables, which are memory of the program until the module
//! ends, and the end of functions, whose handles may be reused.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, MemoryKind};

use super::{allocation::add_memory, context::invalidate_parameters};
use crate::{
    blocks::Block,
    cuda::{CuResult, Handle},
    driver::{self, LookUp},
    program::read,
    real::hooks,
    recorder::{Recorder, enter_gate, record_success},
    variables::Variable,
};

/// Records the look-up of a variable as an allocation, if it is managed, and the first of it.
fn record_variable(
    result: CuResult,
    look_up: LookUp,
    (address, bytes): (*const u64, *const usize),
    module: Handle,
    name: *const u8,
) -> CuResult {
    record_success(result, |recorder| {
        let Some(address) = read(address).filter(|address| driver::is_managed(*address)) else { return };
        // The program may leave out the size.
        let Some(bytes) = read(bytes).or_else(|| driver::variable_bytes(look_up, module, name)) else {
            recorder.count_unrecorded();
            return;
        };
        let (context, memory_id) = (driver::current_context(), driver::memory_id(address));
        let variable = Variable { module, address, bytes: bytes as u64, context, memory_id };
        match recorder.variables.insert(variable) {
            Some(true) => add_memory(recorder, 0, address, bytes, MemoryKind::Managed, false),
            Some(false) => {}
            None => recorder.count_unrecorded(),
        }
    })
}

/// Restores the memory of a variable after its module was not unloaded.
fn restore_variable(recorder: &'static Recorder, Variable { address, bytes, context, .. }: Variable) {
    recorder.restore(Block::new(address, bytes, context, true));
    if recorder.is_recording() {
        recorder.record(Kind::NotFreed, 0, [0, address, 0, 0, 0]);
    }
}

/// Whether the memory of a variable has ended: there is none at its address, or another one.
fn has_ended(&Variable { address, memory_id, .. }: &Variable) -> bool {
    if !driver::is_managed(address) {
        return true;
    }
    let now = driver::memory_id(address);
    ![memory_id, now].contains(&0) && now != memory_id
}

/// Unloads a module or a library. As for a free, its variables are removed before.
fn unload(real: impl FnOnce() -> CuResult, module: Handle) -> CuResult {
    invalidate_parameters();
    let Some((recorder, _call)) = enter_gate() else { return real() };
    let is_own = |variable: &Variable| variable.module == module;
    recorder.variables.iter().filter(is_own).for_each(|variable| recorder.end_variable(variable));
    let result = real();
    if !result.is_ok() {
        recorder.variables.iter().filter(is_own).for_each(|variable| restore_variable(recorder, variable));
        return result;
    }
    recorder.variables.remove(is_own, drop);
    // Those that were looked up by another handle: that of a library's module. The driver is not
    // asked under the table's lock.
    recorder.variables.iter().filter(has_ended).for_each(|ended| recorder.end_variables(|variable| *variable == ended));
    result
}

hooks! {
    cuModuleGetGlobal_v2 = fn(
        address: *mut u64, bytes: *mut usize, module: Handle, name: *const u8,
    ) |real, per_thread| {
        record_variable(real(), LookUp::Module, (address, bytes), module, name)
    }

    cuLibraryGetGlobal = fn(
        address: *mut u64, bytes: *mut usize, library: Handle, name: *const u8,
    ) |real, per_thread| {
        record_variable(real(), LookUp::Library, (address, bytes), library, name)
    }

    cuLibraryGetManaged = fn(
        address: *mut u64, bytes: *mut usize, library: Handle, name: *const u8,
    ) |real, per_thread| {
        record_variable(real(), LookUp::LibraryManaged, (address, bytes), library, name)
    }

    cuModuleUnload = fn(module: Handle) |real, per_thread| {
        unload(real, module)
    }

    cuLibraryUnload = fn(library: Handle) |real, per_thread| {
        unload(real, library)
    }
}
