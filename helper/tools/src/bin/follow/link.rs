//! Counters of bytes over the link, and of GPU faults.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use sys::{
    Roots, driver,
    pidfd::PidFd,
    uvm::{counters::Counters, target::VaSpace},
};

/// Cumulative counts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// To the GPU.
    pub(crate) in_bytes: u64,
    /// From the GPU.
    pub(crate) out_bytes: u64,
    /// GPU faults.
    pub(crate) faults: u64,
}

impl Counts {
    /// Difference from earlier counts.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self {
            in_bytes: self.in_bytes.saturating_sub(earlier.in_bytes),
            out_bytes: self.out_bytes.saturating_sub(earlier.out_bytes),
            faults: self.faults.saturating_sub(earlier.faults),
        }
    }
}

/// Source of the counts: the driver's counters of the process, which keep its VA space alive.
pub(crate) struct Link {
    counters: Counters,
    /// File of the lab's software GPU, which counts the bytes instead of the driver.
    lab: Option<PathBuf>,
}

impl Link {
    /// `name`: a file of the lab, or `driver`.
    pub(crate) fn open(name: &Path, pid: u32) -> anyhow::Result<Self> {
        let roots = Roots::default();
        let version = driver::module(&roots).and_then(|module| module.version).context("no driver is loaded")?;
        let process = PidFd::open(pid)?;
        let va_space = VaSpace::of(&process, &roots)?.into_iter().next().context("no VA space")?;
        let counters = Counters::attach(&va_space, &version)?;
        Ok(Self { counters, lab: (name != Path::new("driver")).then(|| name.to_owned()) })
    }

    pub(crate) fn read(&self) -> anyhow::Result<Counts> {
        let counted = self.counters.read();
        let (mut in_bytes, mut out_bytes) = (counted.bytes_htod, counted.bytes_dtoh);
        if let Some(path) = &self.lab {
            let text = fs::read_to_string(path)?;
            let count = |name: &str| -> anyhow::Result<u64> {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                Ok(line.with_context(|| format!("{} has no {name}", path.display()))?.trim().parse()?)
            };
            (in_bytes, out_bytes) = (count("copied_htod_bytes")?, count("copied_dtoh_bytes")?);
        }
        Ok(Counts { in_bytes, out_bytes, faults: counted.fault_entries })
    }
}
