//! Residency of one block, by granules or by pages.

use std::ops::{BitAnd, BitOr, Not};

use crate::{
    mask::{BlockMask, PageMask},
    units::Mask,
};

/// Residency of the granules of a block. Each is in one place at most; in none if it was never
/// populated, or was discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<M = Mask> {
    /// Resident on the GPU.
    pub gpu: M,
    /// In host memory.
    pub host: M,
    /// On flash.
    pub flash: M,
    /// Part of the host memory that the CPU maps since its access. Migrating it costs more than
    /// migrating memory that the driver evicted.
    pub cpu_mapped: M,
}

impl<M: Copy + BitAnd<Output = M> + BitOr<Output = M> + Not<Output = M>> Place<M> {
    /// Part of the block that is in any memory.
    pub(crate) fn populated(self) -> M {
        self.gpu | self.host | self.flash
    }

    /// The residency without a part.
    pub(crate) fn without(self, mask: M) -> Self {
        self.map(|of| of & !mask)
    }
}

impl<M> Place<M> {
    pub(super) fn map<N>(self, each: impl Fn(M) -> N) -> Place<N> {
        let Self { gpu, host, flash, cpu_mapped } = self;
        Place { gpu: each(gpu), host: each(host), flash: each(flash), cpu_mapped: each(cpu_mapped) }
    }
}

impl Place<PageMask> {
    /// Residency by granules. A granule with any page on the GPU counts as there; one that the CPU
    /// maps in part counts as unmapped.
    pub(super) fn by_granules(self) -> Place {
        let gpu = self.gpu.granules();
        let flash = self.flash.granules() & !gpu;
        let host = self.host.granules() & !gpu & !flash;
        Place { gpu, host, flash, cpu_mapped: host & self.cpu_mapped.whole_granules() }
    }
}
