//! Synchronisation calls of the program: boundaries of its iterations.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, SyncKind};

use crate::{
    cuda::{CuResult, Handle},
    real::hooks,
    recorder::{after, named_stream},
};

fn waits(result: CuResult, kind: SyncKind, handle: Handle) -> CuResult {
    after(result, |recorder| recorder.record(Kind::Sync, 0, [handle, kind as u64, 0, 0, 0]))
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
