//! Kernels: launches, errors, modules, links, graphs.

use std::{
    ffi::{CStr, CString, c_void},
    ptr,
};

use cudarc::driver::sys::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUfunction_attribute as F, CUjit_option as J, CUjitInputType, CUlaunchConfig,
    CUlimit, CUmodule, CUpointer_attribute as P, CUresult, CUstream,
};

use crate::support::{Context, OWN_BYTES, call, device_memory, event, host, managed, ok, stream, succeeds, words};

pub(crate) const KERNELS: &CStr = cr"
.version 6.0
.target sm_60
.address_size 64
.visible .global .align 4 .u32 start = 40;

// sum[i] = left[i] + right[i]
.visible .entry add(.param .u64 left, .param .u64 right, .param .u64 sum, .param .u32 count)
{
    .reg .pred %p;
    .reg .b32 %r<9>;
    .reg .b64 %a<9>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [count];
    setp.ge.u32 %p, %r4, %r5;
    @%p bra END;
    mul.wide.u32 %a1, %r4, 4;
    ld.param.u64 %a2, [left];
    ld.param.u64 %a3, [right];
    ld.param.u64 %a4, [sum];
    add.u64 %a5, %a2, %a1;
    add.u64 %a6, %a3, %a1;
    add.u64 %a7, %a4, %a1;
    ld.global.u32 %r6, [%a5];
    ld.global.u32 %r7, [%a6];
    add.u32 %r8, %r6, %r7;
    st.global.u32 [%a7], %r8;
END:
    ret;
}

// word += 1 by each thread; word += start by the first
.visible .entry count(.param .u64 word)
{
    .reg .b32 %r<4>;
    .reg .b64 %a<3>;
    ld.param.u64 %a1, [word];
    atom.global.add.u32 %r1, [%a1], 1;
    ret;
}

.visible .entry begin(.param .u64 word)
{
    .reg .b32 %r<4>;
    .reg .b64 %a<3>;
    ld.param.u64 %a1, [word];
    ld.global.u32 %r1, [start];
    st.global.u32 [%a1], %r1;
    ret;
}
";

pub(crate) fn load(text: &CStr) -> CUmodule {
    let mut module = ptr::null_mut();
    ok!(cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
    module
}

pub(crate) fn function(module: CUmodule, name: &CStr) -> CUfunction {
    let mut function = ptr::null_mut();
    ok!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

/// Launches on 64-bit arguments; a narrower parameter takes the low half.
pub(crate) fn launch(
    function: CUfunction,
    blocks: u32,
    threads: u32,
    stream: CUstream,
    arguments: &mut [u64],
) -> CUresult {
    let mut pointers: Vec<*mut c_void> = arguments.iter_mut().map(host).collect();
    let none = ptr::null_mut();
    call!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, pointers.as_mut_ptr(), none))
}

#[test]
fn vectors_are_added_in_managed_and_device_memory() {
    let _context = Context::new();
    let add = function(load(KERNELS), c"add");
    let (left, right, sum) = (managed(4000), device_memory(4000), managed(4000));
    for (number, word) in (0..).zip(words(left, 1000)) {
        *word = number;
    }
    ok!(cuMemsetD32_v2(right, 5, 1000));
    assert_eq!(launch(add, 8, 128, ptr::null_mut(), &mut [left, right, sum, 1000]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert!((5..).zip(words(sum, 1000)).all(|(number, word)| *word == number));
}

#[test]
fn arguments_come_in_a_buffer_too() {
    let _context = Context::new();
    let count = function(load(KERNELS), c"count");
    let mut word = managed(4);
    let address = word;
    let mut bytes = 8usize;
    let mut extra = [
        ptr::without_provenance_mut(1),
        host(&mut word),
        ptr::without_provenance_mut(2),
        host(&mut bytes),
        ptr::null_mut(),
    ];
    let none = ptr::null_mut();
    ok!(cuLaunchKernel(count, 2, 2, 1, 33, 1, 2, 0, ptr::null_mut(), none, extra.as_mut_ptr()));
    let config = CUlaunchConfig {
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: ptr::null_mut(),
        attrs: ptr::null_mut(),
        numAttrs: 0,
    };
    ok!(cuLaunchKernelEx(&raw const config, count, ptr::null_mut(), extra.as_mut_ptr()));
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, 1), [4 * 66 + 1]);
}

#[test]
fn kernels_of_two_streams_are_ordered_by_an_event() {
    let _context = Context::new();
    let module = load(KERNELS);
    let (begin, count) = (function(module, c"begin"), function(module, c"count"));
    let (first, second, event, word) = (stream(1), stream(1), event(), managed(4));
    for _ in 0..20 {
        assert_eq!(launch(begin, 64, 64, first, &mut [word]), CUresult::CUDA_SUCCESS);
        ok!(cuEventRecord(event, first));
        ok!(cuStreamWaitEvent(second, event, 0));
        assert_eq!(launch(count, 4, 64, second, &mut [word]), CUresult::CUDA_SUCCESS);
        ok!(cuEventRecord(event, second));
        ok!(cuStreamWaitEvent(first, event, 0));
    }
    ok!(cuCtxSynchronize());
    assert_eq!(words(word, 1), [40 + 256]);
}

#[test]
fn an_access_beyond_memory_ends_the_context_and_no_other() {
    let context = Context::new();
    let count = function(load(KERNELS), c"count");
    let word = managed(4);
    assert_eq!(launch(count, 1, 1, ptr::null_mut(), &mut [word + (1 << 39)]), CUresult::CUDA_SUCCESS);
    assert_eq!(call!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(call!(cuMemFree_v2(word)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_eq!(launch(count, 1, 1, ptr::null_mut(), &mut [word]), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    drop(context);
    let _context = Context::new();
    let (count, word) = (function(load(KERNELS), c"count"), managed(4));
    assert_eq!(launch(count, 1, 3, ptr::null_mut(), &mut [word]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words(word, 1), [3]);
}

#[test]
fn freed_memory_is_no_memory() {
    let _context = Context::new();
    let count = function(load(KERNELS), c"count");
    let word = device_memory(OWN_BYTES);
    ok!(cuMemFree_v2(word));
    assert_eq!(launch(count, 1, 1, ptr::null_mut(), &mut [word]), CUresult::CUDA_SUCCESS);
    assert_eq!(call!(cuStreamSynchronize(ptr::null_mut())), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn registered_memory_of_the_program_is_accessed() {
    let _context = Context::new();
    let count = function(load(KERNELS), c"count");
    let mut own = Box::new(7u32);
    let address = ptr::from_mut(own.as_mut());
    ok!(cuMemHostRegister_v2(address.cast(), 4, 0));
    assert_eq!(launch(count, 2, 40, ptr::null_mut(), &mut [address.addr() as u64]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    ok!(cuMemHostUnregister(address.cast()));
    // SAFETY: the box's own memory, which the kernel is done with.
    let value = unsafe { address.read_volatile() };
    assert_eq!(value, 87);
}

#[test]
fn launches_are_checked() {
    let _context = Context::new();
    let count = function(load(KERNELS), c"count");
    let word = managed(4);
    for (blocks, threads) in [(0, 1), (1, 0), (1, 1025)] {
        let result = launch(count, blocks, threads, ptr::null_mut(), &mut [word]);
        assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let nothing = ptr::without_provenance_mut(0x1234);
    assert_eq!(launch(nothing, 1, 1, ptr::null_mut(), &mut [word]), CUresult::CUDA_ERROR_INVALID_HANDLE);
    let mut none = ptr::null_mut();
    let missing = call!(cuModuleGetFunction(&raw mut none, load(KERNELS), c"nothing".as_ptr()));
    assert_eq!(missing, CUresult::CUDA_ERROR_NOT_FOUND);
    let (mut offset, mut bytes, mut threads) = (0, 0, 0);
    let add = function(load(KERNELS), c"add");
    ok!(cuFuncGetParamInfo(add, 3, &raw mut offset, &raw mut bytes));
    assert_eq!((offset, bytes), (24, 4));
    assert_eq!(call!(cuFuncGetParamInfo(add, 4, &raw mut offset, &raw mut bytes)), CUresult::CUDA_ERROR_INVALID_VALUE);
    ok!(cuFuncGetAttribute(&raw mut threads, F::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, add));
    assert_eq!(threads, 1024);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut threads, add, 256, 0));
    assert_eq!(threads, 4);
}

#[test]
fn variables_of_a_module_have_memory() {
    let _context = Context::new();
    let module = load(KERNELS);
    let (mut address, mut bytes, mut value) = (0, 0, 0u32);
    ok!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, c"start".as_ptr()));
    assert_eq!(bytes, 4);
    ok!(cuMemcpyDtoH_v2(host(&mut value), address, 4));
    assert_eq!(value, 40);
    let word = managed(4);
    ok!(cuMemsetD32_v2(address, 50, 1));
    assert_eq!(launch(function(module, c"begin"), 1, 1, ptr::null_mut(), &mut [word]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words(word, 1), [50]);
    ok!(cuModuleUnload(module));
    assert_eq!(call!(cuModuleUnload(module)), CUresult::CUDA_ERROR_INVALID_HANDLE);
}

/// Kernels that NVRTC compiled, whose sources are beside them.
const GRIDS: &str = include_str!("../../../ptx/tests/kernels/grids.ptx");

#[test]
fn a_cooperative_launch_has_all_blocks_in_progress() {
    let _context = Context::new();
    let text = CString::new(GRIDS).unwrap();
    let rounds = function(load(&text), c"rounds");
    let (blocks, threads, number) = (16, 64, 3);
    let address = managed(blocks * threads * 4);
    let values = words(address, blocks * threads);
    values.iter_mut().zip(0u32..).for_each(|(value, at)| *value = at * at);
    let mut expected = values.to_vec();
    for round in 0..number {
        expected = (0..expected.len()).map(|at| expected[(at + 37) % expected.len()] + round).collect();
    }
    let (mut pointer, mut count) = (address, number);
    let mut arguments = [host(&mut pointer), host(&mut count)];
    let (blocks, threads) = (u32::try_from(blocks).unwrap(), u32::try_from(threads).unwrap());
    let mut launch = |blocks, threads| {
        let arguments = arguments.as_mut_ptr();
        call!(cuLaunchCooperativeKernel(rounds, blocks, 1, 1, threads, 1, 1, 0, ptr::null_mut(), arguments))
    };
    assert_eq!(launch(blocks, threads), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, expected.len()), expected);
    // The device holds four blocks of 1,024 threads, or 64 of 32.
    for (blocks, threads, result) in [
        (5, 1024, CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
        (65, 32, CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    ] {
        assert_eq!(launch(blocks, threads), result);
    }
}

#[test]
fn kernels_allocate_from_the_heap_of_their_context() {
    let _context = Context::new();
    let text = CString::new(GRIDS).unwrap();
    let module = load(&text);
    let (lists, sums) = (device_memory(32 * 8), managed(32 * 4));
    ok!(cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 64 << 10));
    assert_eq!(launch(function(module, c"lists"), 1, 32, ptr::null_mut(), &mut [lists, sums]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    let expected: Vec<u32> = (0..32).map(|thread| (0..thread).map(|i| i * i).sum()).collect();
    assert_eq!(words(sums, 32), expected);
    let late = call!(cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 1 << 20));
    assert_eq!(late, CUresult::CUDA_ERROR_INVALID_VALUE);
    let free_lists = function(module, c"free_lists");
    assert_eq!(launch(free_lists, 1, 32, ptr::null_mut(), &mut [lists, sums]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words(sums, 32), (0..32).collect::<Vec<u32>>());
    for (bytes, success) in [(64 << 10, 1), ((64 << 10) + 1, 0)] {
        let allocates = function(module, c"allocates");
        assert_eq!(launch(allocates, 1, 1, ptr::null_mut(), &mut [bytes, sums]), CUresult::CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        assert_eq!(words(sums, 1), [success]);
    }
}

/// As NVRTC has `__managed__ unsigned counter = 40, table[3] = {1, 2, 3}, *pointer = table; __device__ unsigned own;`.
const MANAGED: &CStr = cr".version 8.0
.target sm_75
.address_size 64
    .visible .global .align 4 .u32 own = 7;
    .visible .global .attribute(.managed) .align 4 .u32 counter = 40;
    .visible .global .attribute(.managed) .align 4 .b8 table[12] = {1, 0, 0, 0, 2, 0, 0, 0, 3};
    .visible .global .attribute(.managed) .align 8 .u64 pointer[1] = {generic(table)};
    .visible .entry bump() { .reg .u32 %r<4>; .reg .b64 %d; mov.u32 %r0, %tid.x; add.u32 %r0, %r0, 1;
    atom.global.add.u32 %r1, [counter], %r0; ld.global.u64 %d, [pointer]; ld.u32 %r2, [%d+8]; ld.global.u32 %r3, [own];
    add.u32 %r2, %r2, %r3; st.global.u32 [table+4], %r2; ret; }";

#[test]
fn managed_variables_are_memory_of_cpu_and_gpu() {
    let _context = Context::new();
    let module = load(MANAGED);
    let variable = |name: &CStr| {
        let (mut address, mut bytes, mut managed) = (0, 0, 0u32);
        ok!(cuModuleGetGlobal_v2(&raw mut address, &raw mut bytes, module, name.as_ptr()));
        ok!(cuPointerGetAttribute(host(&mut managed), P::CU_POINTER_ATTRIBUTE_IS_MANAGED, address));
        (address, bytes, managed != 0)
    };
    let ((counter, bytes, managed), (table, table_bytes, _)) = (variable(c"counter"), variable(c"table"));
    assert_eq!((bytes, managed, table_bytes, variable(c"own").2), (4, true, 12, false));
    assert_eq!((words(counter, 1), words(table, 3)), (&mut [40][..], &mut [1, 2, 3][..]));
    words(counter, 1)[0] += 2;
    let bump = function(module, c"bump");
    for (total, third) in [(42 + 55, 3), (42 + 110, 30)] {
        assert_eq!(launch(bump, 1, 10, ptr::null_mut(), &mut []), CUresult::CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        assert_eq!((words(counter, 1), words(table, 3)), (&mut [total][..], &mut [1, third + 7, third][..]));
        words(table, 3)[2] = 30;
    }
    ok!(cuModuleUnload(module));
}

#[test]
fn a_library_has_managed_variables() {
    let _context = Context::new();
    let (mut library, mut address, mut bytes) = (ptr::null_mut(), 0, 0);
    let (none, nothing) = (ptr::null_mut(), ptr::null_mut());
    let image = MANAGED.as_ptr().cast();
    ok!(cuLibraryLoadData(&raw mut library, image, none, ptr::null_mut(), 0, nothing, ptr::null_mut(), 0));
    ok!(cuLibraryGetManaged(&raw mut address, &raw mut bytes, library, c"counter".as_ptr()));
    assert_eq!((bytes, words(address, 1)), (4, &mut [40][..]));
    for name in [c"own", c"nothing"] {
        let result = call!(cuLibraryGetManaged(&raw mut address, &raw mut bytes, library, name.as_ptr()));
        assert_eq!(result, CUresult::CUDA_ERROR_NOT_FOUND);
    }
    ok!(cuLibraryUnload(library));
}

#[test]
fn what_is_not_ptx_does_not_load() {
    let _context = Context::new();
    let mut module = ptr::null_mut();
    let elf = c"\x7fELF and more";
    let result = call!(cuModuleLoadData(&raw mut module, elf.as_ptr().cast()));
    assert_eq!(result, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    let bad = c".version 6.0\n.target sm_60\n.address_size 64\n.entry k() { frobnicate.u32 %r1; }";
    let mut log = [0u8; 200];
    let mut names = [J::CU_JIT_ERROR_LOG_BUFFER, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(200)];
    let result =
        call!(cuModuleLoadDataEx(&raw mut module, bad.as_ptr().cast(), 2, names.as_mut_ptr(), values.as_mut_ptr()));
    assert_eq!(result, CUresult::CUDA_ERROR_INVALID_PTX);
    let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(text.contains("frobnicate"), "{text}");
    assert_eq!(values[1].addr(), text.len());
}

#[test]
fn the_logs_of_a_link_have_what_is_wrong() {
    let _context = Context::new();
    let mut log = [0u8; 200];
    let mut names = [J::CU_JIT_ERROR_LOG_BUFFER, J::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(200)];
    let mut link = ptr::null_mut();
    ok!(cuLinkCreate_v2(2, names.as_mut_ptr(), values.as_mut_ptr(), &raw mut link));
    let add = |text: &CStr| {
        let (data, bytes, kind) =
            (text.as_ptr().cast_mut().cast(), text.count_bytes(), CUjitInputType::CU_JIT_INPUT_PTX);
        call!(cuLinkAddData_v2(link, kind, data, bytes, c"text".as_ptr(), 0, ptr::null_mut(), ptr::null_mut()))
    };
    assert_eq!(add(KERNELS), CUresult::CUDA_SUCCESS);
    let bad = c".version 6.0\n.target sm_60\n.address_size 64\n.entry k() { frobnicate.u32 %r1; }";
    assert_eq!(add(bad), CUresult::CUDA_SUCCESS);
    let (mut image, mut bytes) = (ptr::null_mut(), 0);
    assert_eq!(call!(cuLinkComplete(link, &raw mut image, &raw mut bytes)), CUresult::CUDA_ERROR_INVALID_PTX);
    let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(text.contains("frobnicate"), "{text}");
    assert_eq!(values[1].addr(), text.len());
    ok!(cuLinkDestroy(link));
}

#[test]
fn linked_texts_load_as_an_image() {
    let _context = Context::new();
    let (mut link, mut image, mut bytes) = (ptr::null_mut(), ptr::null_mut(), 0);
    ok!(cuLinkCreate_v2(0, ptr::null_mut(), ptr::null_mut(), &raw mut link));
    let text = KERNELS.to_bytes_with_nul();
    let (data, none) = (text.as_ptr().cast_mut().cast(), ptr::null_mut());
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    ok!(cuLinkAddData_v2(link, kind, data, text.len(), c"kernels".as_ptr(), 0, none, ptr::null_mut()));
    ok!(cuLinkComplete(link, &raw mut image, &raw mut bytes));
    assert!(bytes > text.len());
    let mut library = ptr::null_mut();
    let (names, values) = (ptr::null_mut(), ptr::null_mut());
    ok!(cuLibraryLoadData(&raw mut library, image, names, values, 0, ptr::null_mut(), ptr::null_mut(), 0));
    ok!(cuLinkDestroy(link));
    let (mut kernel, mut count) = (ptr::null_mut(), 0);
    ok!(cuLibraryGetKernelCount(&raw mut count, library));
    assert_eq!(count, 3);
    ok!(cuLibraryGetKernel(&raw mut kernel, library, c"count".as_ptr()));
    let word = managed(4);
    let result = launch(kernel.cast(), 1, 5, ptr::null_mut(), &mut [word]);
    assert_eq!(result, CUresult::CUDA_SUCCESS);
    let mut function = ptr::null_mut();
    ok!(cuKernelGetFunction(&raw mut function, kernel));
    assert_eq!(launch(function, 1, 5, ptr::null_mut(), &mut [word]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(words(word, 1), [10]);
    ok!(cuLibraryUnload(library));
}

#[test]
fn graphs_run_kernels_with_the_arguments_of_their_nodes() {
    let _context = Context::new();
    let module = load(KERNELS);
    let (mut first, mut second) = (managed(4), managed(4));
    let mut arguments = [host(&mut first)];
    let mut parameters = CUDA_KERNEL_NODE_PARAMS {
        func: function(module, c"count"),
        gridDimX: 2,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    };
    let (mut graph, mut node, mut executable) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    ok!(cuGraphCreate(&raw mut graph, 0));
    ok!(cuGraphAddKernelNode_v2(&raw mut node, graph, ptr::null(), 0, &raw const parameters));
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    for _ in 0..3 {
        ok!(cuGraphLaunch(executable, ptr::null_mut()));
    }
    let mut other = [host(&mut second)];
    parameters.kernelParams = other.as_mut_ptr();
    ok!(cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const parameters));
    ok!(cuGraphLaunch(executable, ptr::null_mut()));
    ok!(cuCtxSynchronize());
    assert_eq!((words(first, 1)[0], words(second, 1)[0]), (192, 64));
    ok!(cuGraphKernelNodeGetParams_v2(node, &raw mut parameters));
    assert_eq!((parameters.func, parameters.gridDimX, parameters.blockDimX), (function(module, c"count"), 2, 32));
    // SAFETY: the list has a pointer to the kernel's only argument, of 8 bytes.
    let pointer = unsafe { parameters.kernelParams.read().cast::<u64>() };
    // SAFETY: the argument, of 8 bytes, is the node's copy, and the node still exists.
    assert_eq!(unsafe { pointer.read() }, first);
}

#[test]
#[ignore = "run by another test in a process of its own"]
fn memory_of_two_devices() {
    let _context = Context::new();
    let word = device_memory(64);
    let (mut can, mut other) = (1, ptr::null_mut());
    ok!(cuDeviceCanAccessPeer(&raw mut can, 1, 0));
    assert_eq!(can, 0);
    ok!(cuCtxCreate_v2(&raw mut other, 0, 1));
    let own = device_memory(64);
    ok!(cuMemcpyPeer(own, other, word, ptr::null_mut(), 64));
    let count = function(load(KERNELS), c"count");
    assert_eq!(launch(count, 1, 1, ptr::null_mut(), &mut [own]), CUresult::CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
    assert_eq!(launch(count, 1, 1, ptr::null_mut(), &mut [word]), CUresult::CUDA_SUCCESS);
    assert_eq!(call!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn kernels_have_no_access_to_memory_of_another_device() {
    succeeds("kernels::memory_of_two_devices", &[("CUDA_LAB_DEVICES", "2")]);
}

#[test]
fn a_text_of_many_modules_loads_many_times() {
    let _context = Context::new();
    let (mut free, mut total, mut after) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    let text = CString::new(KERNELS.to_bytes()).unwrap();
    for _ in 0..20 {
        let module = load(&text);
        ok!(cuModuleUnload(module));
    }
    ok!(cuMemGetInfo_v2(&raw mut after, &raw mut total));
    assert!(after <= total);
}
