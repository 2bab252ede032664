//! Serves the page and the API with made-up figures, to look at without a GPU: `cargo run -p web --example showcase [PORT] [STATE]`
//! where STATE is `counting`, `empty`, `waiting` or `refused`.
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "a tool for people who work on the page")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use model::{
    Access, Blocks, Cause, Counters, DriverInfo, DropReason, Gpu, GpuKey, GpuUuid, ProbeStatus, Process, ProcessId,
    Snapshot, SourceState, SourceStatus,
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
    let node = Node { version: env!("CARGO_PKG_VERSION"), hostname: "gpu-17".to_owned() };
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
        let (counters, host) = counters(faults);
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
            blocks: Blocks::default(),
        });
    }
    for id in 1..=2 {
        snapshot.gpus.insert(key(id), Gpu { id: Some(id), first_id: Some(id), name: Some("NVIDIA H200".to_owned()) });
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
fn counters(faults: f64) -> (Counters, Counters) {
    let pages = |share: f64| (faults * share) as u64 * 4096;
    let mut counters = Counters::default();
    counters.fault_entries[Access::Read] = (faults * 0.7) as u64;
    counters.fault_entries[Access::Write] = (faults * 0.3) as u64;
    counters.fault_instances[Access::Read] = (faults * 1.9) as u64;
    counters.bytes_htod[Cause::Fault] = pages(0.9);
    counters.bytes_htod[Cause::TreePrefetch] = pages(130.0);
    counters.bytes_dtoh[Cause::Fault] = pages(0.2);
    counters.bytes_dtoh[Cause::Eviction] = pages(118.0);
    let host = Counters { cpu_read_faults: (faults * 0.01) as u64, ..Counters::default() };
    (counters, host)
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
            "refused" => Some(DriverInfo { version: "610.12".to_owned(), layout: None }),
            _ => Some(DriverInfo { version: "580.159.04".to_owned(), layout: Some("580-595".to_owned()) }),
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
