//! Prefetches and advice of managed memory.

use std::sync::{Arc, PoisonError};

use cudarc::driver::sys::{CUdevice, CUdeviceptr, CUmem_advise as M, CUmem_range_attribute as R, CUstream};
use serde_json::json;

use super::{
    args::{Any, In, MemLocation},
    device::index,
    functions,
    stream::resolve,
};
use crate::{
    Error, Result,
    advice::Attributes,
    backend::{Advice, Kind, Location, Range},
    context::Context,
    driver::Driver,
    errors::of_backend,
    memory::Block,
    operation::Operation,
};

/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const CPU: i32 = -1;
const NO_DEVICE: i32 = -2;
const PAGE_BYTES: u64 = 4096;

fn of_device(driver: &Driver, device: CUdevice) -> Result<Location> {
    if device == CPU { Ok(Location::Host) } else { Ok(Location::Device(index(driver, device)?)) }
}

/// Location of a structure: a device, the host, or a NUMA node, of which there is one.
fn of_location(driver: &Driver, location: MemLocation) -> Result<Location> {
    match location.kind {
        1 => of_device(driver, location.id),
        2..=4 => Ok(Location::Host),
        _ => Err(Error::CUDA_ERROR_INVALID_VALUE),
    }
}

fn number(location: Location) -> i32 {
    match location {
        Location::Host => CPU,
        Location::Device(device) => i32::try_from(device).unwrap_or(NO_DEVICE),
    }
}

/// Managed memory with a range in it, rounded to whole pages.
fn managed(driver: &Driver, address: u64, bytes: usize) -> Result<(Arc<Block>, Range)> {
    let block = driver.machine.memory.find(address).filter(|block| block.kind == Kind::Managed);
    let block = block.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?;
    let range = Range { address, bytes: bytes as u64 };
    let pages = block.range.rounded(PAGE_BYTES);
    if bytes == 0 || range.end() > pages.end() {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    }
    Ok((block, range.rounded(PAGE_BYTES)))
}

fn prefetch(
    driver: &Driver,
    context: &Arc<Context>,
    address: u64,
    bytes: usize,
    to: Location,
    stream: CUstream,
) -> Result<()> {
    let (context, stream) = resolve(driver, context, stream)?;
    let (block, range) = managed(driver, address, bytes)?;
    driver.machine.log.write("prefetch", stream.id, || json!({ "address": address, "bytes": bytes, "to": number(to) }));
    context.submit(&stream, Operation::Migrate(range, to))?;
    let mut parts = block.parts.lock().unwrap_or_else(PoisonError::into_inner);
    parts.change(range, |attributes| attributes.last_prefetch = Some(to));
    Ok(())
}

fn advise(driver: &Driver, address: u64, bytes: usize, advice: u32, to: Result<Location>) -> Result<()> {
    let (block, range) = managed(driver, address, bytes)?;
    let is = |known: M| known as u32 == advice;
    let given = if is(M::CU_MEM_ADVISE_SET_READ_MOSTLY) {
        Advice::ReadMostly(true)
    } else if is(M::CU_MEM_ADVISE_UNSET_READ_MOSTLY) {
        Advice::ReadMostly(false)
    } else if is(M::CU_MEM_ADVISE_SET_PREFERRED_LOCATION) {
        Advice::Preferred(Some(to?))
    } else if is(M::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION) {
        Advice::Preferred(None)
    } else if is(M::CU_MEM_ADVISE_SET_ACCESSED_BY) {
        Advice::AccessedBy(to?, true)
    } else if is(M::CU_MEM_ADVISE_UNSET_ACCESSED_BY) {
        Advice::AccessedBy(to?, false)
    } else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    };
    driver.machine.log.write(
        "advise",
        0,
        || json!({ "address": address, "bytes": bytes, "advice": advice, "to": to.ok().map(number) }),
    );
    driver.machine.backend.advise(range, given).map_err(of_backend)?;
    let mut parts = block.parts.lock().unwrap_or_else(PoisonError::into_inner);
    parts.change(range, |attributes| attributes.advise(given));
    Ok(())
}

/// Location that all parts have.
fn common(parts: &[Attributes], of: impl Fn(&Attributes) -> Option<Location>) -> i32 {
    let mut locations = parts.iter().map(of);
    let first = locations.next().flatten();
    if locations.all(|location| location == first) { first.map_or(NO_DEVICE, number) } else { NO_DEVICE }
}

fn range_attribute(driver: &Driver, value: Any, bytes: usize, name: u32, address: u64, count: usize) -> Result<()> {
    let (block, range) = managed(driver, address, count)?;
    let parts = block.parts.lock().unwrap_or_else(PoisonError::into_inner).of(range);
    let is = |known: R| known as u32 == name;
    if is(R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY) {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        let in_all = |location: &&Location| parts.iter().all(|part| part.accessed_by.contains(location));
        let by: Vec<i32> =
            parts.first().map_or(&[][..], |part| &part.accessed_by).iter().filter(in_all).map(|l| number(*l)).collect();
        return (0..bytes / 4)
            .try_for_each(|at| value.out::<i32>().set_at(at, by.get(at).copied().unwrap_or(NO_DEVICE)));
    }
    let number = if is(R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) {
        i32::from(parts.iter().all(|part| part.read_mostly))
    } else if is(R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) {
        common(&parts, |part| part.preferred)
    } else if is(R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION) {
        common(&parts, |part| part.last_prefetch)
    } else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    };
    if bytes == 4 { value.out::<i32>().set(number) } else { Err(Error::CUDA_ERROR_INVALID_VALUE) }
}

functions! {
    context(driver, context) fn cuMemPrefetchAsync <cuMemPrefetchAsync_ptsz>
        (address: CUdeviceptr, bytes: usize, device: CUdevice, stream: CUstream)
    {
        prefetch(driver, &context, address, bytes, of_device(driver, device)?, stream)
    }

    context(driver, context) fn cuMemPrefetchAsync_v2 <cuMemPrefetchAsync_v2_ptsz>
        (address: CUdeviceptr, bytes: usize, location: MemLocation, flags: u32, stream: CUstream)
    {
        if flags != 0 {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        prefetch(driver, &context, address, bytes, of_location(driver, location)?, stream)
    }

    context(driver, _) fn cuMemAdvise(address: CUdeviceptr, bytes: usize, advice: u32, device: CUdevice) {
        advise(driver, address, bytes, advice, of_device(driver, device))
    }

    context(driver, _) fn cuMemAdvise_v2(address: CUdeviceptr, bytes: usize, advice: u32, location: MemLocation) {
        advise(driver, address, bytes, advice, of_location(driver, location))
    }

    context(driver, _) fn cuMemRangeGetAttribute
        (value: Any, bytes: usize, name: u32, address: CUdeviceptr, count: usize)
    {
        range_attribute(driver, value, bytes, name, address, count)
    }

    context(driver, _) fn cuMemRangeGetAttributes
        (values: In<*mut u8>, sizes: In<usize>, names: In<u32>, number: usize, address: CUdeviceptr, count: usize)
    {
        (0..number).try_for_each(|at| {
            let value = Any::from_pointer(values.at(at)?);
            range_attribute(driver, value, sizes.at(at)?, names.at(at)?, address, count)
        })
    }
}
