//! Judging of every snapshot of the collector, with a log line for the start and end of each
//! verdict.

use std::sync::Arc;

use collector::Snapshots;
use model::{ProcessId, Snapshot, Verdict, Verdicts};
use policy::{Change, Judge};
use tokio::{sync::watch, task::JoinHandle};
use web::Events;

/// Task that judges, with the current verdicts. Ends with the collector, or on drop.
#[derive(Debug)]
pub(crate) struct Judging {
    latest: watch::Receiver<Arc<Verdicts>>,
    task: JoinHandle<()>,
}

impl Judging {
    /// Starts the task. `judge` knows the windows and the interval of readings; starts and ends go to
    /// `events`.
    pub(crate) fn start(snapshots: Snapshots, judge: Judge, events: Events) -> Self {
        let (publish, latest) = watch::channel(Arc::default());
        Self { latest, task: tokio::spawn(judge_all(snapshots, judge, publish, events)) }
    }

    /// Receiver of the verdicts.
    pub(crate) fn latest(&self) -> watch::Receiver<Arc<Verdicts>> {
        self.latest.clone()
    }

    /// Returns when the task has ended by itself: with the collector, or by a bug.
    pub(crate) async fn ended(&mut self) {
        if !self.task.is_finished() {
            // A panic's message is in the log.
            let _ = (&mut self.task).await;
        }
    }
}

impl Drop for Judging {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn judge_all(mut snapshots: Snapshots, mut judge: Judge, publish: watch::Sender<Arc<Verdicts>>, events: Events) {
    let mut snapshot = snapshots.latest();
    loop {
        let changes = judge.observe(&snapshot);
        let verdicts = Arc::new(judge.verdicts());
        for change in &changes {
            log(change, &snapshot);
        }
        let judged = changes.iter().map(|(Change::Began(verdict) | Change::Ended(verdict))| verdict);
        for event in web::verdict_events(judged, &snapshot, &verdicts) {
            events.tell(event);
        }
        publish.send_replace(verdicts);
        match snapshots.next().await {
            Some(next) => snapshot = next,
            None => return,
        }
    }
}

fn log(change: &Change, snapshot: &Snapshot) {
    match change {
        Change::Began(verdict) => tracing::info!("{}", began(verdict, snapshot)),
        Change::Ended(verdict) => tracing::info!("{}", ended(verdict, snapshot)),
    }
}

fn began(verdict: &Verdict, snapshot: &Snapshot) -> String {
    let checks: Vec<String> =
        verdict.checks.iter().map(|check| format!("{} {}", check.name, figure(check.value))).collect();
    format!("{}: {}", subject(verdict, snapshot), checks.join(", "))
}

fn ended(verdict: &Verdict, snapshot: &Snapshot) -> String {
    let shown = verdict.ended_at.and_then(|ended| ended.duration_since(verdict.started_at).ok()).unwrap_or_default();
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} ended after {:.1} s: {} MiB fetched, {} MiB of that refetched, {} MiB evicted",
        subject(verdict, snapshot),
        shown.as_secs_f64(),
        mib(verdict.total.bytes_htod),
        mib(verdict.total.refetched_bytes.saturating_add(verdict.total.cpu_reclaimed_bytes)),
        mib(verdict.total.evicted_bytes),
    )
}

/// Kind, process and GPU of a verdict.
fn subject(verdict: &Verdict, snapshot: &Snapshot) -> String {
    let ProcessId { pid, .. } = verdict.process;
    let name = snapshot
        .processes
        .iter()
        .find(|process| process.id == verdict.process)
        .map_or_else(|| "forgotten".to_owned(), |process| process.name.escape_debug().to_string());
    let gpu = verdict.gpu.uuid().map_or_else(|| "an unknown GPU".to_owned(), |uuid| uuid.to_string());
    format!("{} of {pid} ({name}) on {gpu}", verdict.kind.name())
}

/// Text of a figure: a share with two digits, a count with none.
fn figure(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use model::{
        GpuKey, GpuUuid, Process, SourceState, SourceStatus, VerdictKind,
        verdict::{Check, Inputs},
    };

    use super::*;

    fn snapshot(processes: Vec<Process>) -> Snapshot {
        let source = SourceStatus::new(SourceState::Waiting { missing: Vec::new() });
        Snapshot { processes, ..Snapshot::empty(SystemTime::UNIX_EPOCH, source) }
    }

    fn verdict() -> Verdict {
        let since = SystemTime::UNIX_EPOCH;
        Verdict {
            process: ProcessId { pid: 7, start_ticks: 1 },
            gpu: GpuKey::Known(GpuUuid([0xab; 16])),
            peer: None,
            kind: VerdictKind::CapacityThrash,
            started_at: since,
            confirmed_at: since,
            ended_at: Some(since + Duration::from_millis(4200)),
            ranges: Vec::new(),
            window: Duration::from_secs(2),
            inputs: Inputs::default(),
            total: Inputs {
                bytes_htod: 300 << 20,
                refetched_bytes: 200 << 20,
                evicted_bytes: 290 << 20,
                ..Inputs::default()
            },
            checks: [("arrived_bytes", 314_572_800.0), ("refetch_ratio", 0.666)]
                .map(|(name, value)| Check { description: String::new(), name, value, threshold: 0.25, met: true })
                .to_vec(),
        }
    }

    #[test]
    fn each_verdict_is_a_line_with_kind_process_gpu_and_figures() {
        let snapshot = snapshot(vec![Process::new(verdict().process, "train\n.py")]);
        let subject = "capacity_thrash of 7 (train\\n.py) on GPU-abababab-abab-abab-abab-abababababab";
        assert_eq!(began(&verdict(), &snapshot), format!("{subject}: arrived_bytes 314572800, refetch_ratio 0.67"));
        assert_eq!(
            ended(&verdict(), &snapshot),
            format!("{subject} ended after 4.2 s: 300 MiB fetched, 200 MiB of that refetched, 290 MiB evicted")
        );
    }

    #[test]
    fn unknown_process_or_gpu_is_reported_as_such() {
        let verdict = Verdict { gpu: GpuKey::Unknown(1), ..verdict() };
        let line = began(&verdict, &snapshot(Vec::new()));
        assert!(line.starts_with("capacity_thrash of 7 (forgotten) on an unknown GPU: "), "{line}");
    }
}
