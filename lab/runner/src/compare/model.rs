//! Modelled time of a run on a machine, labelled as modelled. Time inside the lab is not
//! comparable.
//!
//! All costs are added: link bytes in each direction, then a cost for each fault batch and each
//! kernel. The model omits that copies overlap with kernels, and that the driver evicts and fetches
//! at the same time. Both would favour policies that migrate memory ahead of time.

use serde::{Deserialize, Serialize};

use super::measured::Measured;

/// Machine of the simulator, with the source of each value (docs/simulator.md).
const MACHINE: &str = include_str!("../../../../offline/machines/a100.toml");
/// Cost of a kernel: its launch. Assumed; the same under every policy, as the work is the same.
const KERNEL_NS: f64 = 5_000.0;

/// Costs of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Model {
    pub(super) machine: String,
    pub(super) to_gpu_bytes_per_second: f64,
    pub(super) to_host_bytes_per_second: f64,
    /// Cost of a fault batch, whatever it contains.
    pub(super) batch_ns: f64,
    pub(super) kernel_ns: f64,
}

#[derive(Deserialize)]
struct File {
    name: String,
    link_to_gpu: Link,
    link_to_host: Link,
    faults: Faults,
}

#[derive(Deserialize)]
struct Link {
    peak_bytes_per_s: Value,
}

#[derive(Deserialize)]
struct Faults {
    batch_ns: Value,
}

#[derive(Deserialize)]
struct Value {
    value: f64,
}

impl Model {
    pub(super) fn new() -> anyhow::Result<Self> {
        let File { name, link_to_gpu, link_to_host, faults } = toml::from_str(MACHINE)?;
        Ok(Self {
            machine: name,
            to_gpu_bytes_per_second: link_to_gpu.peak_bytes_per_s.value,
            to_host_bytes_per_second: link_to_host.peak_bytes_per_s.value,
            batch_ns: faults.batch_ns.value,
            kernel_ns: KERNEL_NS,
        })
    }

    /// Modelled time of a run, with all access rates multiplied by `factor`.
    pub(super) fn seconds(&self, run: &Measured, factor: f64) -> f64 {
        let (htod, dtoh) = run.link_bytes(factor);
        let link = htod as f64 / self.to_gpu_bytes_per_second + dtoh as f64 / self.to_host_bytes_per_second;
        link + (run.replays as f64 * self.batch_ns + run.kernels as f64 * self.kernel_ns) / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::measured::{Measured, Tenant};

    #[test]
    fn bytes_each_way_batches_and_kernels_add_up() {
        let model = Model {
            machine: String::new(),
            to_gpu_bytes_per_second: 1e9,
            to_host_bytes_per_second: 2e9,
            batch_ns: 1e6,
            kernel_ns: 1e3,
        };
        let tenant = Tenant { copied_htod_bytes: 500_000_000, copied_dtoh_bytes: 500_000_000, ..Tenant::default() };
        let run = Measured { replays: 10, kernels: 1000, tenants: vec![tenant], ..Measured::default() };
        assert!((model.seconds(&run, 1.0) - (0.5 + 0.25 + 0.01 + 0.001)).abs() < 1e-9);
    }

    #[test]
    fn the_machine_file_is_valid_and_its_values_are_plausible() {
        let model = Model::new().unwrap();
        assert!(model.to_gpu_bytes_per_second > 1e9 && model.batch_ns > 1e3, "{model:?}");
    }
}
