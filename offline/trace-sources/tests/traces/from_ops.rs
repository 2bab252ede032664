//! Conversion of streams of operations to iterations.

use crate::support;

use trace::{
    Detector, Iteration, KernelId, Lives, OpStream, Recorder, circle::Window, detect::State, from_ops::ConversionError,
    ops::Block,
};
use trace_sources::import::singa;

/// Stream of a permanent weight and three iterations of 100 ns, with two blocks each: one used at
/// once and freed late, and one used in the next iteration.
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
    let names = ["malloc", "write", "read", "free", "free", "read", "malloc", "write"];
    let mut expected: Vec<_> = names.map(|name| (name, 10)).to_vec();
    expected[4].1 = 10;
    expected[7].1 = 30;
    assert_eq!(kernels, expected);
    assert_eq!(it.duration_ns(), 100);
}

#[test]
fn a_block_carried_into_the_next_iteration_is_one_persistent_tensor() {
    let it = Iteration::of_ops(&stream(), SECOND, Lives::Used).unwrap();
    assert_eq!(it.persistent_bytes(), 1005, "the weight and the carried block");
    let carried = it.tensors().iter().find(|(_, tensor)| tensor.bytes == 5).map(|(id, _)| id);
    let uses: Vec<_> = it.uses(carried.unwrap()).iter().map(|of| of.kernel).collect();
    assert_eq!(uses, [KernelId(2), KernelId(7)], "the read of the old block and the write of the new one");
}

#[test]
fn a_block_lives_until_its_last_use_or_its_free_by_the_chosen_definition() {
    let peak = |lives| Iteration::of_ops(&stream(), SECOND, lives).unwrap().peak().bytes;
    assert_eq!(peak(Lives::Used), 1005 + 30);
    assert_eq!(peak(Lives::Allocated), 1005 + 2 * 30, "the block of the previous iteration is freed late");
}

#[test]
fn a_stream_without_uses_or_a_window_outside_it_is_rejected() {
    let of = |window| Iteration::of_ops(&stream(), window, Lives::Used);
    assert!(matches!(of(Window { first_malloc: 6, mallocs: 2 }), Err(ConversionError::OutsideTrace { .. })));
    let log = singa::load_log(&support::sample("memory.log")).unwrap();
    let none = Iteration::of_ops(&log, Window { first_malloc: 0, mallocs: 1 }, Lives::Used);
    assert_eq!(none, Err(ConversionError::NoUses));
}

#[test]
fn an_iteration_of_the_published_op_trace_has_the_live_bytes_of_its_program() {
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
        let begin = window_begin(&stream, window);
        let peak = live.values()[begin..begin + ops].iter().max().unwrap();
        let bytes = allocated.live_bytes();
        let mut pairs = live.values()[begin..begin + ops].iter().zip(&bytes.values()[1..]);
        assert!(pairs.all(|(live, own)| own >= live), "iteration {iteration}: at least the live bytes of the stream");
        assert!(allocated.peak().bytes < peak + peak / 10, "iteration {iteration}: at most a tenth more at the peak");
        // The peak of used bytes is constant. Other allocated bytes wait until Python frees them.
        assert_eq!(used.peak().bytes >> 20, 522, "MiB in iteration {iteration}");
    }
}

/// Number of the operation at which a window begins.
fn window_begin(stream: &OpStream, window: Window) -> usize {
    let mallocs = stream.ops().values().iter().enumerate();
    let mut mallocs = mallocs.filter(|(_, op)| matches!(op.kind, trace::OpKind::Malloc(_)));
    mallocs.nth(window.first_malloc).map_or(0, |(at, _)| at)
}
