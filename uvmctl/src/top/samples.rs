//! Latest readings of the daemon, with the earlier ones for rates.

use std::{collections::HashMap, time::SystemTime};

use api::{Counts, Evictions, Gpu, GpuDetail, Gpus, Process, Status, Verdicts};

use super::{
    columns::{Counter, Row},
    fetch::{Detailed, Sample},
    process_key::ProcessKey,
};
use crate::{
    evictions::{self, Flow},
    explain::Evidence,
    rates::{Baseline, History, Moment},
    words::Headline,
};

/// GPU with its earlier counts, for rates.
#[derive(Clone, Debug)]
pub(crate) struct GpuRow {
    pub(crate) gpu: Gpu,
    /// Memory of the GPU, if known.
    pub(crate) memory: Option<GpuDetail>,
    before: Baseline,
    /// History of bytes per second between host and GPU, sum of both directions.
    pub(crate) traffic: History,
}

impl GpuRow {
    /// Rate of a counter per second.
    pub(crate) fn rate(&self, counter: Counter) -> Option<f64> {
        self.before.rate(&self.gpu.counts, counter)
    }

    pub(crate) fn htod_rate(&self) -> Option<f64> {
        self.rate(|counts| Some(counts.bytes_htod))
    }

    pub(crate) fn dtoh_rate(&self) -> Option<f64> {
        self.rate(|counts| Some(counts.bytes_dtoh))
    }
}

/// Latest samples.
#[derive(Clone, Debug)]
pub(crate) struct Samples {
    pub(crate) status: Status,
    /// Whether uvmd may act; `None` if unknown.
    pub(crate) acting: Option<bool>,
    /// Rows in the daemon's order.
    pub(crate) rows: Vec<Row>,
    pub(crate) gpus: Vec<GpuRow>,
    pub(crate) gpu_details: Gpus,
    pub(crate) verdicts: Verdicts,
    /// Evictions by victim and evictor, while their page is shown.
    pub(crate) flows: Option<Vec<Flow>>,
    pub(crate) evictions: Option<Evictions>,
    /// Highest rate of bytes on any GPU in either direction: the scale of bars.
    pub(crate) highest_rate: f64,
    status_moment: Moment,
    processes_moment: Moment,
}

impl Samples {
    /// Creates the first samples, without rates.
    pub(crate) fn first(sample: Sample) -> Self {
        Self::following(sample, None)
    }

    /// Replaces the samples by the next ones.
    pub(crate) fn follow(&mut self, sample: Sample) {
        *self = Self::following(sample, Some(self));
    }

    fn following(sample: Sample, before: Option<&Self>) -> Self {
        let Sample { status, acting, processes, gpus: gpu_details, verdicts, evictions, detail: _ } = sample;
        let counting_started_at = status.counting_started_at.as_deref().and_then(time);
        let moment = |taken: &str| Moment { taken: time(taken), counting_started_at };
        let status_moment = moment(&status.time);
        let processes_moment = moment(&processes.time);
        let status_seconds = before.and_then(|before| status_moment.seconds_since(before.status_moment));
        let seconds = before.and_then(|before| processes_moment.seconds_since(before.processes_moment));

        let known: HashMap<_, _> =
            before.iter().flat_map(|before| &before.rows).map(|row| (ProcessKey::of(&row.process), row)).collect();
        let row = |process: Process| {
            // A new process started at zero.
            let nothing = Counts::default();
            let earlier = known.get(&ProcessKey::of(&process)).map_or(&nothing, |row| &row.process.counts);
            let before = seconds.map(|seconds| Baseline::new(earlier, seconds, &process.counts)).unwrap_or_default();
            let headline = Headline::of(&process, &processes.time);
            Row { process, headline, before }
        };
        let gpu = |gpu: &Gpu| {
            let memory = gpu_details.gpus.iter().find(|detail| is_same(&detail.gpu, gpu)).cloned();
            measured(gpu, memory, before, status_seconds, status_moment)
        };
        let gpus: Vec<_> = status.gpus.iter().map(gpu).collect();
        let evictions_before = before.and_then(|before| before.evictions.as_ref());
        let highest = gpus.iter().flat_map(|row| [row.htod_rate(), row.dtoh_rate()]).flatten().fold(0.0, f64::max);
        Self {
            rows: processes.processes.into_iter().map(row).collect(),
            highest_rate: before.map_or(0.0, |before| before.highest_rate).max(highest),
            flows: evictions.as_ref().map(|evictions| evictions::flows(evictions, evictions_before)),
            evictions,
            gpus,
            gpu_details,
            verdicts,
            status,
            acting,
            status_moment,
            processes_moment,
        }
    }

    /// Evidence about one process.
    pub(crate) fn evidence(&self, detailed: &Detailed) -> Evidence {
        let process = detailed.process.process.clone();
        Evidence::new(process, &self.verdicts, detailed.ranges.clone(), self.gpu_details.clone())
    }

    /// Time since counting started, by the daemon's clock, which may differ from the local one.
    pub(crate) fn counting_for(&self) -> Option<std::time::Duration> {
        let Moment { taken, counting_started_at } = self.status_moment;
        taken?.duration_since(counting_started_at?).ok()
    }
}

/// Creates the row of a GPU. A new GPU has no rate: counts of an unknown GPU move to it once it is
/// identified.
fn measured(
    gpu: &Gpu,
    memory: Option<GpuDetail>,
    before: Option<&Samples>,
    seconds: Option<f64>,
    moment: Moment,
) -> GpuRow {
    let earlier = before.iter().flat_map(|before| &before.gpus).find(|row| is_same(&row.gpu, gpu));
    let measured = earlier.zip(seconds).map(|(row, seconds)| Baseline::new(&row.gpu.counts, seconds, &gpu.counts));
    let traffic = earlier.map(|row| row.traffic.clone()).unwrap_or_default();
    let mut row = GpuRow { gpu: gpu.clone(), memory, before: measured.unwrap_or_default(), traffic };
    if let Some((now, (htod, dtoh))) = moment.taken.zip(row.htod_rate().zip(row.dtoh_rate())) {
        row.traffic.record(now, htod + dtoh);
    }
    row
}

fn is_same(one: &Gpu, other: &Gpu) -> bool {
    match (&one.id.uuid, &other.id.uuid) {
        (Some(one), Some(other)) => one == other,
        (None, None) => one.id.processor_id == other.id.processor_id,
        _ => false,
    }
}

fn time(text: &str) -> Option<SystemTime> {
    humantime::parse_rfc3339(text).ok()
}
