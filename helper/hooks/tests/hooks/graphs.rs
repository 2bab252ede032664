//! Graphs, captures and waits of CUDA 13.

use std::{ptr::null, sync::atomic::Ordering};

use call_ring::{
    Dim3, SyncKind, Target,
    call::{Action, Pointer},
};

use crate::{driver, program::Program};

const GRAPH: u64 = 0x6000;
const NODE: u64 = 0x6100;
const FUNCTION: u64 = 0x7000;
const MEMORY: u64 = 0x40_0000;

type AddNode = extern "C" fn(*mut u64, u64, *const u64, *const u8, usize, *const u64) -> i32;

/// `CUgraphNodeParams` of a kernel with these arguments.
fn kernel(arguments: &[*const u64; 1]) -> [u64; 31] {
    const HEAD_WORDS: usize = 2;
    let mut words = [0; 31];
    let parameters = [FUNCTION, 4 | 1 << 32, 1 | 32 << 32, 1 | 1 << 32, 48, arguments.as_ptr() as u64];
    words[HEAD_WORDS..HEAD_WORDS + parameters.len()].copy_from_slice(&parameters);
    words
}

fn launch(target: Target) -> Action {
    Action::Launch {
        target,
        function: FUNCTION,
        grid: Dim3::new(4, 1, 1),
        block: Dim3::new(32, 1, 1),
        shared_bytes: 48,
        pointers: Some(vec![Pointer { offset_bytes: 0, address: MEMORY + 8 }]),
    }
}

#[test]
fn kernel_node_is_recorded_with_its_pointers() {
    let program = Program::start();
    program.allocate(MEMORY, 4096);
    let argument = MEMORY + 8;
    let arguments = [&raw const argument];
    let parameters = kernel(&arguments);
    let add: AddNode = program.function(c"cuGraphAddNode_v3");
    driver::CREATED.store(NODE, Ordering::Relaxed);
    let mut node = 0;
    assert_eq!(add(&raw mut node, GRAPH, null(), null(), 0, parameters.as_ptr()), 0);
    let actions = program.actions();
    let name = Action::Function { function: FUNCTION, name: "kernel".to_owned() };
    let added = launch(Target::Graph { graph: GRAPH, node: NODE });
    // The name comes with the first launch of the function in the process.
    assert_eq!(actions, [name, added][2 - actions.len()..]);
    let set: extern "C" fn(u64, *const u64) -> i32 = program.function(c"cuGraphNodeSetParams_v2");
    assert_eq!(set(NODE, parameters.as_ptr()), 0);
    assert_eq!(program.actions(), [launch(Target::Graph { graph: 0, node: NODE })]);
}

#[test]
fn node_with_a_batch_of_copies_is_counted_as_unrecorded() {
    // `CU_GRAPH_NODE_TYPE_MEMCPY_BATCH` and `CU_GRAPH_NODE_TYPE_EMPTY`.
    const COPY_BATCH: u64 = 14;
    const EMPTY: u64 = 5;
    let program = Program::start();
    let add: AddNode = program.function(c"cuGraphAddNode_v3");
    let set: extern "C" fn(u64, *const u64) -> i32 = program.function(c"cuGraphNodeSetParams_v2");
    let unrecorded = |kind: u64| {
        let mut parameters = [0; 31];
        parameters[0] = kind;
        let (mut node, before) = (0, program.unrecorded());
        assert_eq!(add(&raw mut node, GRAPH, null(), null(), 0, parameters.as_ptr()), 0);
        assert_eq!((set(NODE, parameters.as_ptr()), program.actions()), (0, vec![]));
        program.unrecorded() - before
    };
    assert_eq!((unrecorded(COPY_BATCH), unrecorded(EMPTY)), (2, 0));
    driver::RESULT.store(1, Ordering::Relaxed);
    let parameters = [COPY_BATCH; 31];
    let before = program.unrecorded();
    assert_eq!((set(NODE, parameters.as_ptr()), program.unrecorded()), (1, before), "a call that fails");
}

#[test]
fn wait_for_a_given_context_is_recorded() {
    let program = Program::start();
    let synchronize: extern "C" fn(u64) -> i32 = program.function(c"cuCtxSynchronize_v2");
    assert_eq!(synchronize(0x1000), 0);
    assert_eq!(program.actions(), [Action::Sync { kind: SyncKind::Context, handle: 0 }]);
}

#[test]
fn work_of_a_recapture_is_recorded_with_its_capture() {
    const CAPTURE: u64 = 9;
    let program = Program::start();
    let begin: extern "C" fn(u64, u32, u64, *const u8, *const u8) -> i32 =
        program.function(c"cuStreamBeginRecaptureToGraph");
    let copy: extern "C" fn(u64, u64, usize, *mut u8, u64) -> i32 = program.function(c"cuMemcpyWithAttributesAsync");
    assert_eq!(begin(0x5000, 0, GRAPH, null(), null()), 0);
    driver::CAPTURE.store(CAPTURE, Ordering::Relaxed);
    assert_eq!(copy(0x10, 0x20, 8, std::ptr::null_mut(), 0x5000), 0);
    let target = Target::Captured(CAPTURE);
    assert_eq!(program.actions(), [Action::Copy { target, to: 0x10, from: 0x20, bytes: 8, rows: 1 }]);
}
