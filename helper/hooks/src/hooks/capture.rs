//! Captures of streams, which make graphs of what is submitted to them.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::Kind;

use crate::{
    cuda::{CuResult, Handle},
    program::read,
    real::hooks,
    recorder::{named_stream, recording},
};

fn begins(result: CuResult) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        recorder.count_capture(1);
    }
    result
}

hooks! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz = fn(stream: Handle) |real, per_thread| {
        begins(real())
    }

    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz = fn(stream: Handle, mode: u32) |real, per_thread| {
        begins(real())
    }

    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz = fn(stream: Handle, graph: Handle, dependencies: *const Handle, edges: *const u8, count: usize, mode: u32)
        |real, per_thread|
    {
        begins(real())
    }

    cuStreamEndCapture / cuStreamEndCapture_ptsz = fn(stream: Handle, graph: *mut Handle) |real, per_thread| {
        let result = real();
        // One that failed has ended, too.
        if let Some(recorder) = recording() {
            recorder.count_capture(-1);
            if result.is_ok()
                && let Some(graph) = read(graph)
            {
                recorder.record(Kind::GraphCaptured, 0, [named_stream(stream, per_thread), graph, 0, 0, 0]);
            }
        }
        result
    }
}
