//! Workloads without a GPU: shell scripts with the output of a real one.

use std::process::Command;

use workloads::{
    phase::Processor,
    report::{Event, Gpu, Header, PhaseReport, Report},
    residency::Prediction,
};

use crate::stepped::Observer;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn header() -> Header {
    Header {
        workload: "cpu-write-gpu-read".to_owned(),
        pid: 7,
        gpu: gpu(),
        address: 1 << 40,
        bytes: MIB,
        pages: 256,
        iterations: 1,
        seed: 1,
        phases: vec!["cpu-write".to_owned(), "gpu-read".to_owned()],
    }
}

pub(crate) fn gpu() -> Gpu {
    Gpu {
        index: 0,
        name: "a GPU of the tests".to_owned(),
        uuid: "GPU-9a317702-d43c-8e11-b055-6f201caa9401".to_owned(),
        compute_capability: (9, 0),
        free_bytes: 140 << 30,
        total_bytes: 141 << 30,
        cuda_version: 13000,
        attributes: [("concurrent_managed_access".to_owned(), 1)].into(),
    }
}

pub(crate) fn phases() -> Vec<PhaseReport> {
    let phase = |phase: &str, toucher, read_bytes, written_bytes, predicted| PhaseReport {
        phase: phase.to_owned(),
        toucher: Some(toucher),
        read_bytes,
        written_bytes,
        pages_touched: 256,
        elapsed_ms: 1.5,
        predicted,
    };
    let copied = Prediction { bytes_htod: MIB, bytes_dtoh: 0, gpu_faults: true };
    vec![
        phase("cpu-write", Processor::Cpu, 0, MIB, Prediction::default()),
        phase("gpu-read", Processor::Gpu, MIB, 0, copied),
    ]
}

pub(crate) fn report() -> Report {
    Report::new(header(), phases())
}

pub(crate) fn script(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    command
}

/// Script with the output and the pauses of a workload, which ends with the given command.
pub(crate) fn workload(end: &str) -> Command {
    let mut lines = vec![Event::Begun(header())];
    for phase in phases() {
        lines.push(Event::Ready { phase: phase.phase.clone() });
        lines.push(Event::Done(phase));
    }
    let echo = |event: &Event| format!("echo '{}'", serde_json::to_string(event).unwrap());
    let waiting: Vec<String> = lines.iter().map(|line| format!("{}; read x || exit 9", echo(line))).collect();
    script(&format!("{}; {}; {end}", waiting.join("; "), echo(&Event::Ended(report()))))
}

/// Observer that records its calls.
#[derive(Default)]
pub(crate) struct Recorder(pub(crate) Vec<String>);

impl Observer for Recorder {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        self.0.push(format!("begun {}", header.workload));
        Ok(())
    }
    fn ready(&mut self, phase: &str) -> anyhow::Result<()> {
        self.0.push(format!("ready {phase}"));
        Ok(())
    }
    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        self.0.push(format!("done {}", report.phase));
        Ok(())
    }
}
