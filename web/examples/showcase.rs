//! Serves the page and the API with made-up figures, to look at without a GPU: `cargo run -p web --example showcase [PORT] [STATE]`
//! where STATE is `counting`, `empty`, `waiting` or `refused`.
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "a tool for people who work on the page")]

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use model::{
    Access, ApiCall, Block, Blocks, Cause, Counters, DriverInfo, DropReason, Gpu, GpuKey, GpuUuid, ProbeStatus,
    Process, ProcessId, RemoteCause, Snapshot, SourceState, SourceStatus, block::BLOCK_BYTES,
};
use web::{Node, Snapshots, server};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments.next().and_then(|port| port.parse().ok()).unwrap_or(9477_u16);
    let state = arguments.next().unwrap_or_else(|| "counting".to_owned());
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let address = listener.local_addr()?;
    let start = Instant::now();
    let snapshots = Snapshots::new(move || {
        let snapshot = snapshot(&state, start.elapsed().as_secs_f64());
        async { Some(Arc::new(snapshot)) }
    });
    let node = Node {
        version: env!("CARGO_PKG_VERSION"),
        hostname: "gpu-17".to_owned(),
        processes_in_metrics: std::num::NonZeroUsize::new(4),
        ..Node::default()
    };
    println!("http://{address}");
    server::serve(listener, web::router(node, address, snapshots), server::Limits::default(), std::future::pending())
        .await;
    Ok(())
}

fn snapshot(state: &str, seconds: f64) -> Snapshot {
    let now = SystemTime::now();
    let mut snapshot = Snapshot::empty(now, source(state, seconds));
    if state != "counting" {
        return snapshot;
    }
    // Name, GPU, faults a second, how much the load swings, seconds at which it ended.
    let processes = [
        ("python train.py", 1, 18_400.0, 0.5, None),
        ("cudf-worker", 2, 2_100.0, 0.9, None),
        ("llama-server", 1, 310.0, 0.2, None),
        ("jupyter", 1, 0.0, 0.0, None),
        ("<b>evil</b>\u{1b}[31m", 2, 12.0, 0.1, None),
        ("nbody", 2, 5_000.0, 0.3, Some(2.0)),
    ];
    for (at, (name, gpu, rate, swing, ended)) in (0_u32..).zip(processes) {
        let busy = ended.unwrap_or(seconds) + 40.0;
        // The integral of rate * (1 + swing * sin(t / 4)): it only grows.
        let faults = rate * (busy - swing * 4.0 * (busy / 4.0).cos() + 4.0 * swing);
        let (counters, host) = counters(faults, busy);
        *snapshot.gpu_totals.entry(key(gpu)).or_default() += &counters;
        snapshot.host_totals += &host;
        snapshot.processes.push(Process {
            id: ProcessId { pid: 39_870 + at * 667, start_ticks: 77_000 + u64::from(at) },
            started: Some(now),
            name: name.to_owned(),
            uid: 1000 + at,
            user: (at != 2).then(|| ["alice", "etl", "", "bob", "mallory", "carol"][at as usize].to_owned()),
            cgroup: Some("/kubepods.slice/pod-1".into()),
            ended: ended.map(|_| now),
            host,
            gpus: BTreeMap::from([(key(gpu), counters)]),
            managed_bytes: Some(u64::from(at + 1) << 33),
            blocks: blocks(faults, key(gpu), now, rate > 10_000.0),
            ..Process::new(ProcessId { pid: 0, start_ticks: 0 }, name)
        });
    }
    for id in 1..=2 {
        snapshot.gpus.insert(
            key(id),
            Gpu { id: Some(id), first_id: Some(id), name: Some("NVIDIA H200".to_owned()), ..Gpu::default() },
        );
    }
    snapshot
}

/// The first GPU's UUID is known, the second's is not.
const fn key(id: u32) -> GpuKey {
    match id {
        1 => GpuKey::Known(GpuUuid([
            0x9a, 0x31, 0x77, 0x02, 0xd4, 0x3c, 0x8e, 0x11, 0xb0, 0x55, 0x6f, 0x20, 0x1c, 0xaa, 0x94, 0x01,
        ])),
        _ => GpuKey::Unknown(id),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive figures")]
fn counters(faults: f64, seconds: f64) -> (Counters, Counters) {
    let share = |share: f64| (faults * share) as u64;
    let pages = |pages: f64| share(pages) * 4096;
    let mut counters = Counters {
        populated_bytes: pages(9.0),
        evictions: share(0.23),
        evictions_caused: share(0.31),
        evicted_bytes_caused: pages(150.0),
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

/// Two arrays, one walked from end to end, the other with a hot middle.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive figures")]
fn blocks(faults: f64, gpu: GpuKey, now: SystemTime, sampled: bool) -> Blocks {
    if faults < 1.0 {
        return Blocks::default();
    }
    let block = |at: u64| {
        let (address, weight) = if at < 48 {
            (0x7f2a_4000_0000 + at * BLOCK_BYTES, 1.0)
        } else {
            (0x7f36_4000_0000 + at * BLOCK_BYTES, 3.0 / (1.0 + (at as f64 - 64.0).abs()))
        };
        let entries = faults * weight / 80.0;
        Block {
            address,
            gpu: Some(gpu),
            fault_entries: entries as u64,
            cpu_faults: (entries * 0.01) as u64,
            bytes_htod: (entries * 130.0) as u64 * 4096,
            bytes_dtoh: (entries * 118.0) as u64 * 4096,
            bytes_dtod: 0,
            populated_bytes: BLOCK_BYTES,
            evicted_bytes: (entries * 117.0) as u64 * 4096,
            evictions: (entries * 0.23) as u64,
            last_seen: now - Duration::from_millis(at * 40),
        }
    };
    let mut busiest: Vec<_> = (0..80).map(block).collect();
    busiest.sort_by_key(|block| (Reverse(block.fault_entries), block.address));
    Blocks {
        busiest,
        known: 24_411,
        forgotten: 0,
        sampled_out_records: if sampled { 1_234 } else { 0 },
        dropped_records: 0,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive figures")]
fn source(state: &str, seconds: f64) -> SourceStatus {
    let source_state = match state {
        "waiting" => SourceState::Waiting {
            missing: vec![
                "the driver nvidia-uvm is not loaded: load it with modprobe nvidia-uvm".to_owned(),
                "this kernel has no kprobes (CONFIG_KPROBES): boot one that has".to_owned(),
            ],
        },
        "refused" => SourceState::Refused {
            reason: "driver 610.12 is newer than what this uvmd knows (515 to 595): update uvmd".to_owned(),
        },
        _ => SourceState::Counting { since: SystemTime::now() - Duration::from_secs_f64(seconds + 40.0) },
    };
    let counting = matches!(source_state, SourceState::Counting { .. });
    let probe = |name: &str, rate: f64| ProbeStatus {
        name: name.to_owned(),
        hits: (rate * seconds) as u64,
        run_time: Some(Duration::from_secs_f64(rate * seconds * 412e-9)),
        missing: None,
    };
    SourceStatus {
        backend: "ebpf",
        state: source_state,
        warnings: Vec::new(),
        driver: match state {
            "waiting" => None,
            "refused" => Some(DriverInfo { version: "610.12".to_owned(), layout: None, ..DriverInfo::default() }),
            _ => Some(DriverInfo {
                version: "580.159.04".to_owned(),
                layout: Some("580-595".to_owned()),
                ..DriverInfo::default()
            }),
        },
        probes: if counting {
            vec![
                probe("uvm_perf_event_notify", 26_000.0),
                probe("uvm_va_space_mm_register", 0.2),
                probe("uvm_va_space_destroy", 0.1),
            ]
        } else {
            Vec::new()
        },
        dropped_events: DropReason::ALL.map(|reason| (reason.name(), 0)).into(),
        block_records: model::RecordFigures::default(),
    }
}
