//! Bytes over a GPU's link to the host.
//!
//! * `software`: the lab's software GPU, exact
//! * `nvml`: a GPU, sampled by NVIDIA's library
//!
//! Remote accesses raise no fault, so the benefit of remote mappings is unknown without this.

mod nvml;
mod software;

use model::{GpuUuid, LinkBytes, LinkMeter};
use nvml::Sampler;
use sys::Roots;

/// Meter for the GPUs of this node.
#[must_use]
pub fn meter(roots: Roots) -> Box<dyn LinkMeter> {
    Box::new(Meter { roots, sampler: Sampler::default() })
}

/// Whether the link to the host is one that NVIDIA's library measures. With a Grace CPU or a POWER9
/// it is `NVLink`, which the library does not measure.
const IS_PCIE: bool = cfg!(target_arch = "x86_64");

#[derive(Debug)]
struct Meter {
    roots: Roots,
    sampler: Sampler,
}

impl LinkMeter for Meter {
    fn read(&mut self, gpu: GpuUuid) -> Option<LinkBytes> {
        if software::is_present(&self.roots) {
            software::read(&self.roots, gpu)
        } else if IS_PCIE {
            self.sampler.read(gpu)
        } else {
            None
        }
    }
}
