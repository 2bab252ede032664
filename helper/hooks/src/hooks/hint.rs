//! The program's own prefetches and advice.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, kind::ASYNCHRONOUS};

use crate::{
    advised::Subject,
    cuda::{CuResult, Handle, Location},
    parts::Range,
    program::read_at,
    real::hooks,
    recorder::{after, at_gate, named_stream, recording},
};

/// A device number as a word.
const fn word(device: i32) -> u64 {
    device.cast_unsigned() as u64
}

fn prefetches(result: CuResult, address: u64, bytes: usize, to: i32, stream: Handle) -> CuResult {
    after(result, |recorder| {
        recorder.record(Kind::Prefetch, ASYNCHRONOUS, [stream, address, bytes as u64, word(to), 0]);
    })
}

/// Records advice. Its entry is added before the driver call, and removed only after a call that
/// has removed the advice, so that uvmd gives no advice in between. The entry remains if the call
/// fails.
fn advises(real: impl FnOnce() -> CuResult, address: u64, bytes: usize, advice: u32, to: i32) -> CuResult {
    let Some((recorder, _call)) = at_gate() else { return real() };
    let range = Range::new(address, bytes as u64);
    let (subject, is_set) = Subject::of(advice, to);
    let mut is_noted = !is_set || recorder.advised.note(range, subject);
    let result = real();
    if !is_set && result.is_ok() {
        is_noted = recorder.advised.forget(range, Some(subject));
    }
    if !is_noted {
        recorder.count_unrecorded();
    }
    after(result, |recorder| recorder.record(Kind::Advise, 0, [0, address, bytes as u64, advice.into(), word(to)]))
}

hooks! {
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz = fn(
        address: u64, bytes: usize, device: i32, stream: Handle,
    ) |real, per_thread| {
        prefetches(real(), address, bytes, device, named_stream(stream, per_thread))
    }

    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = fn(
        address: u64, bytes: usize, to: Location, flags: u32, stream: Handle,
    ) |real, per_thread| {
        prefetches(real(), address, bytes, to.device(), named_stream(stream, per_thread))
    }

    cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz = fn(
        addresses: *const u64, sizes: *const usize, count: usize, places: *const Location,
        place_begins: *const usize, place_count: usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        let result = real();
        if result.is_ok() && recording().is_some() {
            let mut place = 0;
            for at in 0..count {
                // Each location applies from the range at the index `place_begins` on.
                while place + 1 < place_count && read_at(place_begins, place + 1).is_some_and(|begin| begin <= at) {
                    place += 1;
                }
                if let (Some(address), Some(bytes), Some(to)) =
                    (read_at(addresses, at), read_at(sizes, at), read_at(places, place))
                {
                    prefetches(result, address, bytes, to.device(), named_stream(stream, per_thread));
                }
            }
        }
        result
    }

    cuMemAdvise = fn(address: u64, bytes: usize, advice: u32, device: i32) |real, per_thread| {
        advises(real, address, bytes, advice, device)
    }

    cuMemAdvise_v2 = fn(address: u64, bytes: usize, advice: u32, to: Location) |real, per_thread| {
        advises(real, address, bytes, advice, to.device())
    }
}
