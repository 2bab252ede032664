//! What `uvm-workload` tells: as JSON, and line by line to whoever takes figures between phases (`--hold`).

use serde::{Deserialize, Serialize};

use crate::{phase::Processor, residency::Prediction};

/// The GPU that was used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// CUDA's number of it.
    pub index: i32,
    /// Product name.
    pub name: String,
    /// As nvidia-smi shows it.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
    /// Free memory before the workload.
    pub free_bytes: u64,
    /// All of its memory.
    pub total_bytes: u64,
    /// The newest CUDA that the driver serves, as 1000 × major + 10 × minor.
    pub cuda_version: i32,
    /// Device attributes that decide how managed memory works; by the names of the CUDA driver API, in lower case.
    pub attributes: std::collections::BTreeMap<String, i32>,
}

/// What a run is about to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The workload.
    pub workload: String,
    /// Process id.
    pub pid: u32,
    /// The GPU.
    pub gpu: Gpu,
    /// Where the managed memory is.
    pub address: u64,
    /// How much it is.
    pub bytes: u64,
    /// How many pages that are.
    pub pages: u64,
    /// Rounds.
    pub iterations: u32,
    /// Decides the pattern and the shuffle.
    pub seed: u64,
    /// The phases to come.
    pub phases: Vec<String>,
}

/// One phase, done and verified.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// What was done.
    pub phase: String,
    /// Who touched memory.
    pub toucher: Option<Processor>,
    /// Bytes that the program read, each word once.
    pub read_bytes: u64,
    /// Bytes that the program wrote, each word once.
    pub written_bytes: u64,
    /// Pages touched, each counted once.
    pub pages_touched: u64,
    /// From the GPU's own events where the GPU worked, by the host's clock where the CPU did.
    pub elapsed_ms: f64,
    /// By the driver's rules.
    pub predicted: Prediction,
}

/// A whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What it was.
    #[serde(flatten)]
    pub header: Header,
    /// What was done. All of it was verified: data that is wrong ends the run with an error.
    pub done: Vec<PhaseReport>,
    /// Bytes the CPU wrote, over all phases.
    pub cpu_written_bytes: u64,
    /// Bytes the GPU read, over all phases.
    pub gpu_read_bytes: u64,
    /// Sums of the predictions.
    pub predicted: Prediction,
}

impl Report {
    /// With its sums.
    #[must_use]
    pub fn new(header: Header, done: Vec<PhaseReport>) -> Self {
        let by = |toucher| done.iter().filter(move |phase| phase.toucher == Some(toucher));
        let cpu_written_bytes = by(Processor::Cpu).map(|phase| phase.written_bytes).sum();
        let gpu_read_bytes = by(Processor::Gpu).map(|phase| phase.read_bytes).sum();
        let predicted = Prediction {
            bytes_htod: done.iter().map(|phase| phase.predicted.bytes_htod).sum(),
            bytes_dtoh: done.iter().map(|phase| phase.predicted.bytes_dtoh).sum(),
            gpu_faults: done.iter().any(|phase| phase.predicted.gpu_faults),
        };
        Self { header, done, cpu_written_bytes, gpu_read_bytes, predicted }
    }
}

/// A line on standard output with `--hold`. After `Begun`, `Ready` and `Done` it waits for a line on standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Memory is there, and nobody touched it.
    Begun(Header),
    /// The phase of that name comes next.
    Ready {
        /// The phase.
        phase: String,
    },
    /// It is over, and the GPU is at rest.
    Done(PhaseReport),
    /// All is done; the process ends.
    Ended(Report),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(toucher: Processor, read_bytes: u64, written_bytes: u64, bytes_htod: u64) -> PhaseReport {
        PhaseReport {
            phase: "some".to_owned(),
            toucher: Some(toucher),
            read_bytes,
            written_bytes,
            pages_touched: 1,
            elapsed_ms: 0.5,
            predicted: Prediction { bytes_htod, bytes_dtoh: 0, gpu_faults: bytes_htod > 0 },
        }
    }

    fn header() -> Header {
        let gpu = Gpu {
            index: 0,
            name: "a GPU".to_owned(),
            uuid: "GPU-0".to_owned(),
            compute_capability: (9, 0),
            free_bytes: 2,
            total_bytes: 3,
            cuda_version: 13000,
            attributes: std::collections::BTreeMap::new(),
        };
        let (address, phases) = (1 << 40, vec!["some".to_owned()]);
        Header { workload: "w".to_owned(), pid: 1, gpu, address, bytes: 2, pages: 1, iterations: 1, seed: 1, phases }
    }

    #[test]
    fn a_report_sums_by_who_did_it() {
        let done = vec![phase(Processor::Cpu, 0, 4096, 0), phase(Processor::Gpu, 4096, 8, 4096)];
        let report = Report::new(header(), done);
        assert_eq!((report.cpu_written_bytes, report.gpu_read_bytes), (4096, 4096));
        assert_eq!(report.predicted, Prediction { bytes_htod: 4096, bytes_dtoh: 0, gpu_faults: true });
    }

    #[test]
    fn what_is_told_is_what_is_heard() {
        let done = phase(Processor::Gpu, 1, 2, 3);
        let report = Report::new(header(), vec![done.clone()]);
        for event in [
            Event::Begun(header()),
            Event::Ready { phase: "cpu-read".to_owned() },
            Event::Done(done),
            Event::Ended(report),
        ] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
