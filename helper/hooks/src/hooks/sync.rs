//! Waits of the program: boundaries of its iterations.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, SyncKind};

use crate::{
    cuda::{CuResult, Handle},
    real::hooks,
    recorder::{named_stream, recording},
};

fn waits(result: CuResult, kind: SyncKind, handle: Handle) -> CuResult {
    if result.is_ok()
        && let Some(recorder) = recording()
    {
        recorder.record(Kind::Sync, 0, [handle, kind as u64, 0, 0, 0]);
    }
    result
}

hooks! {
    cuCtxSynchronize = fn() |real, per_thread| {
        waits(real(), SyncKind::Context, 0)
    }

    cuStreamSynchronize / cuStreamSynchronize_ptsz = fn(stream: Handle) |real, per_thread| {
        waits(real(), SyncKind::Stream, named_stream(stream, per_thread))
    }

    cuEventSynchronize = fn(event: Handle) |real, per_thread| {
        waits(real(), SyncKind::Event, event)
    }
}
