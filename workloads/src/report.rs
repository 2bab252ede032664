//! Reports of `uvm-workload`: as JSON, and line by line for observers that take figures between
//! phases (`--hold`).

use serde::{Deserialize, Serialize};

use crate::{phase::Processor, residency::Prediction};

/// GPU of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// CUDA's number of the GPU.
    pub index: i32,
    /// Product name.
    pub name: String,
    /// UUID, as shown by nvidia-smi.
    pub uuid: String,
    /// Compute capability.
    pub compute_capability: (i32, i32),
    /// Free GPU memory before the workload.
    pub free_bytes: u64,
    /// Total GPU memory.
    pub total_bytes: u64,
    /// Newest CUDA that the driver supports, as 1000 × major + 10 × minor.
    pub cuda_version: i32,
    /// Device attributes that determine how managed memory works, with the names of the CUDA driver
    /// API in lower case.
    pub attributes: std::collections::BTreeMap<String, i32>,
}

/// Description of a run, at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// Name of the workload.
    pub workload: String,
    /// Process id.
    pub pid: u32,
    /// The GPU.
    pub gpu: Gpu,
    /// Address of the managed memory.
    pub address: u64,
    /// Size of the managed memory.
    pub bytes: u64,
    /// Size of the managed memory, in pages.
    pub pages: u64,
    /// Number of rounds.
    pub iterations: u32,
    /// Seed of the pattern and the shuffle.
    pub seed: u64,
    /// Phases to be executed.
    pub phases: Vec<String>,
}

/// Executed and verified phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// Name of the phase.
    pub phase: String,
    /// Processor that accessed memory.
    pub toucher: Option<Processor>,
    /// Bytes read by the program, each word once.
    pub read_bytes: u64,
    /// Bytes written by the program, each word once.
    pub written_bytes: u64,
    /// Pages accessed, each counted once.
    pub pages_touched: u64,
    /// Time by the GPU's events for GPU work, by the host's clock for CPU work.
    pub elapsed_ms: f64,
    /// Predicted cost by the driver's rules.
    pub predicted: Prediction,
}

/// Report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Description of the run.
    #[serde(flatten)]
    pub header: Header,
    /// Executed phases, all verified: wrong data ends the run with an error.
    pub done: Vec<PhaseReport>,
    /// Bytes written by the CPU in all phases.
    pub cpu_written_bytes: u64,
    /// Bytes read by the GPU in all phases.
    pub gpu_read_bytes: u64,
    /// Sum of the predictions.
    pub predicted: Prediction,
}

impl Report {
    /// Report with its sums.
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

/// Line on standard output with `--hold`. After `Begun`, `Ready` and `Done` the program waits for a
/// line on standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Memory is allocated and untouched.
    Begun(Header),
    /// A phase is next.
    Ready {
        /// Name of the phase.
        phase: String,
    },
    /// A phase is over, and the GPU is idle.
    Done(PhaseReport),
    /// All phases are over; the process exits.
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
    fn a_report_has_sums_by_processor() {
        let done = vec![phase(Processor::Cpu, 0, 4096, 0), phase(Processor::Gpu, 4096, 8, 4096)];
        let report = Report::new(header(), done);
        assert_eq!((report.cpu_written_bytes, report.gpu_read_bytes), (4096, 4096));
        assert_eq!(report.predicted, Prediction { bytes_htod: 4096, bytes_dtoh: 0, gpu_faults: true });
    }

    #[test]
    fn events_survive_serialization() {
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
