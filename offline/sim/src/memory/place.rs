//! Where the parts of one block are, by granules or by pages.

use std::ops::{BitAnd, BitOr, Not};

use crate::{
    mask::{BlockMask, PageMask},
    units::Mask,
};

/// Where the granules of a block are: each in one place at most, in none if nothing was ever put there or it was discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place<M = Mask> {
    /// Resident on the GPU.
    pub gpu: M,
    /// In host memory.
    pub host: M,
    /// On flash.
    pub flash: M,
    /// Of what is on the host, what the CPU maps since it has touched it: taking it from there costs more than what the driver evicted.
    pub cpu_mapped: M,
}

impl<M: Copy + BitAnd<Output = M> + BitOr<Output = M> + Not<Output = M>> Place<M> {
    /// What of it is somewhere.
    pub(crate) fn populated(self) -> M {
        self.gpu | self.host | self.flash
    }

    /// The same without this.
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
    /// By granules: one of which something is on the GPU is there, one that the CPU maps in part it does not map.
    pub(super) fn by_granules(self) -> Place {
        let gpu = self.gpu.granules();
        let flash = self.flash.granules() & !gpu;
        let host = self.host.granules() & !gpu & !flash;
        Place { gpu, host, flash, cpu_mapped: host & self.cpu_mapped.whole_granules() }
    }
}
