//! Series of single processes, which have to be enabled.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::{Arc, Mutex},
};

use axum::Router;
use model::{Access, Counters, GpuKey, Process, ProcessId, Snapshot};
use web::Snapshots;

use crate::{
    metrics::scrape_from,
    support::{at, busy, counting, node, process, router, router_of},
};

/// Service with series for a limited number of processes, and its current snapshot.
struct Daemon {
    router: Router,
    now: Arc<Mutex<Snapshot>>,
}

impl Daemon {
    fn with_limit(max: usize, snapshot: Snapshot) -> Self {
        let now = Arc::new(Mutex::new(snapshot));
        let current = Arc::clone(&now);
        let snapshots = Snapshots::new(move || std::future::ready(Some(Arc::new(current.lock().unwrap().clone()))));
        let node = web::Node { processes_in_metrics: NonZeroUsize::new(max), ..node() };
        Self { router: router_of(node, snapshots), now }
    }

    /// Processes with series, as `pid name`, and the number of those without.
    async fn listed(&self) -> (BTreeSet<String>, String) {
        let samples = scrape_from(&self.router).await;
        let label = |series: &str, name: &str| {
            series.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned()
        };
        let of_processes = samples.keys().filter(|series| series.starts_with("uvm_process_gpu_faults_total"));
        let names = of_processes.map(|series| format!("{} {}", label(series, "pid"), label(series, "process")));
        (names.collect(), samples["uvmd_processes_omitted"].clone())
    }

    async fn assert_listed(&self, names: &[&str], omitted: &str) {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(self.listed().await, (names, omitted.to_owned()));
    }

    fn show(&self, processes: Vec<Process>) {
        self.now.lock().unwrap().processes = processes;
    }
}

fn faulting(pid: u32, name: &str, faults: u64) -> Process {
    let mut counters = Counters::default();
    counters.fault_entries[Access::Read] = faults;
    process(pid, name, None, BTreeMap::from([(GpuKey::Unknown(1), counters)]))
}

fn exited(process: Process, seconds: u64) -> Process {
    Process { exited_at: Some(at(seconds)), ..process }
}

#[tokio::test]
async fn processes_have_no_series_by_default() {
    let samples = scrape_from(&router(busy())).await;
    assert!(!samples.keys().any(|series| series.starts_with("uvm_process_") || series.contains("omitted")));
}

#[tokio::test]
async fn series_name_the_process_and_the_gpu() {
    let daemon = Daemon::with_limit(8, busy());
    let samples = scrape_from(&daemon.router).await;
    let gpu = r#"gpu="0",UUID="GPU-9a317702-0405-0607-0809-0a0b0c0d0e0f""#;
    let heavy = r#"pid="20",process="heavy",cgroup="/user.slice""#;
    for (series, value) in [
        (format!("uvm_process_gpu_faults_total{{{gpu},{heavy}}}"), "300"),
        (format!(r#"uvm_process_gpu_faults_total{{gpu="",UUID="unknown",{heavy}}}"#), "10"),
        (format!(r#"uvm_process_migrated_bytes_total{{{gpu},{heavy},direction="dtoh"}}"#), "12288"),
        (format!("uvm_process_evicted_bytes_total{{{gpu},{heavy}}}"), "8192"),
        (format!("uvm_process_induced_eviction_bytes_total{{{gpu},{heavy}}}"), "0"),
        (format!("uvm_process_refetched_bytes_total{{{gpu},{heavy}}}"), "0"),
        (format!("uvm_process_managed_bytes{{{heavy}}}"), "67108864"),
    ] {
        assert_eq!(samples.get(&series).map(String::as_str), Some(value), "{series}");
    }
}

#[tokio::test]
async fn the_busiest_processes_have_series_and_keep_them() {
    let daemon = Daemon::with_limit(2, counting());
    daemon.show(vec![faulting(1, "a", 10), faulting(2, "b", 30), faulting(3, "c", 20)]);
    daemon.assert_listed(&["2 b", "3 c"], "1").await;
    daemon.show(vec![faulting(1, "a", 1000), faulting(2, "b", 31), faulting(3, "c", 20), faulting(4, "idle", 0)]);
    daemon.assert_listed(&["2 b", "3 c"], "1").await;
}

#[tokio::test]
async fn an_exited_process_keeps_its_series_until_another_needs_the_place() {
    let daemon = Daemon::with_limit(2, counting());
    daemon.show(vec![faulting(1, "a", 10), faulting(2, "b", 20)]);
    daemon.assert_listed(&["1 a", "2 b"], "0").await;
    daemon.show(vec![exited(faulting(1, "a", 12), 40), exited(faulting(2, "b", 20), 30)]);
    daemon.assert_listed(&["1 a", "2 b"], "0").await;
    daemon.show(vec![exited(faulting(1, "a", 12), 40), exited(faulting(2, "b", 20), 30), faulting(3, "c", 1)]);
    daemon.assert_listed(&["1 a", "3 c"], "0").await;
    daemon.show(vec![faulting(3, "c", 2)]);
    daemon.assert_listed(&["3 c"], "0").await;
}

#[tokio::test]
async fn a_pid_has_series_of_one_process_at_a_time() {
    let daemon = Daemon::with_limit(8, counting());
    let first = faulting(7, "first", 50);
    daemon.show(vec![first.clone()]);
    daemon.assert_listed(&["7 first"], "0").await;
    let second = Process { id: ProcessId { pid: 7, start_ticks: 9999 }, ..faulting(7, "second", 1) };
    daemon.show(vec![exited(first.clone(), 40), second.clone()]);
    daemon.assert_listed(&["7 second"], "0").await;
    daemon.show(vec![second, exited(first, 40)]);
    daemon.assert_listed(&["7 second"], "0").await;
}

#[tokio::test]
async fn a_renamed_process_keeps_its_series() {
    let daemon = Daemon::with_limit(1, counting());
    daemon.show(vec![faulting(7, "sh", 1)]);
    daemon.assert_listed(&["7 sh"], "0").await;
    daemon.show(vec![faulting(7, "python", 2)]);
    daemon.assert_listed(&["7 sh"], "0").await;
}
