//! Costs of a machine's memories, links and driver: a file in machines/ for each, where every value
//! has its source.

mod thrashing;

use std::f64::consts::PI;

use serde::Deserialize;
use thiserror::Error;
pub(crate) use thrashing::MAX_EVENTS;
pub use thrashing::Thrashing;

/// Built-in machines.
const FILES: [(&str, &str); 6] = [
    ("gtx1080ti", include_str!("../../machines/gtx1080ti.toml")),
    ("a100", include_str!("../../machines/a100.toml")),
    ("rtx5090", include_str!("../../machines/rtx5090.toml")),
    ("h100", include_str!("../../machines/h100.toml")),
    ("h200", include_str!("../../machines/h200.toml")),
    ("gh200", include_str!("../../machines/gh200.toml")),
];

/// Value with its source.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Measurement or specification; or that there is none.
    pub source: String,
}

/// One direction of the link between host and GPU.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate of large transfers.
    pub peak_bytes_per_s: Sourced<f64>,
    /// Time of the smallest transfer.
    pub latency_ns: Sourced<f64>,
}

/// One direction of flash.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flash {
    /// Rate of large transfers.
    pub bytes_per_s: Sourced<f64>,
    /// Time before the first byte of a transfer.
    pub latency_ns: Sourced<f64>,
}

/// Cost of faults in the driver.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// Maximum of faults in a batch.
    pub batch_entries: Sourced<u32>,
    /// `uvm_perf_prefetch_threshold`.
    pub prefetch_threshold_percent: Sourced<u32>,
    /// Fixed time of a batch: the interrupt, the fetch, the replay.
    pub batch_ns: Sourced<f64>,
    /// Time of each transfer to the GPU, besides the link's time.
    pub transfer_ns: Sourced<f64>,
    /// Time of memory that the driver had evicted, besides the link's time.
    pub evicted_ns_per_mib: Sourced<f64>,
    /// Time of memory that the CPU wrote and maps, besides the link's time.
    pub cpu_mapped_ns_per_mib: Sourced<f64>,
    /// Time of first touches: zeroing and mapping.
    pub populate_ns_per_mib: Sourced<f64>,
    /// Time of a CPU fault, besides the link's time.
    pub cpu_fault_ns: Sourced<f64>,
}

/// Cost of a migration by request: the prefetch call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// Time of a call.
    pub call_ns: Sourced<f64>,
    /// Driver's time of each block of 2 MiB; the link waits no longer than that.
    pub block_ns: Sourced<f64>,
}

/// Capacity of memories.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacity {
    /// GPU memory.
    pub gpu_bytes: Sourced<u64>,
    /// Host memory, all of which a process may use.
    pub host_bytes: Sourced<u64>,
}

/// Machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name for people.
    pub name: String,
    /// Capacity of its memories.
    pub memory: Capacity,
    /// Link from the host to the GPU.
    pub link_to_gpu: Link,
    /// Link from the GPU to the host.
    pub link_to_host: Link,
    /// From flash to the host.
    pub flash_read: Flash,
    /// From the host to flash.
    pub flash_write: Flash,
    /// Threads resident on the GPU at once.
    pub resident_threads: Sourced<u64>,
    /// Costs of the driver's service of faults.
    pub faults: Faults,
    /// Costs of the driver's service of requests.
    pub requests: Requests,
    /// Parameters of the driver's thrashing detection.
    pub thrashing: Thrashing,
}

/// Error in a machine's name or file.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum MachineError {
    #[error("no machine {name:?}; there are {}", Machine::names().collect::<Vec<_>>().join(", "))]
    Unknown { name: String },
    #[error("{0}")]
    Syntax(#[from] toml::de::Error),
    #[error("{what} is out of range")]
    OutOfRange { what: &'static str },
}

impl Machine {
    /// Names of the built-in machines.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FILES.iter().map(|(name, _)| *name)
    }

    /// A built-in machine.
    ///
    /// # Errors
    /// If no machine has that name.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        let file = FILES.iter().find(|(known, _)| *known == name);
        Self::parse(file.ok_or_else(|| MachineError::Unknown { name: name.to_owned() })?.1)
    }

    /// Parses a machine file.
    ///
    /// # Errors
    /// If something is missing, unknown or out of range.
    pub fn parse(text: &str) -> Result<Self, MachineError> {
        let machine: Self = toml::from_str(text)?;
        let rates = [
            ("a link's peak", machine.link_to_gpu.peak_bytes_per_s.value),
            ("a link's peak", machine.link_to_host.peak_bytes_per_s.value),
            ("flash's rate", machine.flash_read.bytes_per_s.value),
            ("flash's rate", machine.flash_write.bytes_per_s.value),
        ];
        let faults = &machine.faults;
        let times = [
            machine.link_to_gpu.latency_ns.value,
            machine.link_to_host.latency_ns.value,
            machine.flash_read.latency_ns.value,
            machine.flash_write.latency_ns.value,
            faults.batch_ns.value,
            faults.transfer_ns.value,
            faults.evicted_ns_per_mib.value,
            faults.cpu_mapped_ns_per_mib.value,
            faults.populate_ns_per_mib.value,
            faults.cpu_fault_ns.value,
            machine.requests.call_ns.value,
            machine.requests.block_ns.value,
        ];
        if let Some((what, _)) = rates.iter().find(|(_, rate)| !(rate.is_finite() && *rate > 0.0)) {
            return Err(MachineError::OutOfRange { what });
        }
        if times.iter().any(|time| !(time.is_finite() && *time >= 0.0)) {
            return Err(MachineError::OutOfRange { what: "a time" });
        }
        // A batch with fewer entries than a granule has pages would migrate nothing.
        if faults.batch_entries.value < 16 || machine.resident_threads.value == 0 {
            return Err(MachineError::OutOfRange { what: "a count" });
        }
        machine.thrashing.check()?;
        Ok(machine)
    }

    /// This machine with a compression engine at the GPU's memory for all data on the link, as
    /// cDMA's. Bytes count before compression, at the engine's rate for data that shrink to 1 /
    /// `ratio`. Data with ratios below 1 are stored uncompressed.
    #[must_use]
    pub fn packing(&self, ratio: f64) -> Self {
        let mut machine = self.clone();
        for link in [&mut machine.link_to_gpu, &mut machine.link_to_host] {
            let engine = zvc::Engine { link_bytes_per_s: link.peak_bytes_per_s.value, ..zvc::Engine::PAPER };
            link.peak_bytes_per_s.value = engine.bytes_per_s(ratio.max(1.0)).max(engine.link_bytes_per_s);
            link.peak_bytes_per_s.source.push_str("; times the ratio of packing, as far as cDMA's engine reads");
            link.latency_ns.value += engine.latency_ns;
        }
        machine
    }
}

impl Link {
    /// Time of one transfer. Large ones run at the peak rate, the smallest takes the latency.
    /// Between them the shape is that measured on a link of PCI Express 3.0 (Ganguly et al., an arc
    /// tangent of the size).
    #[must_use]
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        let (bytes, peak_per_ns) = (bytes as f64, self.peak_bytes_per_s.value / 1e9);
        let latency = self.latency_ns.value;
        if latency == 0.0 {
            return to_ns(bytes / peak_per_ns);
        }
        let shape = PI / (2.0 * peak_per_ns * latency);
        to_ns(bytes / (peak_per_ns * 2.0 / PI * (shape * bytes).atan()))
    }
}

impl Flash {
    /// Time of one transfer.
    #[must_use]
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        to_ns(self.latency_ns.value + bytes as f64 * 1e9 / self.bytes_per_s.value)
    }
}

/// Whole nanoseconds, rounded up.
#[must_use]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; nothing is negative")]
pub(crate) fn to_ns(ns: f64) -> u64 {
    ns.ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_machine_is_complete_and_every_value_has_a_source() {
        for name in Machine::names() {
            let machine = Machine::named(name).unwrap();
            assert!(!machine.name.is_empty());
            let text = FILES.iter().find(|(known, _)| *known == name).unwrap().1;
            let values = text.lines().filter(|line| line.contains("value ="));
            assert!(values.clone().count() > 15);
            for line in values {
                assert!(line.contains("source = \"") && !line.contains("source = \"\""), "{name}: {line}");
            }
        }
    }

    #[test]
    fn a_gpu_has_as_much_memory_as_the_one_that_traces_are_made_for() {
        for hardware in trace_sources::zoo::Hardware::all() {
            let machine = Machine::named(&hardware.name).unwrap();
            assert_eq!(machine.memory.gpu_bytes.value, hardware.memory_bytes, "{}", hardware.name);
        }
    }

    #[test]
    fn the_error_for_an_unknown_machine_lists_the_known_ones() {
        let message = Machine::named("tpu").unwrap_err().to_string();
        assert_eq!(message, "no machine \"tpu\"; there are gtx1080ti, a100, rtx5090, h100, h200, gh200");
    }

    #[test]
    fn packing_makes_the_link_faster_by_the_ratio_and_no_faster_than_the_engine_reads() {
        let machine = Machine::named("gtx1080ti").unwrap();
        let rate = |ratio| machine.packing(ratio).link_to_host.peak_bytes_per_s.value;
        let own = machine.link_to_host.peak_bytes_per_s.value;
        for (ratio, expected) in [(2.0, 2.0 * own), (0.9, own), (32.0, 200e9)] {
            assert!((rate(ratio) / expected - 1.0).abs() < 1e-9, "{ratio}: {}", rate(ratio));
        }
        // Compression does not slow down a link that is faster than the engine.
        let fast = Machine::named("gh200").unwrap();
        assert!(fast.packing(2.0).link_to_gpu.peak_bytes_per_s.value >= fast.link_to_gpu.peak_bytes_per_s.value);
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        let text = include_str!("../../machines/h200.toml");
        let rate = text.replace("peak_bytes_per_s = { value = ", "peak_bytes_per_s = { value = -");
        assert!(matches!(Machine::parse(&rate), Err(MachineError::OutOfRange { .. })));
        assert!(matches!(Machine::parse("name = 'x'"), Err(MachineError::Syntax(_))));
    }

    #[test]
    fn unknown_fields_are_rejected_in_every_table() {
        let text = include_str!("../../machines/h200.toml");
        let entry = "colour = { value = 1, source = 'x' }\n";
        for wrong in [
            format!("{entry}{text}"),
            format!("{text}\n[colour]\n{entry}"),
            text.replace("[memory]\n", &format!("[memory]\n{entry}")),
        ] {
            let message = Machine::parse(&wrong).unwrap_err().to_string();
            assert!(message.contains("unknown field `colour`"), "{message}");
        }
    }

    #[test]
    fn larger_transfers_are_faster_by_the_byte_and_never_faster_than_the_peak() {
        let link = Machine::named("gtx1080ti").unwrap().link_to_gpu;
        let rates: Vec<_> =
            (0..16).map(|shift| (4096_u64 << shift) as f64 / link.transfer_ns(4096 << shift) as f64).collect();
        assert!(rates.windows(2).all(|pair| pair[0] < pair[1]), "{rates:?}");
        assert!(rates.iter().all(|rate| rate * 1e9 < link.peak_bytes_per_s.value));
    }
}
