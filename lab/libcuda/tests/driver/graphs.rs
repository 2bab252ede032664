//! Graphs of copies and memsets; those of kernels are in `kernels`.

use std::ptr;

use cudarc::driver::sys::{CUDA_MEMSET_NODE_PARAMS, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus};

use crate::support::{Context, call, event, managed, ok, stream, words};

fn memset(address: u64, value: u32) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: 4, width: 1, height: 1 }
}

#[test]
fn nodes_run_behind_their_dependencies() {
    let _context = Context::new();
    let address = managed(64);
    let (mut graph, mut first, mut second, mut executable) =
        (ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    ok!(cuGraphCreate(&raw mut graph, 0));
    let (early, late) = (memset(address, 1), memset(address, 2));
    ok!(cuGraphAddMemsetNode(&raw mut second, graph, ptr::null(), 0, &raw const late, ptr::null_mut()));
    ok!(cuGraphAddMemsetNode(&raw mut first, graph, ptr::null(), 0, &raw const early, ptr::null_mut()));
    ok!(cuGraphAddDependencies(graph, &raw const first, &raw const second, 1));
    let mut count = 0;
    ok!(cuGraphGetNodes(graph, ptr::null_mut(), &raw mut count));
    assert_eq!(count, 2);
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, ptr::null_mut()));
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, 1), [2]);
    let other = memset(address, 3);
    ok!(cuGraphExecMemsetNodeSetParams(executable, second, &raw const other, ptr::null_mut()));
    ok!(cuGraphLaunch(executable, ptr::null_mut()));
    ok!(cuCtxSynchronize());
    assert_eq!(words(address, 1), [3]);
    ok!(cuGraphAddDependencies(graph, &raw const second, &raw const first, 1));
    let mut cyclic = ptr::null_mut();
    assert_eq!(call!(cuGraphInstantiateWithFlags(&raw mut cyclic, graph, 0)), CUresult::CUDA_ERROR_INVALID_VALUE);
    let mut clone = ptr::null_mut();
    ok!(cuGraphClone(&raw mut clone, graph));
    let mut found = ptr::null_mut();
    ok!(cuGraphNodeFindInClone(&raw mut found, first, clone));
    ok!(cuGraphDestroy(clone));
    ok!(cuGraphExecDestroy(executable));
    ok!(cuGraphDestroy(graph));
    assert_eq!(call!(cuGraphDestroy(graph)), CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn streams_are_captured() {
    let _context = Context::new();
    let (first, second, event, address) = (stream(1), stream(1), event(), managed(64));
    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    ok!(cuStreamBeginCapture_v2(first, mode));
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    ok!(cuStreamIsCapturing(first, &raw mut status));
    assert_eq!(status, CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    ok!(cuMemsetD32Async(address, 4, 1, first));
    ok!(cuEventRecord(event, first));
    ok!(cuStreamWaitEvent(second, event, 0));
    ok!(cuMemcpyDtoDAsync_v2(address + 4, address, 4, second));
    ok!(cuEventRecord(event, second));
    ok!(cuStreamWaitEvent(first, event, 0));
    let unmatched = call!(cuStreamEndCapture(second, &raw mut graph));
    assert_eq!(unmatched, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    ok!(cuStreamEndCapture(first, &raw mut graph));
    assert_eq!(words(address, 2), [0, 0]);
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, first));
    ok!(cuStreamSynchronize(first));
    assert_eq!(words(address, 2), [4, 4]);
}
