//! The program's own prefetches and advice.

#![expect(unsafe_code, reason = "functions of the driver's ABI")]

use call_ring::{Kind, kind::ASYNCHRONOUS};

use crate::{
    cuda::{CuResult, Handle, Location},
    program::read_at,
    real::hooks,
    recorder::{after, named_stream, recording},
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

fn advises(result: CuResult, address: u64, bytes: usize, advice: u32, to: i32) -> CuResult {
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
                // Each place holds from the range on that it names.
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
        advises(real(), address, bytes, advice, device)
    }

    cuMemAdvise_v2 = fn(address: u64, bytes: usize, advice: u32, to: Location) |real, per_thread| {
        advises(real(), address, bytes, advice, to.device())
    }
}
