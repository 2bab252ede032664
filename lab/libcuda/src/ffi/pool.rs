//! Allocations in stream order, and their pools.

use std::sync::{Arc, PoisonError};

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUmemoryPool, CUstream};

use super::{
    allocation::{log_allocation, log_free},
    args::{Any, In, MemLocation, Out},
    device::index,
    functions,
    stream::resolve,
};
use crate::{
    Error, Result, backend::Kind, context::Context, driver::Driver, memory::Owner, operation::Operation, pool::Pool,
};

fn of_handle(driver: &Driver, pool: CUmemoryPool) -> Result<Arc<Pool>> {
    driver.pools.get(pool.addr()).ok_or(Error::CUDA_ERROR_INVALID_VALUE)
}

fn device_pools(driver: &Driver, device: usize) -> Result<&(Arc<Pool>, std::sync::Mutex<Arc<Pool>>)> {
    driver.device_pools.get(device).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)
}

fn current(driver: &Driver, device: usize) -> Result<Arc<Pool>> {
    let (_, current) = device_pools(driver, device)?;
    Ok(Arc::clone(&current.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// Allocates at once, also no bytes at all: what the stream has freed may not be free yet, so that
/// the memory is no other operation's.
fn allocate(
    driver: &Driver,
    context: &Arc<Context>,
    address: Out<CUdeviceptr>,
    bytes: u64,
    pool: &Pool,
    stream: CUstream,
) -> Result<()> {
    if address.is_null() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    let (context, stream) = resolve(driver, context, stream)?;
    let owner = Owner { context: context.handle, device: pool.device, pool: Some(pool.handle), flags: 0 };
    let backend = driver.machine.backend.as_ref();
    let kind = driver.machine.device_memory(pool.device);
    let block = driver.machine.memory.allocate(backend, kind, bytes, owner).or_else(|error| {
        driver.wait_for_all();
        driver.machine.memory.allocate(backend, kind, bytes, owner).map_err(|_| error)
    })?;
    pool.take(bytes);
    log_allocation(driver, stream.id, &block);
    address.set(block.range.address)
}

functions! {
    context(driver, context) fn cuMemAllocAsync <cuMemAllocAsync_ptsz>
        (address: Out<CUdeviceptr>, bytes: usize, stream: CUstream)
    {
        let pool = current(driver, context.device)?;
        allocate(driver, &context, address, bytes as u64, &pool, stream)
    }

    context(driver, context) fn cuMemAllocFromPoolAsync <cuMemAllocFromPoolAsync_ptsz>
        (address: Out<CUdeviceptr>, bytes: usize, pool: CUmemoryPool, stream: CUstream)
    {
        let pool = of_handle(driver, pool)?;
        allocate(driver, &context, address, bytes as u64, &pool, stream)
    }

    context(driver, context) fn cuMemFreeAsync <cuMemFreeAsync_ptsz>(address: CUdeviceptr, stream: CUstream) {
        let (context, stream) = resolve(driver, &context, stream)?;
        if address == 0 {
            return Ok(());
        }
        let block = driver.machine.memory.at(address).filter(|block| block.kind != Kind::Host);
        let block = block.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        if let Some(pool) = block.pool.and_then(|pool| driver.pools.get(pool)) {
            pool.give(block.range.bytes);
        }
        log_free(driver, stream.id, &block);
        context.submit(&stream, Operation::Free(block)).map(|_| ())
    }

    driver(driver) fn cuDeviceGetDefaultMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        pool.set_handle(device_pools(driver, index(driver, device)?)?.0.handle)
    }

    driver(driver) fn cuDeviceGetMemPool(pool: Out<CUmemoryPool>, device: CUdevice) {
        pool.set_handle(current(driver, index(driver, device)?)?.handle)
    }

    driver(driver) fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) {
        let (_, current) = device_pools(driver, index(driver, device)?)?;
        *current.lock().unwrap_or_else(PoisonError::into_inner) = of_handle(driver, pool)?;
        Ok(())
    }

    driver(driver) fn cuMemPoolCreate(pool: Out<CUmemoryPool>, properties: In<u32>) {
        // Fields: kind of allocation, kind of handles, and the location's kind and number.
        let [kind, handles, location, device] = properties.list(4)?.try_into().map_err(|_| Error::CUDA_ERROR_INVALID_VALUE)?;
        if kind != 1 || location != 1 || pool.is_null() {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        if handles != 0 {
            return Err(Error::CUDA_ERROR_NOT_SUPPORTED);
        }
        let created = Arc::new(Pool::new(index(driver, i32::try_from(device).unwrap_or(-1))?));
        let handle = created.handle;
        driver.pools.add(handle, created);
        pool.set_handle(handle)
    }

    driver(driver) fn cuMemPoolDestroy(pool: CUmemoryPool) {
        let pool = of_handle(driver, pool)?;
        let (default, current) = device_pools(driver, pool.device)?;
        if Arc::ptr_eq(default, &pool) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, &pool) {
            *current = Arc::clone(default);
        }
        driver.pools.remove(pool.handle);
        Ok(())
    }

    driver(driver) fn cuMemPoolTrimTo(pool: CUmemoryPool, _bytes: usize) { of_handle(driver, pool).map(|_| ()) }

    driver(driver) fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: u32, value: Any) {
        let known = of_handle(driver, pool)?.attribute(attribute);
        let (wide, number) = known.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        value.set_number(if wide { 8 } else { 4 }, number)
    }

    driver(driver) fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: u32, value: Any) {
        let pool = of_handle(driver, pool)?;
        let wide = Pool::is_wide(attribute).ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
        let number = if wide { value.input::<u64>().read()? } else { value.input::<u32>().read()?.into() };
        if pool.set_attribute(attribute, number) { Ok(()) } else { Err(Error::CUDA_ERROR_INVALID_VALUE) }
    }

    driver(driver) fn cuMemPoolSetAccess(pool: CUmemoryPool, _access: Any, _count: usize) {
        of_handle(driver, pool).map(|_| ())
    }

    driver(driver) fn cuMemPoolGetAccess(flags: Out<u32>, pool: CUmemoryPool, location: In<MemLocation>) {
        let own = i32::try_from(of_handle(driver, pool)?.device).unwrap_or(-1);
        let location = location.read()?;
        flags.set(if location.kind == 1 && location.id == own { 3 } else { 0 })
    }
}
