//! Synchronisation calls of the program: boundaries of its iterations.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, SyncKind};

use crate::{
    cuda::{CuResult, Handle},
    real::hooks,
    recorder::{record_success, unique_stream},
};

fn record_sync(result: CuResult, kind: SyncKind, handle: Handle) -> CuResult {
    record_success(result, |recorder| recorder.record(Kind::Sync, 0, [handle, kind as u64, 0, 0, 0]))
}

hooks! {
    cuCtxSynchronize = fn() |real, per_thread| {
        record_sync(real(), SyncKind::Context, 0)
    }

    cuCtxSynchronize_v2 = fn(context: Handle) |real, per_thread| {
        record_sync(real(), SyncKind::Context, 0)
    }

    cuStreamSynchronize / cuStreamSynchronize_ptsz = fn(stream: Handle) |real, per_thread| {
        record_sync(real(), SyncKind::Stream, unique_stream(stream, per_thread))
    }

    cuEventSynchronize = fn(event: Handle) |real, per_thread| {
        record_sync(real(), SyncKind::Event, event)
    }
}
