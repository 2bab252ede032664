//! What the driver knows of an address.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUpointer_attribute as A};

use super::{
    args::{Any, In},
    functions,
};
use crate::{Error, Result, backend::Kind, driver::Driver, memory::Block};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: u64 = 1;
const DEVICE: u64 = 2;
/// `CU_DEVICE_INVALID`.
const NO_DEVICE: i32 = -2;

/// Attribute of an address as bytes and number; none where the address has none.
fn attribute(block: Option<&Arc<Block>>, attribute: u32, address: u64) -> Result<(usize, Option<u64>)> {
    let is = |known: A| known as u32 == attribute;
    let known = block.filter(|block| block.kind != Kind::Host || address != 0);
    let of = |value: fn(&Block) -> u64| known.map(|block| value(block));
    let flag = |value: bool| Some(u64::from(value));
    Ok(if is(A::CU_POINTER_ATTRIBUTE_CONTEXT) {
        (8, of(|block| block.context as u64))
    } else if is(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
        (4, of(|block| if block.kind == Kind::Host { HOST } else { DEVICE }))
    } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
        (8, known.map(|_| address))
    } else if is(A::CU_POINTER_ATTRIBUTE_HOST_POINTER) {
        (8, known.filter(|block| !matches!(block.kind, Kind::Device(_))).map(|_| address))
    } else if is(A::CU_POINTER_ATTRIBUTE_BUFFER_ID) {
        (8, of(|block| block.id))
    } else if is(A::CU_POINTER_ATTRIBUTE_IS_MANAGED) {
        (4, flag(known.is_some_and(|block| block.kind == Kind::Managed)))
    } else if is(A::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
        let device = known.map_or(NO_DEVICE, |block| i32::try_from(block.device).unwrap_or(NO_DEVICE));
        (4, Some(u64::from(device.cast_unsigned())))
    } else if is(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) {
        (8, of(|block| block.range.address))
    } else if is(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE) {
        (8, of(|block| block.range.bytes))
    } else if is(A::CU_POINTER_ATTRIBUTE_MAPPED) {
        (4, flag(known.is_some()))
    } else if is(A::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS) {
        (4, of(|_| 3))
    } else if is(A::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) {
        (8, of(|block| block.pool.unwrap_or(0) as u64))
    } else if is(A::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES) {
        (8, of(|_| 0))
    } else if is(A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        || is(A::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
        || is(A::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE)
    {
        (4, of(|_| 0))
    } else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    })
}

fn block(driver: &Driver, address: u64) -> Option<Arc<Block>> {
    driver.machine.memory.find(address)
}

functions! {
    driver(driver) fn cuPointerGetAttribute(value: Any, name: u32, address: CUdeviceptr) {
        let (bytes, number) = attribute(block(driver, address).as_ref(), name, address)?;
        value.set_number(bytes, number.ok_or(Error::CUDA_ERROR_INVALID_VALUE)?)
    }

    driver(driver) fn cuPointerGetAttributes
        (count: u32, names: In<u32>, values: In<*mut u8>, address: CUdeviceptr)
    {
        let block = block(driver, address);
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let (bytes, number) = attribute(block.as_ref(), names.at(index)?, address)?;
            Any::from_pointer(values.at(index)?).set_number(bytes, number.unwrap_or(0))?;
        }
        Ok(())
    }

    driver(driver) fn cuPointerSetAttribute(_value: Any, name: u32, address: CUdeviceptr) {
        let known = block(driver, address).is_some() && name == A::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS as u32;
        if known { Ok(()) } else { Err(Error::CUDA_ERROR_INVALID_VALUE) }
    }
}
