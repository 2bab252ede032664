//! Counters in proportion to a number of faults.

use model::{Access, ApiCall, Cause, Counters, RemoteCause};

/// Counters of a GPU, and of the host.
pub(crate) fn counters(faults: f64, seconds: f64) -> (Counters, Counters) {
    let share = |share: f64| (faults * share) as u64;
    let pages = |pages: f64| share(pages) * 4096;
    let mut counters = Counters {
        populated_bytes: pages(9.0),
        evictions: share(0.23),
        induced_evictions: share(0.31),
        induced_eviction_bytes: pages(150.0),
        replays: share(0.0171),
        thrashing_pages: share(0.0004),
        throttles: share(0.002),
        throttled_ns: share(0.002) * 500_000,
        ..Counters::default()
    };
    counters.fault_entries[Access::Read] = share(0.7);
    counters.fault_entries[Access::Write] = share(0.3);
    counters.fault_instances[Access::Read] = share(1.9);
    counters.bytes_htod[Cause::Fault] = pages(0.9);
    counters.bytes_htod[Cause::TreePrefetch] = pages(130.0);
    counters.bytes_dtoh[Cause::Fault] = pages(0.2);
    counters.bytes_dtoh[Cause::Eviction] = pages(118.0);
    for (of_all, entries, service_ns) in
        [(0.008, 12, 180_000), (0.006, 60, 420_000), (0.003, 130, 900_000), (0.0001, 255, 14_000_000)]
    {
        counters.batches.entries.record(entries, share(of_all), share(of_all) * entries);
        counters.batches.service_ns.record(service_ns, share(of_all), share(of_all) * service_ns);
    }
    counters.remote_mappings[RemoteCause::Thrashing] = share(0.0004);
    counters.remote_mapped_bytes[RemoteCause::Thrashing] = pages(0.0004);
    counters.remote_mappings[RemoteCause::Policy] = share(0.01);
    counters.remote_mapped_bytes[RemoteCause::Policy] = pages(0.16);
    let mut host = Counters { cpu_read_faults: share(0.01), throttles: share(0.001), ..Counters::default() };
    if faults > 0.0 {
        host.api_calls[ApiCall::Prefetch] = (seconds * 2.0) as u64;
        host.api_bytes[ApiCall::Prefetch] = (seconds * 2.0) as u64 * (64 << 20);
        host.api_calls[ApiCall::SetPreferredLocation] = 3;
        host.api_bytes[ApiCall::SetPreferredLocation] = 12 << 30;
    }
    (counters, host)
}
