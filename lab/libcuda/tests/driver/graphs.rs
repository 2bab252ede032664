//! Graphs of copies and memsets; those of kernels are in `kernels`.

use std::ptr;

use cudarc::driver::sys::{
    CUDA_EVENT_RECORD_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeParams_st__bindgen_ty_1 as Value, CUgraphNodeType, CUresult, CUstreamCaptureMode, CUstreamCaptureStatus,
};

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

#[test]
fn nodes_of_any_kind_are_added_changed_and_read_back() {
    let _context = Context::new();
    let (address, recorded) = (managed(64), event());
    let (mut graph, mut executable) = (ptr::null_mut(), ptr::null_mut());
    ok!(cuGraphCreate(&raw mut graph, 0));
    let add = |kind, value, after: &[CUgraphNode]| {
        let mut node = ptr::null_mut();
        let mut parameters =
            CUgraphNodeParams { type_: kind, reserved0: [0; 3], __bindgen_anon_1: value, reserved2: 0 };
        ok!(cuGraphAddNode(&raw mut node, graph, after.as_ptr(), after.len(), &raw mut parameters));
        node
    };
    let fill = |value| CUDA_MEMSET_NODE_PARAMS_v2 {
        dst: address,
        pitch: 0,
        value,
        elementSize: 4,
        width: 2,
        height: 1,
        ctx: ptr::null_mut(),
    };
    let first = add(CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET, Value { memset: fill(7) }, &[]);
    let record = CUDA_EVENT_RECORD_NODE_PARAMS { event: recorded };
    let second = add(CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD, Value { eventRecord: record }, &[first]);
    let (mut found, mut parameters) = (ptr::null_mut(), memset(0, 0));
    ok!(cuGraphEventRecordNodeGetEvent(second, &raw mut found));
    assert_eq!(found, recorded);
    ok!(cuGraphMemsetNodeGetParams(first, &raw mut parameters));
    assert_eq!((parameters.dst, parameters.value, parameters.width), (address, 7, 2));
    ok!(cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ok!(cuGraphLaunch(executable, ptr::null_mut()));
    ok!(cuEventSynchronize(recorded));
    assert_eq!(words(address, 3), [7, 7, 0]);
}
