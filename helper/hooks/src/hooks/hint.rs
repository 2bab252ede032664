//! The program's own prefetches, discards and advice.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, kind::ASYNCHRONOUS};

use crate::{
    cuda::{CuResult, Handle, Location},
    parts::Range,
    program::read_at,
    program_advice::Subject,
    real::hooks,
    recorder::{Recorder, enter_gate, record_success, recording, unique_stream},
};

/// Words of a location: device, and host node plus 1 or 0.
const fn words(to: Location) -> [u64; 2] {
    let node = match to.host_node() {
        Some(node) => node as u64 + 1,
        None => 0,
    };
    [to.device().cast_unsigned() as u64, node]
}

fn record_prefetch(result: CuResult, address: u64, bytes: usize, to: Location, stream: Handle) -> CuResult {
    record_success(result, |recorder| {
        let [device, node] = words(to);
        recorder.record(Kind::Prefetch, ASYNCHRONOUS, [stream, address, bytes as u64, device, node]);
    })
}

/// Arrays of a call for several ranges.
#[derive(Clone, Copy, Debug)]
struct Batch {
    addresses: *const u64,
    sizes: *const usize,
    count: usize,
}

impl Batch {
    fn get(self, at: usize) -> Option<(u64, usize)> {
        Some((read_at(self.addresses, at)?, read_at(self.sizes, at)?))
    }

    /// Records the discard of all ranges.
    fn record_discards(self, result: CuResult, stream: Handle) -> CuResult {
        record_success(result, |recorder| {
            for (address, bytes) in (0..self.count).filter_map(|at| self.get(at)) {
                recorder.record(Kind::Discard, ASYNCHRONOUS, [stream, address, bytes as u64, 0, 0]);
            }
        })
    }

    /// Records prefetches of all ranges. Each location applies from the range at its index in
    /// `begins` on.
    fn record_prefetches(
        self,
        result: CuResult,
        locations: *const Location,
        begins: *const usize,
        location_count: usize,
        stream: Handle,
    ) -> CuResult {
        if !result.is_ok() || recording().is_none() {
            return result;
        }
        let mut location = 0;
        for at in 0..self.count {
            while location + 1 < location_count && read_at(begins, location + 1).is_some_and(|begin| begin <= at) {
                location += 1;
            }
            if let (Some((address, bytes)), Some(to)) = (self.get(at), read_at(locations, location)) {
                record_prefetch(result, address, bytes, to, stream);
            }
        }
        result
    }
}

/// Records advice. Its entry is added before the driver call, and removed only after a call that
/// has removed the advice, so that uvmd gives no advice in between. The entry remains if the call
/// fails.
fn advise(real: impl FnOnce() -> CuResult, address: u64, bytes: usize, advice: u32, to: Location) -> CuResult {
    let Some((recorder, _call)) = enter_gate() else { return real() };
    let (subject, is_set) = Subject::of(advice, to.device());
    let result = track(recorder, real, Range::new(address, bytes as u64), subject, is_set);
    record_success(result, |recorder| {
        let [device, node] = words(to);
        recorder.record(Kind::Advise, 0, [node, address, bytes as u64, advice.into(), device]);
    })
}

/// Makes a call that sets or removes advice or an attachment, and updates the table of the program's
/// advice.
fn track(
    recorder: &Recorder,
    real: impl FnOnce() -> CuResult,
    range: Range,
    subject: Subject,
    is_set: bool,
) -> CuResult {
    let mut is_tracked = !is_set || recorder.program_advice.insert(range, subject);
    let result = real();
    if !is_set && result.is_ok() {
        is_tracked = recorder.program_advice.remove(range, Some(subject));
    }
    if !is_tracked {
        recorder.count_unrecorded();
    }
    result
}

/// Attaches managed memory to a stream, which alone may access it then, to the host alone, or to all
/// streams again. uvmd does not act on memory of a stream or of the host. Size 0 means the whole
/// allocation.
fn attach(real: impl FnOnce() -> CuResult, address: u64, bytes: usize, flags: u32) -> CuResult {
    const GLOBAL: u32 = 1;
    let Some((recorder, _call)) = enter_gate() else { return real() };
    let range = match recorder.blocks.next_managed(address) {
        Ok(Some(block)) if bytes == 0 && block.begin <= address => Range { begin: block.begin, end: block.end },
        _ => Range::new(address, bytes.max(1) as u64),
    };
    track(recorder, real, range, Subject::ATTACHMENT, flags & GLOBAL == 0)
}

hooks! {
    cuMemPrefetchAsync / cuMemPrefetchAsync_ptsz = fn(
        address: u64, bytes: usize, device: i32, stream: Handle,
    ) |real, per_thread| {
        record_prefetch(real(), address, bytes, Location::from_device(device), unique_stream(stream, per_thread))
    }

    cuMemPrefetchAsync_v2 / cuMemPrefetchAsync_v2_ptsz = fn(
        address: u64, bytes: usize, to: Location, flags: u32, stream: Handle,
    ) |real, per_thread| {
        record_prefetch(real(), address, bytes, to, unique_stream(stream, per_thread))
    }

    cuMemPrefetchBatchAsync / cuMemPrefetchBatchAsync_ptsz = fn(
        addresses: *const u64, sizes: *const usize, count: usize, locations: *const Location,
        location_begins: *const usize, location_count: usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        let batch = Batch { addresses, sizes, count };
        let stream = unique_stream(stream, per_thread);
        batch.record_prefetches(real(), locations, location_begins, location_count, stream)
    }

    cuMemDiscardBatchAsync / cuMemDiscardBatchAsync_ptsz = fn(
        addresses: *const u64, sizes: *const usize, count: usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        let batch = Batch { addresses, sizes, count };
        batch.record_discards(real(), unique_stream(stream, per_thread))
    }

    cuMemDiscardAndPrefetchBatchAsync / cuMemDiscardAndPrefetchBatchAsync_ptsz = fn(
        addresses: *const u64, sizes: *const usize, count: usize, locations: *const Location,
        location_begins: *const usize, location_count: usize, flags: u64, stream: Handle,
    ) |real, per_thread| {
        let batch = Batch { addresses, sizes, count };
        let stream = unique_stream(stream, per_thread);
        let result = batch.record_discards(real(), stream);
        batch.record_prefetches(result, locations, location_begins, location_count, stream)
    }

    cuStreamAttachMemAsync / cuStreamAttachMemAsync_ptsz = fn(
        stream: Handle, address: u64, bytes: usize, flags: u32,
    ) |real, per_thread| {
        attach(real, address, bytes, flags)
    }

    cuMemAdvise = fn(address: u64, bytes: usize, advice: u32, device: i32) |real, per_thread| {
        advise(real, address, bytes, advice, Location::from_device(device))
    }

    cuMemAdvise_v2 = fn(address: u64, bytes: usize, advice: u32, to: Location) |real, per_thread| {
        advise(real, address, bytes, advice, to)
    }
}
