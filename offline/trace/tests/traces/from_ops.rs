//! Iterations out of streams of operations.

use crate::support;

use trace::{
    Detector, Iteration, KernelId, Lives, OpStream, Recorder, circle::Window, detect::State, from_ops::NoIteration,
    import::singa, ops::Block,
};

/// A weight that stays; then, in each of three iterations of 100 ns: a block that is used at once, freed late, and one that is used in the next iteration.
fn stream() -> OpStream {
    let mut recorder = Recorder::default();
    let block = |bytes| Block { bytes, address: None };
    let result: Result<_, trace::ops::Invalid> = (|| {
        recorder.malloc(0, 1, block(1000))?;
        for iteration in 1..=3 {
            let at = |ns: u64| iteration * 100 + ns;
            let (late, carried) = (10 + iteration, 20 + iteration);
            recorder.malloc(at(0), late, block(30))?;
            recorder.write(at(10), late)?;
            if iteration > 1 {
                recorder.read(at(20), carried - 1)?;
                recorder.free(at(30), carried - 1)?;
                recorder.free(at(40), late - 1)?;
            }
            recorder.read(at(50), 1)?;
            recorder.malloc(at(60), carried, block(5))?;
            recorder.write(at(70), carried)?;
        }
        Ok(recorder.finish())
    })();
    result.unwrap()
}

const SECOND: Window = Window { first_malloc: 3, mallocs: 2 };

#[test]
fn each_use_is_a_kernel_and_lasts_until_the_next_operation() {
    let it = Iteration::of_ops(&stream(), SECOND, Lives::Used).unwrap();
    let kernels: Vec<_> =
        it.kernels().values().iter().map(|kernel| (kernel.name.as_str(), kernel.duration_ns)).collect();
    let ten = ["malloc", "write", "read", "free", "free", "read", "malloc", "write"];
    let mut expected: Vec<_> = ten.map(|name| (name, 10)).to_vec();
    expected[4].1 = 10;
    expected[7].1 = 30;
    assert_eq!(kernels, expected);
    assert_eq!(it.duration_ns(), 100);
}

#[test]
fn what_is_carried_into_the_next_iteration_is_one_persistent_tensor() {
    let it = Iteration::of_ops(&stream(), SECOND, Lives::Used).unwrap();
    assert_eq!(it.persistent_bytes(), 1005, "the weight and the block that is carried");
    let carried = it.tensors().iter().find(|(_, tensor)| tensor.bytes == 5).map(|(id, _)| id);
    let uses: Vec<_> = it.uses(carried.unwrap()).iter().map(|of| of.kernel).collect();
    assert_eq!(uses, [KernelId(2), KernelId(7)], "read as it came, and written again");
}

#[test]
fn a_block_lives_until_its_last_use_or_until_it_is_freed_as_is_asked_for() {
    let peak = |lives| Iteration::of_ops(&stream(), SECOND, lives).unwrap().peak().bytes;
    assert_eq!(peak(Lives::Used), 1005 + 30);
    assert_eq!(peak(Lives::Allocated), 1005 + 2 * 30, "that of the iteration before is freed late");
}

#[test]
fn a_stream_without_uses_or_without_such_mallocs_gives_no_iteration() {
    let of = |window| Iteration::of_ops(&stream(), window, Lives::Used);
    assert!(matches!(of(Window { first_malloc: 6, mallocs: 2 }), Err(NoIteration::OutsideTrace { .. })));
    let log = singa::load_log(&support::sample("memory.log")).unwrap();
    let none = Iteration::of_ops(&log, Window { first_malloc: 0, mallocs: 1 }, Lives::Used);
    assert_eq!(none, Err(NoIteration::NoUses));
}

#[test]
fn an_iteration_of_the_published_op_trace_has_the_bytes_that_its_program_had() {
    let Some(data) = published::data() else { return };
    let singa_data = data.join("singa");
    let busy = singa::load_busy(&singa_data.join("cifar10-vgg.swap-overhead.log.gz")).unwrap();
    let stream = singa::load_ops(&singa_data.join("cifar10-vgg.vec_block_full.csv.gz"), &busy).unwrap();
    let mut detector = Detector::default();
    detector.observe(&stream);
    let State::Locked(lock) = detector.state() else { panic!("{:?}", detector.state()) };
    let live = stream.live_bytes();
    for iteration in 0..10 {
        let window = lock.window().unwrap();
        let window = Window { first_malloc: window.first_malloc + iteration * window.mallocs, ..window };
        let [allocated, used] =
            [Lives::Allocated, Lives::Used].map(|lives| Iteration::of_ops(&stream, window, lives).unwrap());
        let ops = allocated.kernels().len() - 2;
        let begin = trace_begin(&stream, window);
        let peak = live.values()[begin..begin + ops].iter().max().unwrap();
        let bytes = allocated.live_bytes();
        let mut beside = live.values()[begin..begin + ops].iter().zip(&bytes.values()[1..]);
        assert!(beside.all(|(live, own)| own >= live), "iteration {iteration}: never less than there was");
        assert!(allocated.peak().bytes < peak + peak / 10, "iteration {iteration}: and not much more");
        // Always the same; what is allocated besides waits for Python to drop it.
        assert_eq!(used.peak().bytes >> 20, 522, "MiB in iteration {iteration}");
    }
}

/// The operation at which a stretch begins.
fn trace_begin(stream: &OpStream, window: Window) -> usize {
    let mallocs = stream.ops().values().iter().enumerate();
    let mut mallocs = mallocs.filter(|(_, op)| matches!(op.kind, trace::OpKind::Malloc(_)));
    mallocs.nth(window.first_malloc).map_or(0, |(at, _)| at)
}
