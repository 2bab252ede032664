//! Stream captures, which record submitted work as graphs.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::Kind;

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{current, resolve_default_stream},
};

/// Counts a capture, in any mode: calls may be recorded by the time it ends.
fn count_capture(result: CuResult) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = current()
    {
        recorder.on_capture_begin();
    }
    result
}

hooks! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz = fn(stream: Handle) |real, per_thread| {
        count_capture(real())
    }

    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz = fn(stream: Handle, mode: u32) |real, per_thread| {
        count_capture(real())
    }

    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz = fn(
        stream: Handle, graph: Handle, dependencies: *const Handle, edges: *const u8, count: usize, mode: u32,
    ) |real, per_thread| {
        count_capture(real())
    }

    cuStreamBeginRecaptureToGraph / cuStreamBeginRecaptureToGraph_ptsz = fn(
        stream: Handle, mode: u32, graph: Handle, callback: *const u8, data: *const u8,
    ) |real, per_thread| {
        count_capture(real())
    }

    cuStreamEndCapture / cuStreamEndCapture_ptsz = fn(stream: Handle, graph: *mut Handle) |real, per_thread| {
        let Some(recorder) = current() else { return real() };
        let stream = resolve_default_stream(stream, per_thread);
        let capture = driver::capture_id(stream);
        let result = real();
        if let Some(capture) = capture {
            // Some captures continue after a failed end.
            if driver::capture_id(stream) != Some(capture) {
                recorder.on_capture_end();
            }
            if result.is_ok()
                && recorder.is_recording()
                && let Some(graph) = read(graph)
            {
                recorder.record(Kind::GraphCaptured, 0, [0, capture, graph, 0, 0]);
            }
        }
        result
    }
}
