//! Bytes over a GPU's link to the host.
//!
//! * [`software`]: of the lab's software GPU, exactly
//! * [`nvml`]: of a GPU, as NVIDIA's library samples it
//!
//! Remote accesses raise no fault, so without this nobody can say whether mapping memory remotely helped.

mod nvml;
mod software;

use model::{GpuUuid, LinkBytes, LinkMeter};
use nvml::Sampler;
use sys::Roots;

/// The meter for whatever GPUs this node has.
#[must_use]
pub fn meter(roots: Roots) -> Box<dyn LinkMeter> {
    Box::new(Meter { roots, sampler: Sampler::default() })
}

/// Whether the way to the host is the link that NVIDIA's library tells of. With a Grace CPU or a POWER9 it is `NVLink`, of which it tells nothing.
const IS_PCIE: bool = cfg!(target_arch = "x86_64");

#[derive(Debug)]
struct Meter {
    roots: Roots,
    sampler: Sampler,
}

impl LinkMeter for Meter {
    fn read(&mut self, gpu: GpuUuid) -> Option<LinkBytes> {
        if software::is_there(&self.roots) {
            software::read(&self.roots, gpu)
        } else if IS_PCIE {
            self.sampler.read(gpu)
        } else {
            None
        }
    }
}
