//! Copies and memsets of all kinds.

use std::ptr;

use cudarc::driver::sys::{CUDA_MEMCPY2D_v2, CUDA_MEMCPY3D_v2, CUmemorytype as T, CUresult};

use crate::support::{Context, call, device_memory, managed, ok, stream, words};

fn numbers(count: u32) -> Vec<u32> {
    (0..count).collect()
}

#[test]
fn bytes_go_to_the_device_and_back() {
    let _context = Context::new();
    let (first, second) = (device_memory(4096), managed(4096));
    let mut back = vec![0u32; 1024];
    ok!(cuMemcpyHtoD_v2(first, numbers(1024).as_ptr().cast(), 4096));
    ok!(cuMemcpyDtoD_v2(second, first, 4096));
    ok!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), second, 4096));
    assert_eq!(back, numbers(1024));
    ok!(cuMemsetD16_v2(second + 2, 0x1234, 3));
    assert_eq!(words(second, 3), [0x1234_0000, 0x1234_1234, 2]);
    assert_eq!(call!(cuMemsetD32_v2(second + 2, 0, 1)), CUresult::CUDA_ERROR_INVALID_VALUE);
    let beyond = call!(cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), first, 4097));
    assert_eq!(beyond, CUresult::CUDA_ERROR_INVALID_VALUE);
    for null in [
        call!(cuMemcpyDtoH_v2(ptr::null_mut(), first, 4)),
        call!(cuMemcpyHtoD_v2(first, ptr::null(), 4)),
        call!(cuMemcpy(0, first, 4)),
    ] {
        assert_eq!(null, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    ok!(cuMemcpyDtoH_v2(ptr::null_mut(), first, 0));
    let own = back.as_mut_ptr().addr() as u64;
    assert_eq!(call!(cuMemcpyDtoD_v2(first, own, 4)), CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemcpy(own, first, 4));
}

#[test]
fn pageable_memory_may_be_reused_at_once() {
    let _context = Context::new();
    let (stream, address) = (stream(1), device_memory(4 << 20));
    let mut data = vec![1u8; 4 << 20];
    ok!(cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), data.len(), stream));
    data.fill(2);
    ok!(cuMemcpyDtoHAsync_v2(data.as_mut_ptr().cast(), address, data.len(), stream));
    assert!(data.iter().all(|byte| *byte == 1));
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let _context = Context::new();
    let source = numbers(64);
    let address = managed(1024);
    // Three rows of two words, from column 1 and row 2 of rows of eight words.
    let copy = CUDA_MEMCPY2D_v2 {
        srcXInBytes: 4,
        srcY: 2,
        srcMemoryType: T::CU_MEMORYTYPE_HOST,
        srcHost: source.as_ptr().cast(),
        srcDevice: 0,
        srcArray: ptr::null_mut(),
        srcPitch: 32,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: T::CU_MEMORYTYPE_DEVICE,
        dstHost: ptr::null_mut(),
        dstDevice: address,
        dstArray: ptr::null_mut(),
        dstPitch: 16,
        WidthInBytes: 8,
        Height: 3,
    };
    ok!(cuMemcpy2DAsync_v2(&raw const copy, ptr::null_mut()));
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, 10), [17, 18, 0, 0, 25, 26, 0, 0, 33, 34]);
    let array = CUDA_MEMCPY2D_v2 { srcMemoryType: T::CU_MEMORYTYPE_ARRAY, ..copy };
    assert_eq!(call!(cuMemcpy2D_v2(&raw const array)), CUresult::CUDA_ERROR_NOT_SUPPORTED);
    let overlapping = CUDA_MEMCPY2D_v2 { dstPitch: 4, ..copy };
    assert_eq!(call!(cuMemcpy2D_v2(&raw const overlapping)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn planes_are_copied() {
    let _context = Context::new();
    let source = managed(4096);
    words(source, 64).copy_from_slice(&numbers(64));
    let mut target = vec![0u32; 8];
    // SAFETY: numbers and null pointers.
    let mut copy: CUDA_MEMCPY3D_v2 =
        unsafe { std::mem::transmute([0u32; size_of::<CUDA_MEMCPY3D_v2>() / 4].map(|_| 1u32)) };
    (copy.srcXInBytes, copy.srcY, copy.srcZ, copy.srcLOD) = (4, 1, 1, 0);
    (copy.srcMemoryType, copy.srcDevice, copy.srcPitch, copy.srcHeight) = (T::CU_MEMORYTYPE_UNIFIED, source, 16, 4);
    (copy.dstXInBytes, copy.dstY, copy.dstZ, copy.dstLOD) = (0, 0, 0, 0);
    (copy.dstMemoryType, copy.dstHost) = (T::CU_MEMORYTYPE_HOST, target.as_mut_ptr().cast());
    (copy.dstPitch, copy.dstHeight) = (8, 2);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (8, 2, 2);
    ok!(cuMemcpy3D_v2(&raw const copy));
    assert_eq!(target, [21, 22, 25, 26, 37, 38, 41, 42]);
}
