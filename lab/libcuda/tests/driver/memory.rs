//! Allocations, pools, attributes, advice.

use std::{ffi::c_void, ptr};

use cudarc::driver::sys::{
    CUmem_advise as M, CUmem_range_attribute as R, CUmemPool_attribute as P, CUpointer_attribute as A, CUresult,
};

use crate::support::{Context, OWN_BYTES, call, device_memory, host, managed, ok, words};

fn attribute<T: Default>(name: A, address: u64) -> (CUresult, T) {
    let mut value = T::default();
    (call!(cuPointerGetAttribute(host(&mut value), name, address)), value)
}

fn range_attribute(name: R, address: u64, bytes: usize) -> i32 {
    let mut value = 0i32;
    ok!(cuMemRangeGetAttribute(host(&mut value), 4, name, address, bytes));
    value
}

#[test]
fn allocations_are_known_until_they_are_freed() {
    let _context = Context::new();
    let address = managed(OWN_BYTES);
    words(address, 25).fill(7);
    assert_eq!(attribute(A::CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 99), (CUresult::CUDA_SUCCESS, 1u32));
    assert_eq!(attribute::<u32>(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address).1, 2);
    assert_eq!(attribute::<u64>(A::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 50).1, address);
    assert_eq!(attribute::<u64>(A::CU_POINTER_ATTRIBUTE_RANGE_SIZE, address).1, OWN_BYTES as u64);
    let (mut base, mut bytes) = (0, 0);
    ok!(cuMemGetAddressRange_v2(&raw mut base, &raw mut bytes, address + 7));
    assert_eq!((base, bytes), (address, OWN_BYTES));
    assert_eq!(call!(cuMemFree_v2(address + 4)), CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFree_v2(address));
    assert_eq!(call!(cuMemFree_v2(address)), CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(attribute::<u32>(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address).0, CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFree_v2(0));
    let mut none = 0;
    assert_eq!(call!(cuMemAlloc_v2(&raw mut none, 0)), CUresult::CUDA_ERROR_INVALID_VALUE);
    assert_eq!(call!(cuMemAllocManaged(&raw mut none, 16, 9)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_context_takes_its_memory_along() {
    let context = Context::new();
    let address = device_memory(2 * OWN_BYTES);
    drop(context);
    let _other = Context::new();
    assert_eq!(call!(cuMemFree_v2(address)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn rows_of_pitched_memory_are_aligned() {
    let _context = Context::new();
    let (mut address, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&raw mut address, &raw mut pitch, 100, 8, 4));
    assert_eq!(pitch, 512);
    ok!(cuMemsetD2D32_v2(address, pitch, 5, 25, 8));
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, 25), [5; 25]);
    assert_eq!(words(address, 129)[25..128], [0; 103]);
    assert_eq!(words(address, 129)[128], 5);
}

#[test]
fn pools_allocate_in_stream_order() {
    let _context = Context::new();
    let (mut pool, mut address, mut none) = (ptr::null_mut(), 0, 0);
    ok!(cuDeviceGetDefaultMemPool(&raw mut pool, 0));
    ok!(cuMemAllocAsync(&raw mut address, 3 * OWN_BYTES, ptr::null_mut()));
    ok!(cuMemAllocAsync(&raw mut none, 0, ptr::null_mut()));
    assert!(address != 0 && none != 0 && none != address);
    let mut used = 0u64;
    ok!(cuMemPoolGetAttribute(pool, P::CU_MEMPOOL_ATTR_USED_MEM_CURRENT, host(&mut used)));
    assert!(used >= 1000);
    ok!(cuMemsetD8Async(address, 3, 1000, ptr::null_mut()));
    ok!(cuMemFreeAsync(address, ptr::null_mut()));
    ok!(cuMemFreeAsync(none, ptr::null_mut()));
    ok!(cuStreamSynchronize(ptr::null_mut()));
    assert_eq!(call!(cuMemFree_v2(address)), CUresult::CUDA_ERROR_INVALID_VALUE);
    let mut threshold = u64::MAX;
    ok!(cuMemPoolSetAttribute(pool, P::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, host(&mut threshold)));
    threshold = 0;
    ok!(cuMemPoolGetAttribute(pool, P::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, host(&mut threshold)));
    assert_eq!(threshold, u64::MAX);
    ok!(cuMemPoolTrimTo(pool, 0));
}

#[test]
fn host_memory_is_allocated_and_registered() {
    let _context = Context::new();
    let (mut pinned, mut device) = (ptr::null_mut::<c_void>(), 0);
    ok!(cuMemHostAlloc(&raw mut pinned, 100, 2));
    ok!(cuMemHostGetDevicePointer_v2(&raw mut device, pinned, 0));
    assert_eq!(device, pinned.addr() as u64);
    assert_eq!(attribute::<u32>(A::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device).1, 1);
    ok!(cuMemFreeHost(pinned));
    let mut own = vec![0u8; 1000];
    ok!(cuMemHostRegister_v2(own.as_mut_ptr().cast(), 1000, 0));
    let again = call!(cuMemHostRegister_v2(own.as_mut_ptr().wrapping_add(10).cast(), 10, 0));
    assert_eq!(again, CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok!(cuMemHostUnregister(own.as_mut_ptr().cast()));
    let again = call!(cuMemHostUnregister(own.as_mut_ptr().cast()));
    assert_eq!(again, CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

#[test]
fn advice_and_prefetches_are_told_by_range() {
    let _context = Context::new();
    let address = managed(1 << 20);
    let half = 1 << 19;
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, half), -2);
    ok!(cuMemPrefetchAsync(address, half, 0, ptr::null_mut()));
    ok!(cuMemAdvise(address, 1 << 20, M::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, -1));
    ok!(cuMemAdvise(address, half, M::CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
    ok!(cuMemAdvise(address, half, M::CU_MEM_ADVISE_SET_ACCESSED_BY, 0));
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, half), 0);
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, 1 << 20), -2);
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, address, 1 << 20), -1);
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, half), 1);
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, 1 << 20), 0);
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, half), 0);
    ok!(cuMemAdvise(address, half, M::CU_MEM_ADVISE_UNSET_READ_MOSTLY, 0));
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, address, half), 0);
    let location = cudarc::driver::sys::CUmemLocation {
        type_: cudarc::driver::sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST,
        id: 0,
    };
    ok!(cuMemPrefetchAsync_v2(address, half, location, 0, ptr::null_mut()));
    assert_eq!(range_attribute(R::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, address, half), -1);
    let beyond = call!(cuMemPrefetchAsync(address, (1 << 20) + 8192, 0, ptr::null_mut()));
    assert_eq!(beyond, CUresult::CUDA_ERROR_INVALID_VALUE);
    let device = device_memory(4096);
    assert_eq!(call!(cuMemPrefetchAsync(device, 4096, 0, ptr::null_mut())), CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuCtxSynchronize());
}
