//! Captures of streams, which make graphs of what is submitted to them.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::Kind;

use crate::{
    cuda::{CuResult, Handle},
    driver,
    program::read,
    real::hooks,
    recorder::{after, named_default, recording},
};

fn begins(result: CuResult) -> CuResult {
    after(result, |recorder| recorder.count_capture(1))
}

hooks! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz = fn(stream: Handle) |real, per_thread| {
        begins(real())
    }

    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz = fn(stream: Handle, mode: u32) |real, per_thread| {
        begins(real())
    }

    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz = fn(
        stream: Handle, graph: Handle, dependencies: *const Handle, edges: *const u8, count: usize, mode: u32,
    ) |real, per_thread| {
        begins(real())
    }

    cuStreamEndCapture / cuStreamEndCapture_ptsz = fn(stream: Handle, graph: *mut Handle) |real, per_thread| {
        let Some(recorder) = recording() else { return real() };
        let capture = driver::capture(named_default(stream, per_thread));
        let result = real();
        if let Some(capture) = capture {
            // One that failed has ended, too.
            recorder.count_capture(-1);
            if let Some(graph) = read(graph).filter(|_| result.is_ok()) {
                recorder.record(Kind::GraphCaptured, 0, [0, capture, graph, 0, 0]);
            }
        }
        result
    }
}
