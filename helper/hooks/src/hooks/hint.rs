//! The program's own prefetches and advice.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, kind::ASYNCHRONOUS};

use crate::{
    cuda::{CuResult, Handle, Location},
    parts::Range,
    program::read_at,
    program_advice::Subject,
    real::hooks,
    recorder::{enter_gate, record_success, recording, unique_stream},
};

/// A device number as a word.
const fn word(device: i32) -> u64 {
    device.cast_unsigned() as u64
}

fn record_prefetch(result: CuResult, address: u64, bytes: usize, to: i32, stream: Handle) -> CuResult {
    record_success(result, |recorder| {
        recorder.record(Kind::Prefetch, ASYNCHRONOUS, [stream, address, bytes as u64, word(to), 0]);
    })
}

/// Records advice. Its entry is added before the driver call, and removed only after a call that
/// has removed the advice, so that uvmd gives no advice in between. The entry remains if the call
/// fails.
fn advise(real: impl FnOnce() -> CuResult, address: u64, bytes: usize, advice: u32, to: i32) -> CuResult {
    let Some((recorder, _call)) = enter_gate() else { return real() };
    let range = Range::new(address, bytes as u64);
    let (subject, is_set) = Subject::of(advice, to);
    let mut is_tracked = !is_set || recorder.program_advice.insert(range, subject);
    let result = real();
    if !is_set && result.is_ok() {
        is_tracked = recorder.program_advice.remove(range, Some(subject));
    }
    if !is_tracked {
        recorder.count_unrecorded();
    }
    record_success(result, |recorder| {
        recorder.record(Kind::Advise, 0, [0, address, bytes as u64, advice.into(), word(to)]);
    })
}

hooks! {
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz = fn(
        address: u64, bytes: usize, device: i32, stream: Handle,
    ) |real, per_thread| {
        record_prefetch(real(), address, bytes, device, unique_stream(stream, per_thread))
    }

    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = fn(
        address: u64, bytes: usize, to: Location, flags: u32, stream: Handle,
    ) |real, per_thread| {
        record_prefetch(real(), address, bytes, to.device(), unique_stream(stream, per_thread))
    }

    cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz = fn(
        addresses: *const u64, sizes: *const usize, count: usize, locations: *const Location,
        location_begins: *const usize, location_count: usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        let result = real();
        if result.is_ok() && recording().is_some() {
            let mut location = 0;
            for at in 0..count {
                // Each location applies from the range at the index `location_begins` on.
                while location + 1 < location_count
                    && read_at(location_begins, location + 1).is_some_and(|begin| begin <= at)
                {
                    location += 1;
                }
                if let (Some(address), Some(bytes), Some(to)) =
                    (read_at(addresses, at), read_at(sizes, at), read_at(locations, location))
                {
                    record_prefetch(result, address, bytes, to.device(), unique_stream(stream, per_thread));
                }
            }
        }
        result
    }

    cuMemAdvise = fn(address: u64, bytes: usize, advice: u32, device: i32) |real, per_thread| {
        advise(real, address, bytes, advice, device)
    }

    cuMemAdvise_v2 = fn(address: u64, bytes: usize, advice: u32, to: Location) |real, per_thread| {
        advise(real, address, bytes, advice, to.device())
    }
}
