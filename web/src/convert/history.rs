//! Recent counts.

use model::{Capabilities, History, Quantity, Sample};

use super::time;

pub(crate) fn history(history: &History, capabilities: Capabilities) -> api::History {
    api::History {
        started_at: time(history.begin),
        interval_seconds: history.interval.as_secs_f64(),
        samples: history.samples.iter().map(|sample| sample.map(|sample| self::sample(sample, capabilities))).collect(),
    }
}

fn sample(sample: Sample, capabilities: Capabilities) -> api::HistorySample {
    let Sample { fault_entries, cpu_faults, bytes_htod, bytes_dtoh, evicted_bytes, refetched_bytes, resident_bytes } =
        sample;
    api::HistorySample {
        fault_entries,
        cpu_faults,
        bytes_htod,
        bytes_dtoh,
        evicted_bytes: capabilities.counted(Quantity::CopyCauses, evicted_bytes),
        refetched_bytes: capabilities.counted(Quantity::Reuse, refetched_bytes),
        resident_bytes: capabilities.counted(Quantity::Resident, resident_bytes),
    }
}
