//! Device, managed and host memory.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUmemAttach_flags as Attach};
use serde_json::json;

use super::{
    args::{Any, Out, place, pointer, size},
    functions,
};
use crate::{
    Error, Result,
    backend::Kind,
    context::Context,
    driver::Driver,
    memory::{Block, Owner},
};

/// Rows of `cuMemAllocPitch` begin at multiples of this.
const PITCH_BYTES: u64 = 512;
/// `CU_MEMHOSTALLOC_…` and `CU_MEMHOSTREGISTER_…` flags that there are.
const HOST_FLAGS: u32 = 7;
const REGISTER_FLAGS: u32 = 15;

fn kind_name(block: &Block) -> &'static str {
    match (block.kind, block.pool) {
        (Kind::Managed, _) => "managed",
        (Kind::Device(_), None) => "device",
        (Kind::Device(_), Some(_)) => "pool",
        (Kind::Host, _) => "host",
    }
}

/// Logs an allocation.
pub(super) fn log_allocation(driver: &Driver, stream: u64, block: &Block) {
    driver.machine.log.write(
        "malloc",
        stream,
        || json!({ "address": block.range.address, "bytes": block.range.bytes, "kind": kind_name(block) }),
    );
}

/// Logs the end of an allocation.
pub(super) fn log_free(driver: &Driver, stream: u64, block: &Block) {
    driver.machine.log.write(
        "free",
        stream,
        || json!({ "address": block.range.address, "bytes": block.range.bytes, "kind": kind_name(block) }),
    );
}

fn allocate(driver: &Driver, context: &Context, kind: Kind, bytes: u64, flags: u32) -> Result<Arc<Block>> {
    if bytes == 0 {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let owner = Owner { context: context.handle, device: context.device, pool: None, flags };
    let backend = driver.machine.backend.as_ref();
    let block = driver.machine.memory.allocate(backend, kind, bytes, owner).or_else(|error| {
        // Frees of streams may be on their way.
        driver.wait_for_all();
        driver.machine.memory.allocate(backend, kind, bytes, owner).map_err(|_| error)
    })?;
    log_allocation(driver, 0, &block);
    Ok(block)
}

fn free(driver: &Driver, context: &Context, address: u64, of_host: bool) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    let block =
        driver.machine.memory.at(address).filter(|block| !block.registered && (block.kind == Kind::Host) == of_host);
    let block = block.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
    driver.wait_for_all();
    log_free(driver, 0, &block);
    if let Some(pool) = block.pool.and_then(|pool| driver.pools.get(pool)) {
        pool.give(block.range.bytes);
    }
    driver.machine.memory.free(driver.machine.backend.as_ref(), &block);
    context.check()
}

functions! {
    context(driver, context) fn cuMemGetInfo_v2(free_bytes: Out<usize>, total_bytes: Out<usize>) {
        let device = context.device;
        free_bytes.set(size(driver.machine.backend.free_bytes(device)))?;
        total_bytes.set(size(driver.machine.backend.devices().get(device).map_or(0, |properties| properties.total_bytes)))
    }

    context(driver, context) fn cuMemAlloc_v2(address: Out<CUdeviceptr>, bytes: usize) {
        if address.is_null() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        address.set(allocate(driver, &context, driver.machine.device_memory(context.device), bytes as u64, 0)?.range.address)
    }

    context(driver, context) fn cuMemAllocPitch_v2
        (address: Out<CUdeviceptr>, pitch: Out<usize>, width_bytes: usize, rows: usize, element_bytes: u32)
    {
        if !matches!(element_bytes, 4 | 8 | 16) || address.is_null() || width_bytes == 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let row_bytes = (width_bytes as u64).next_multiple_of(PITCH_BYTES);
        let bytes = row_bytes.checked_mul(rows as u64).ok_or(Error::CUDA_ERROR_OUT_OF_MEMORY)?;
        pitch.set(size(row_bytes))?;
        address.set(allocate(driver, &context, driver.machine.device_memory(context.device), bytes, 0)?.range.address)
    }

    context(driver, context) fn cuMemAllocManaged(address: Out<CUdeviceptr>, bytes: usize, flags: u32) {
        let known = [Attach::CU_MEM_ATTACH_GLOBAL, Attach::CU_MEM_ATTACH_HOST];
        if address.is_null() || !known.iter().any(|flag| *flag as u32 == flags) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        address.set(allocate(driver, &context, Kind::Managed, bytes as u64, flags)?.range.address)
    }

    context(driver, context) fn cuMemFree_v2(address: CUdeviceptr) {
        free(driver, &context, address, false)
    }

    context(driver, context) fn cuMemAllocHost_v2(address: Out<*mut u8>, bytes: usize) {
        if address.is_null() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        address.set(pointer(size(allocate(driver, &context, Kind::Host, bytes as u64, 0)?.range.address)))
    }

    context(driver, context) fn cuMemHostAlloc(address: Out<*mut u8>, bytes: usize, flags: u32) {
        if address.is_null() || flags & !HOST_FLAGS != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        address.set(pointer(size(allocate(driver, &context, Kind::Host, bytes as u64, flags)?.range.address)))
    }

    context(driver, context) fn cuMemFreeHost(address: Any) {
        free(driver, &context, address.address(), true)
    }

    context(driver, context) fn cuMemHostRegister_v2 [cuMemHostRegister](memory: Any, bytes: usize, flags: u32) {
        if memory.address() == 0 || bytes == 0 || flags & !REGISTER_FLAGS != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let owner = Owner { context: context.handle, device: context.device, pool: None, flags };
        driver.machine.memory.register(driver.machine.backend.as_ref(), place(memory.address()), bytes as u64, owner)?;
        driver.machine.log.write("register", 0, || json!({ "address": memory.address(), "bytes": bytes }));
        Ok(())
    }

    context(driver, _) fn cuMemHostUnregister(memory: Any) {
        let block = driver.machine.memory.at(memory.address()).filter(|block| block.registered);
        let block = block.ok_or(Error::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        driver.wait_for_all();
        driver.machine.memory.free(driver.machine.backend.as_ref(), &block);
        driver.machine.log.write("unregister", 0, || json!({ "address": memory.address() }));
        Ok(())
    }

    context(driver, _) fn cuMemHostGetDevicePointer_v2(address: Out<CUdeviceptr>, memory: Any, flags: u32) {
        let known = driver.machine.memory.find(memory.address()).filter(|block| block.kind == Kind::Host);
        if flags != 0 || known.is_none() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        address.set(memory.address())
    }

    context(driver, _) fn cuMemHostGetFlags(flags: Out<u32>, memory: Any) {
        let known = driver.machine.memory.find(memory.address()).filter(|block| block.kind == Kind::Host);
        flags.set(known.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?.flags)
    }

    context(driver, _) fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, bytes: Out<usize>, address: CUdeviceptr) {
        let block = driver.machine.memory.find(address).ok_or(Error::CUDA_ERROR_NOT_FOUND)?;
        base.set_if_any(block.range.address);
        bytes.set_if_any(size(block.range.bytes));
        Ok(())
    }
}
