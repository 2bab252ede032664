//! Validation of both forms of traces, and what is derived from them.
#![expect(clippy::unwrap_used, reason = "a failed step ends the test")]

use trace::{
    Access, Alignment, Circle, Draft, Iteration, KernelId, Location, Op, OpKind, OpStream, Operand, Recorder, Role,
    Tensor, TensorId,
    circle::{Span, Window},
    draft::{DraftKernel, Invalid, MAX_TOTAL},
    ops::{self, Block, SyncKind},
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

/// Draft of four kernels: forward, another one, backward with scratch memory, update.
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
        ..Draft::default()
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
fn gaps_lie_between_uses_and_wrap_around_for_persistent_tensors() {
    let it = iteration();
    let gaps = |tensor| it.gaps(tensor).into_iter().map(|gap| (gap.first.0, gap.next_use.0, gap.wraps, it.gap_ns(gap)));
    assert_eq!(gaps(ACTIVATION).collect::<Vec<_>>(), [(1, 2, false, 3)]);
    assert_eq!(
        gaps(WEIGHT).collect::<Vec<_>>(),
        [(1, 3, false, 12)],
        "used by the last and the first kernel: no gap around the end"
    );
    assert_eq!(gaps(GRADIENT).count(), 0);

    let mut idle = draft();
    idle.kernels.insert(0, kernel("load", 4, &[], &[]));
    idle.kernels.push(kernel("log", 6, &[], &[]));
    let idle = idle.check().unwrap();
    let wrapping = *idle.gaps(WEIGHT).last().unwrap();
    assert_eq!((wrapping.first.0, wrapping.next_use.0, wrapping.wraps, idle.gap_ns(wrapping)), (5, 1, true, 10));
}

#[test]
fn a_tensor_changed_in_place_is_one_operand() {
    let it = iteration();
    let operands =
        [Operand { tensor: GRADIENT, access: Access::Read }, Operand { tensor: WEIGHT, access: Access::ReadWrite }];
    assert_eq!(it.operands(KernelId(3)), operands);
    assert_eq!(it.uses(WEIGHT).iter().map(|of| of.kernel.0).collect::<Vec<_>>(), [0, 3]);
}

#[test]
fn an_iteration_round_trips_through_json() {
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
fn an_invalid_draft_is_rejected_with_the_reason() {
    let rejection = |change: fn(&mut Draft)| {
        let mut wrong = draft();
        change(&mut wrong);
        wrong.check().unwrap_err()
    };
    assert_eq!(rejection(|draft| draft.kernels.clear()), Invalid::NoKernels);
    assert_eq!(rejection(|draft| draft.tensors[1].bytes = 0), Invalid::EmptyTensor { tensor: ACTIVATION });
    assert_eq!(rejection(|draft| draft.tensors[1].bytes = MAX_TOTAL), Invalid::TooManyBytes);
    assert_eq!(rejection(|draft| draft.kernels[1].duration_ns = MAX_TOTAL), Invalid::TooLong);
    assert_eq!(
        rejection(|draft| draft.tensors[3].persistent = true),
        Invalid::PersistentWorkspace { tensor: WORKSPACE }
    );
    let (tensor, kernel) = (WORKSPACE, KernelId(3));
    assert_eq!(
        rejection(|draft| draft.kernels[3].outputs.push(WORKSPACE)),
        Invalid::SharedWorkspace { tensor, kernel }
    );
    assert_eq!(rejection(|draft| draft.kernels[3].inputs.push(WORKSPACE)), Invalid::WorkspaceRead { tensor, kernel });
    let unknown = rejection(|draft| draft.kernels[0].inputs.push(TensorId(4)));
    assert_eq!(unknown.to_string(), "kernel 0 refers to unknown tensor 4; number of tensors: 4");
}

#[test]
fn locations_are_of_all_tensors_and_within_allocations() {
    let at = |address, allocation_bytes| Location { address, allocation_address: 4096, allocation_bytes };
    let rejection = |locations: Vec<Location>| Draft { locations, ..draft() }.check().unwrap_err();
    assert_eq!(rejection(vec![at(4096, 100)]), Invalid::Locations { locations: 1, tensors: 4 });
    for wrong in [at(4095, 200), at(4097, 100), at(u64::MAX, 100), at(4096, u64::MAX), at(4096, MAX_TOTAL)] {
        let locations = vec![wrong, at(4096, 100), at(4096, 100), at(4096, 100)];
        assert_eq!(rejection(locations), Invalid::OutsideAllocation { tensor: WEIGHT });
    }
    let locations = vec![at(4096, 300), at(4196, 300), at(4206, 300), at(4306, 300)];
    let iteration = Draft { locations: locations.clone(), ..draft() }.check().unwrap();
    assert_eq!(iteration.locations().unwrap().values(), locations);
    assert_eq!(Draft::from(iteration).locations, locations);
    assert_eq!(draft().check().unwrap().locations(), None);
}

#[test]
fn bytes_and_durations_add_up_to_2_to_the_62_at_most() {
    let draft = |bytes, duration_ns| Draft {
        tensors: vec![Tensor { name: String::new(), bytes, role: Role::Other, persistent: true }],
        kernels: vec![DraftKernel { duration_ns, inputs: vec![TensorId(0)], ..DraftKernel::default() }],
        ..Draft::default()
    };
    assert!(draft(MAX_TOTAL, MAX_TOTAL).check().is_ok());
    for (bytes, duration_ns, reason) in [
        (MAX_TOTAL + 1, 1, Invalid::TooManyBytes),
        (u64::MAX, 1, Invalid::TooManyBytes),
        (1, MAX_TOTAL + 1, Invalid::TooLong),
        (1, u64::MAX, Invalid::TooLong),
    ] {
        assert_eq!(draft(bytes, duration_ns).check().unwrap_err(), reason);
    }
}

/// Stream with one permanent block, then `iterations` of two blocks each, the second of which is
/// freed in the next iteration. Keys are 1, 2, and from 10 on.
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
        recorder.sync(next(), SyncKind::Copy).unwrap();
    }
    recorder.finish()
}

#[test]
fn a_block_that_is_freed_an_iteration_later_crosses_on_the_circle() {
    let circle = Circle::of_ops(&stream(4), Window { first_malloc: 3, mallocs: 2 }, Alignment::NONE).unwrap();
    let span = |source, bytes, start, length| Span { source, bytes, start, length, copies: 1 };
    // The second block lives for three mallocs, and an iteration has two, so the circle has two
    // iterations.
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
fn small_and_large_sizes_are_rounded_up_differently() {
    let round = |bytes| Alignment::UVM.round(bytes);
    assert_eq!([round(1), round(513), round((1 << 20) - 1), round((1 << 20) + 1)], [512, 1024, 1 << 20, 2 << 20]);
}

#[test]
fn a_circle_outside_the_trace_is_rejected() {
    let of = |first_malloc, mallocs| Circle::of_ops(&stream(4), Window { first_malloc, mallocs }, Alignment::NONE);
    assert!(of(8, 2).is_err());
    assert!(of(0, 0).is_err());
    assert!(of(usize::MAX, 2).is_err());
    assert!(Circle::of_intervals([(7, 5, 5, 1)]).is_err());
}

#[test]
fn a_stream_round_trips_through_json() {
    let stream = stream(3);
    let json = serde_json::to_string(&stream).unwrap();
    assert!(json.contains(r#"{"time_ns":0,"malloc":0}"#), "{json}");
    assert!(json.ends_with(r#""sync":"copy"}]}"#), "{json}");
    assert_eq!(serde_json::from_str::<OpStream>(&json).unwrap(), stream);
}

#[test]
fn impossible_ops_are_rejected() {
    let mut recorder = Recorder::default();
    let block = Block { bytes: 8, address: None };
    recorder.malloc(5, 1, block.clone()).unwrap();
    assert_eq!(recorder.malloc(6, 1, block.clone()), Err(ops::Invalid::AllocatedTwice { key: 1 }));
    assert_eq!(recorder.free(6, 2), Err(ops::Invalid::NotAllocated { key: 2 }));
    assert_eq!(recorder.free(4, 1), Err(ops::Invalid::TimeDecreases { before_ns: 5, time_ns: 4 }));
    assert_eq!(recorder.malloc(6, 2, Block { bytes: 0, address: None }), Err(ops::Invalid::EmptyBlock));
    recorder.free(6, 1).unwrap();
    assert_eq!(recorder.read(7, 1), Err(ops::Invalid::NotAllocated { key: 1 }));
    let stream = recorder.finish();
    assert_eq!(stream.ops().values().last(), Some(&Op { time_ns: 6, kind: OpKind::Free(trace::BlockId(0)) }));
    assert_eq!(stream.live_bytes().values(), [8, 0]);
}
