//! Traces, in every format that the offline commands read.
//!
//! Input: number of a format, and a text in it; the second of G10's two texts follows
//! [`SEPARATOR`]. A valid trace can be planned with: it has a circle of blocks, and round-trips in
//! the native format.

use std::path::Path;

use trace::{Alignment, Circle, Detector, Iteration, IterationWindow, Lives, OpStream, circle::Window};
use trace_sources::import::{g10, kineto, minimalloc, singa};

const SEPARATOR: &[u8] = b"\n%%\n";

pub(super) fn run(input: &[u8]) {
    let Some((form, text)) = input.split_first() else { return };
    let path = Path::new("input");
    match form {
        b'g' => {
            let (tensors, kernels) = super::split_once(text, SEPARATOR);
            if let Ok(set) = g10::parse((path, tensors), (path, kernels.unwrap_or_default())) {
                check_iteration(&set.iteration);
                assert_eq!(set.faulting.len(), set.iteration.kernels().len());
                assert_eq!(set.address_offset_bytes.len(), set.iteration.tensors().len());
            }
        }
        b't' => drop(g10::parse_times(path, text)),
        b'l' => drop(singa::parse_log(path, text).map(|stream| check_stream(&stream))),
        b'o' => {
            let (ops, busy) = super::split_once(text, SEPARATOR);
            let busy = singa::parse_busy(path, busy.unwrap_or_default()).unwrap_or_default();
            drop(singa::parse_ops(path, ops, &busy).map(|stream| check_stream(&stream)));
        }
        b'c' => drop(singa::parse_card(path, text)),
        b'k' => drop(kineto::parse(path, text, None).map(|run| check_stream(&run.stream))),
        b'm' => drop(minimalloc::parse(path, text).map(|circle| check_circle(&circle))),
        b'i' => drop(serde_json::from_slice(text).map(|iteration| check_iteration(&iteration))),
        b's' => drop(serde_json::from_slice(text).map(|stream| check_stream(&stream))),
        _ => {}
    }
}

fn check_iteration(iteration: &Iteration) {
    let written = serde_json::to_vec(iteration).expect("it has text keys");
    assert_eq!(serde_json::from_slice::<Iteration>(&written).expect("what was written reads"), *iteration);
    assert!(iteration.peak().bytes <= iteration.total_bytes());
    assert!(iteration.persistent_bytes() <= iteration.peak().bytes);
    if let Ok(circle) = Circle::of_iteration(iteration, Alignment::NONE) {
        check_circle(&circle);
        assert_eq!(circle.peak_bytes() + circle.persistent_bytes, iteration.peak().bytes);
    }
}

fn check_stream(stream: &OpStream) {
    let written = serde_json::to_vec(stream).expect("it has text keys");
    assert_eq!(serde_json::from_slice::<OpStream>(&written).expect("what was written reads"), *stream);
    let lock = Detector::default().observe(stream).into_iter().rev().find_map(|(_, state)| state.lock());
    // Window of a user's choice: of the first mallocs.
    let window = lock.and_then(|lock| lock.window()).unwrap_or(Window { first_malloc: 0, mallocs: 2 });
    if let Ok(circle) = Circle::of_ops(stream, window, Alignment::UVM) {
        check_circle(&circle);
    }
    for lives in [Lives::Allocated, Lives::Used] {
        for window in [Some(IterationWindow::from(window)), lock.and_then(|lock| lock.iteration_window())].into_iter().flatten() {
            if let Ok(iteration) = Iteration::of_ops(stream, window, lives) {
                check_iteration(&iteration);
            }
        }
    }
}

fn check_circle(circle: &Circle) {
    let largest = circle.spans.iter().map(|span| span.bytes).max().unwrap_or_default();
    assert!(circle.peak_bytes() >= largest);
    for span in &circle.spans {
        assert!(span.start < circle.period && (1..=circle.period).contains(&span.length), "{span:?}");
    }
}
