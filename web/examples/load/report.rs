//! Table of the results.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use hdrhistogram::Histogram;

use crate::{Options, client::Response, service::Figures};

/// Results of all requests.
#[derive(Default)]
pub(crate) struct Tally(Mutex<Tallied>);

#[derive(Default)]
struct Tallied {
    requests: BTreeMap<&'static str, Requests>,
    counts: BTreeMap<&'static str, u64>,
}

struct Requests {
    latency_us: Histogram<u64>,
    bytes: u64,
    /// Other responses by status.
    others: BTreeMap<String, u64>,
}

impl Tally {
    pub(crate) fn add(&self, kind: &'static str, response: &Response, latency: Duration) {
        let mut tallied = self.tallied();
        let requests = tallied.requests.entry(kind).or_insert_with(|| Requests {
            // Three significant digits, without a maximum.
            latency_us: Histogram::new(3).unwrap_or_else(|_| unreachable!("three digits are allowed")),
            bytes: 0,
            others: BTreeMap::new(),
        });
        if response.status().starts_with('2') {
            requests.latency_us += u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
            requests.bytes += response.len() as u64;
        } else {
            *requests.others.entry(response.status().to_owned()).or_default() += 1;
        }
    }

    pub(crate) fn count(&self, figure: &'static str) {
        self.add_to(figure, 1);
    }

    pub(crate) fn add_to(&self, figure: &'static str, count: u64) {
        *self.tallied().counts.entry(figure).or_default() += count;
    }

    fn tallied(&self) -> MutexGuard<'_, Tallied> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn table(options: Options, tally: &Tally, idle: Figures, busy: Figures, duration: Duration) -> String {
    const TICKS_PER_SECOND: f64 = 100.0;
    let Options { crowd, overrides, clients, streams, .. } = options;
    let mut text = format!(
        "{} processes on {} GPUs, {overrides} overrides, {clients} clients of each kind, {streams} event streams, {:.0} s\n\n",
        crowd.processes,
        crowd.gpus,
        duration.as_secs_f64()
    );
    let tallied = tally.tallied();
    text += "| request | responses | p50 ms | p99 ms | max ms | KiB each | other statuses |\n| --- | --- | --- | --- | --- | --- | --- |\n";
    for (kind, Requests { latency_us, bytes, others }) in &tallied.requests {
        let ms = |quantile| latency_us.value_at_quantile(quantile) as f64 / 1e3;
        let others: Vec<_> = others.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        let _ = writeln!(
            text,
            "| {kind} | {} | {:.1} | {:.1} | {:.1} | {} | {} |",
            latency_us.len(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            bytes.div_ceil(latency_us.len().max(1)).div_ceil(1024),
            if others.is_empty() { "none".to_owned() } else { others.join(", ") }
        );
    }
    text += "\n| figure | value |\n| --- | --- |\n";
    for (figure, count) in &tallied.counts {
        let _ = writeln!(text, "| {figure} | {count} |");
    }
    let cpu_seconds = (busy.cpu_ticks - idle.cpu_ticks) as f64 / TICKS_PER_SECOND;
    let _ = writeln!(text, "| resident memory before the load | {} MiB |", idle.resident_kib >> 10);
    let _ = writeln!(text, "| peak resident memory | {} MiB |", busy.peak_kib >> 10);
    let _ = writeln!(text, "| processors used | {:.2} |", cpu_seconds / duration.as_secs_f64());
    text
}
