//! What the forms accept, refuse and derive.
#![expect(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

use trace::{
    Access, Alignment, Circle, Draft, Iteration, KernelId, Op, OpKind, OpStream, Operand, Recorder, Role, Tensor,
    TensorId,
    circle::{Span, Window},
    draft::{DraftKernel, Invalid, MOST},
    ops::{self, Block},
};

const WEIGHT: TensorId = TensorId(0);
const ACTIVATION: TensorId = TensorId(1);
const GRADIENT: TensorId = TensorId(2);
const WORKSPACE: TensorId = TensorId(3);

fn tensor(name: &str, bytes: u64, role: Role) -> Tensor {
    Tensor { name: name.into(), bytes, role, persistent: role == Role::Weight }
}

fn kernel(name: &str, duration_ns: u64, inputs: &[TensorId], outputs: &[TensorId]) -> DraftKernel {
    DraftKernel { name: name.into(), duration_ns, inputs: inputs.to_vec(), outputs: outputs.to_vec() }
}

/// Forward, something else, backward with scratch memory, update.
fn draft() -> Draft {
    Draft {
        name: "one layer".into(),
        tensors: vec![
            tensor("w", 100, Role::Weight),
            tensor("a", 10, Role::Activation),
            tensor("dw", 100, Role::Gradient),
            tensor("", 7, Role::Workspace),
        ],
        kernels: vec![
            kernel("forward", 5, &[WEIGHT], &[ACTIVATION]),
            kernel("other", 3, &[], &[]),
            kernel("backward", 9, &[ACTIVATION], &[GRADIENT, WORKSPACE]),
            kernel("update", 2, &[GRADIENT, WEIGHT], &[WEIGHT]),
        ],
    }
}

fn iteration() -> Iteration {
    draft().check().unwrap()
}

#[test]
fn a_tensor_lives_from_its_first_use_to_its_last_and_a_persistent_one_always() {
    let it = iteration();
    assert_eq!(it.live_bytes().values(), [110, 110, 217, 200]);
    assert_eq!((it.peak().kernel, it.peak().bytes), (KernelId(2), 217));
    assert_eq!(it.births(KernelId(2)).collect::<Vec<_>>(), [GRADIENT, WORKSPACE]);
    assert_eq!(it.deaths(KernelId(2)).collect::<Vec<_>>(), [ACTIVATION, WORKSPACE]);
    assert_eq!((it.persistent_bytes(), it.total_bytes()), (100, 217));
    assert_eq!((it.workspace_bytes(KernelId(2)), it.workspace_bytes(KernelId(0))), (7, 0));
    assert_eq!(it.working_set_bytes(KernelId(2)), 117);
}

#[test]
fn a_gap_lies_between_two_uses_and_that_of_a_persistent_tensor_also_around_the_end() {
    let it = iteration();
    let gaps = |tensor| it.gaps(tensor).into_iter().map(|gap| (gap.first.0, gap.next_use.0, gap.wraps, it.gap_ns(gap)));
    assert_eq!(gaps(ACTIVATION).collect::<Vec<_>>(), [(1, 2, false, 3)]);
    assert_eq!(gaps(WEIGHT).collect::<Vec<_>>(), [(1, 3, false, 12)], "used last and first: nothing around the end");
    assert_eq!(gaps(GRADIENT).count(), 0);

    let mut idle = draft();
    idle.kernels.insert(0, kernel("load", 4, &[], &[]));
    idle.kernels.push(kernel("log", 6, &[], &[]));
    let idle = idle.check().unwrap();
    let around = *idle.gaps(WEIGHT).last().unwrap();
    assert_eq!((around.first.0, around.next_use.0, around.wraps, idle.gap_ns(around)), (5, 1, true, 10));
}

#[test]
fn what_a_kernel_changes_in_place_is_one_operand() {
    let it = iteration();
    let operands =
        [Operand { tensor: GRADIENT, access: Access::Read }, Operand { tensor: WEIGHT, access: Access::ReadWrite }];
    assert_eq!(it.operands(KernelId(3)), operands);
    assert_eq!(it.uses(WEIGHT).iter().map(|of| of.kernel.0).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn an_iteration_is_the_same_after_it_was_written_as_json_and_read() {
    let it = iteration();
    let json = serde_json::to_string(&it).unwrap();
    assert_eq!(serde_json::from_str::<Iteration>(&json).unwrap(), it);
}

#[test]
fn other_durations_move_every_start() {
    let slow = iteration().with_durations(|_, kernel| kernel.duration_ns * 10).unwrap();
    assert_eq!((slow.start_ns(KernelId(2)), slow.duration_ns()), (80, 190));
    assert!(iteration().with_durations(|_, _| u64::MAX).is_err());
}

#[test]
fn a_draft_that_is_no_iteration_is_refused_with_the_reason() {
    let refused = |change: fn(&mut Draft)| {
        let mut wrong = draft();
        change(&mut wrong);
        wrong.check().unwrap_err()
    };
    assert_eq!(refused(|draft| draft.kernels.clear()), Invalid::NoKernels);
    assert_eq!(refused(|draft| draft.tensors[1].bytes = 0), Invalid::EmptyTensor { tensor: ACTIVATION });
    assert_eq!(refused(|draft| draft.tensors[1].bytes = MOST), Invalid::TooManyBytes);
    assert_eq!(refused(|draft| draft.kernels[1].duration_ns = MOST), Invalid::TooLong);
    assert_eq!(refused(|draft| draft.tensors[3].persistent = true), Invalid::PersistentWorkspace { tensor: WORKSPACE });
    let (tensor, kernel) = (WORKSPACE, KernelId(3));
    assert_eq!(refused(|draft| draft.kernels[3].outputs.push(WORKSPACE)), Invalid::SharedWorkspace { tensor, kernel });
    assert_eq!(refused(|draft| draft.kernels[3].inputs.push(WORKSPACE)), Invalid::WorkspaceRead { tensor, kernel });
    let unknown = refused(|draft| draft.kernels[0].inputs.push(TensorId(4)));
    assert_eq!(unknown.to_string(), "kernel 0 names tensor 4, and there are 4");
}

#[test]
fn bytes_and_durations_add_up_to_2_to_the_62_at_most() {
    let draft = |bytes, duration_ns| Draft {
        tensors: vec![Tensor { name: String::new(), bytes, role: Role::Other, persistent: true }],
        kernels: vec![DraftKernel { duration_ns, inputs: vec![TensorId(0)], ..DraftKernel::default() }],
        ..Draft::default()
    };
    assert!(draft(MOST, MOST).check().is_ok());
    for (bytes, duration_ns, reason) in [
        (MOST + 1, 1, Invalid::TooManyBytes),
        (u64::MAX, 1, Invalid::TooManyBytes),
        (1, MOST + 1, Invalid::TooLong),
        (1, u64::MAX, Invalid::TooLong),
    ] {
        assert_eq!(draft(bytes, duration_ns).check().unwrap_err(), reason);
    }
}

/// Allocates under the key 1, 2, ...: one block that stays, then `iterations` of two that do not, the second freed in the iteration after.
fn stream(iterations: u64) -> OpStream {
    let mut recorder = Recorder::default();
    let mut now = 0..;
    let mut next = || now.next().unwrap();
    let block = |bytes| Block { bytes, address: None };
    recorder.malloc(next(), 1, block(1000)).unwrap();
    for iteration in 0..iterations {
        let crossing = 10 + iteration;
        recorder.malloc(next(), 2, block(30)).unwrap();
        recorder.write(next(), 2).unwrap();
        recorder.malloc(next(), crossing, block(5)).unwrap();
        recorder.free(next(), 2).unwrap();
        if iteration > 0 {
            recorder.free(next(), crossing - 1).unwrap();
        }
    }
    recorder.finish()
}

#[test]
fn a_block_that_is_freed_an_iteration_later_crosses_on_the_circle() {
    let circle = Circle::of_ops(&stream(4), Window { first_malloc: 3, mallocs: 2 }, Alignment::NONE).unwrap();
    let span = |source, bytes, start, length| Span { source, bytes, start, length, copies: 1 };
    // It lives for three mallocs, and an iteration has two: a circle of two iterations.
    let expected = [span(0, 30, 0, 2), span(1, 5, 1, 3), span(0, 30, 2, 2), span(1, 5, 3, 3)];
    assert_eq!((circle.period, circle.turns, &circle.spans[..]), (4, 2, &expected[..]));
    assert_eq!((circle.persistent_bytes, circle.peak_bytes()), (1000, 40), "as when it ran");
}

#[test]
fn spans_on_a_circle_overlap_across_its_end_too() {
    let span = |start, length| Span { source: 0, bytes: 1, start, length, copies: 1 };
    assert!(span(8, 4).overlaps(&span(1, 1), 10), "8, 9, 0, 1");
    assert!(!span(8, 4).overlaps(&span(2, 6), 10), "2 to 7");
    let circle = Circle { period: 10, turns: 1, spans: vec![span(1, 1), span(2, 6), span(8, 4)], persistent_bytes: 0 };
    assert_eq!(circle.peak_bytes(), 2);
}

#[test]
fn the_circle_of_an_iteration_has_its_peak() {
    let it = iteration();
    let circle = Circle::of_iteration(&it, Alignment::NONE).unwrap();
    assert_eq!(circle.peak_bytes() + circle.persistent_bytes, it.peak().bytes);
    assert_eq!(Circle::of_iteration(&it, Alignment::SMALL).unwrap().peak_bytes(), 3 * 512);
}

#[test]
fn sizes_are_rounded_up_to_what_fits_them() {
    let round = |bytes| Alignment::UVM.round(bytes);
    assert_eq!([round(1), round(513), round((1 << 20) - 1), round((1 << 20) + 1)], [512, 1024, 1 << 20, 2 << 20]);
}

#[test]
fn a_circle_outside_the_trace_is_refused() {
    let of = |first_malloc, mallocs| Circle::of_ops(&stream(4), Window { first_malloc, mallocs }, Alignment::NONE);
    assert!(of(8, 2).is_err());
    assert!(of(0, 0).is_err());
    assert!(of(usize::MAX, 2).is_err());
    assert!(Circle::of_intervals([(7, 5, 5, 1)]).is_err());
}

#[test]
fn a_stream_is_the_same_after_it_was_written_as_json_and_read() {
    let stream = stream(3);
    let json = serde_json::to_string(&stream).unwrap();
    assert!(json.contains(r#"{"time_ns":0,"malloc":0}"#), "{json}");
    assert_eq!(serde_json::from_str::<OpStream>(&json).unwrap(), stream);
}

#[test]
fn ops_that_cannot_have_happened_are_refused() {
    let mut recorder = Recorder::default();
    let block = Block { bytes: 8, address: None };
    recorder.malloc(5, 1, block.clone()).unwrap();
    assert_eq!(recorder.malloc(6, 1, block.clone()), Err(ops::Invalid::AllocatedTwice { key: 1 }));
    assert_eq!(recorder.free(6, 2), Err(ops::Invalid::NotAllocated { key: 2 }));
    assert_eq!(recorder.free(4, 1), Err(ops::Invalid::TimeGoesBack { before_ns: 5, time_ns: 4 }));
    assert_eq!(recorder.malloc(6, 2, Block { bytes: 0, address: None }), Err(ops::Invalid::EmptyBlock));
    recorder.free(6, 1).unwrap();
    assert_eq!(recorder.read(7, 1), Err(ops::Invalid::NotAllocated { key: 1 }));
    let stream = recorder.finish();
    assert_eq!(stream.ops().values().last(), Some(&Op { time_ns: 6, kind: OpKind::Free(trace::BlockId(0)) }));
    assert_eq!(stream.live_bytes().values(), [8, 0]);
}
