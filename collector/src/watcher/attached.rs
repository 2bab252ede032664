//! Probes on one loading of the driver.

use std::{
    future, io,
    os::fd::OwnedFd,
    time::{Duration, Instant, SystemTime},
};

use abi::{DropReason, Layout};
use model::DriverInfo;
use sys::{
    btf::Btf,
    driver::{self, Module},
    driver_types::{self, Disagreement},
    families::{Families, Family, KernelNumbers, va_space_file_type},
    preconditions::Attachment,
    sysfs,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{orphans::Orphans, sys_files::DriverFiles, unread};
use crate::{
    Config,
    probes::{Figures, Functions, ITERATED, Probes, counts_capacity, quotas},
    refusal::Refusal,
};

/// Longest plausible destruction of a VA space.
const DESTRUCTION_MAX: Duration = Duration::from_mins(1);
/// Interval of searches for VA spaces: each visits every open file of the machine.
const ADOPT_AGAIN_MIN: Duration = Duration::from_secs(1);
const ADOPT_AGAIN_MAX: Duration = Duration::from_mins(1);

/// Attached probes.
pub(super) struct Attached {
    pub(super) module: Module,
    pub(super) driver: DriverInfo,
    pub(super) family: Family,
    pub(super) since: SystemTime,
    pub(super) probes: Probes,
    /// Last readable figures.
    pub(super) figures: Figures,
    /// Known skipped runs of probes at the last query.
    skipped: u64,
    pub(super) orphans: Orphans,
    /// Reason why the search for older VA spaces failed.
    pub(super) warning: Option<String>,
    pub(super) counts_capacity: u32,
    lifecycles: AsyncFd<OwnedFd>,
    returns: Returns,
    adoption: Adoption,
}

/// Search for VA spaces whose creation the probes missed.
struct Adoption {
    /// Types of the kernel for the search, or the reason why there are none.
    types: Result<Vec<u8>, String>,
    /// Events of unknown VA spaces at its last run.
    unknown: u64,
    /// Earliest time of the next search.
    again: Instant,
    wait: Duration,
}

impl Attached {
    /// Attaches the probes to the driver, and finds the existing VA spaces.
    pub(super) fn new(
        config: &Config,
        families: &Families,
        module: Module,
        files: DriverFiles,
    ) -> Result<Self, Refusal> {
        let roots = &config.roots;
        let version = module.version.clone().ok_or(Refusal::NoVersion)?;
        let family = families
            .of(&version)
            .cloned()
            .ok_or_else(|| Refusal::UnknownVersion { version: version.clone(), supported: families.to_string() })?;
        let (layout, iterated, fentry) = {
            let file = files.kernel_types.map_err(Refusal::KernelTypesUnreadable)?;
            let btf = Btf::parse(&file)?;
            let layout = family.layout(&KernelNumbers::from_btf(&btf, procfs::page_size())?);
            let layout = agreed(files.driver_types.as_deref(), &btf, &layout).map_err(|disagreement| {
                Refusal::DriverTypes { version: version.clone(), family: family.to_string(), disagreement }
            })?;
            let fentry = match files.attachment {
                Attachment::Kprobe => None,
                Attachment::Fentry => Some(Functions::find(&btf, files.driver_types.as_deref())?),
            };
            (family.with_residency(layout), btf.only_function(ITERATED), fentry)
        };
        let device = driver::uvm_device(roots);
        let layout = Layout {
            uvm_device: device.unwrap_or_default(),
            va_space_file_type: va_space_file_type(&version),
            ..layout
        };
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| Refusal::Load(error.to_string()))?;
        let counts_capacity = counts_capacity(cpus);
        let quotas = quotas(counts_capacity);
        let mut probes = Probes::load(&layout, counts_capacity, &quotas, &config.records, fentry.as_ref())?;
        probes.attach(family.first_major(), layout.block_gpus != 0)?;
        let lifecycles = probes
            .lifecycles_fd()
            .and_then(watched)
            .map_err(|error| Refusal::Load(format!("cannot wait for the ring of lifecycle records: {error}")))?;

        let types = match (device, iterated) {
            (Some(_), Ok(types)) => Ok(types),
            (None, _) => Err("/proc/devices does not show the driver's device".to_owned()),
            (_, Err(error)) => Err(format!("this kernel cannot list open files: {error}")),
        };
        let now = Instant::now();
        let mut attached = Self {
            module,
            driver: DriverInfo {
                version,
                layout: Some(family.to_string()),
                attachment: Some(files.attachment.name()),
                parameters: files.parameters,
                residency_unavailable: probes.residency_unavailable(),
            },
            family,
            since: SystemTime::now(),
            probes,
            figures: Figures::default(),
            skipped: 0,
            orphans: Orphans::new(now),
            warning: None,
            counts_capacity,
            lifecycles,
            returns: Returns::new(now),
            adoption: Adoption { types, unknown: 0, again: now, wait: ADOPT_AGAIN_MIN },
        };
        // After the attachment: from now on the probes see each open of the driver.
        if sysfs::read(roots, driver::in_use).unwrap_or(true) {
            attached.adopt(now);
        }
        attached.read_figures();
        Ok(attached)
    }

    /// Searches for VA spaces again after events of unknown ones: one that was created during the
    /// attachment, or whose creation the probes missed.
    pub(super) fn adopt_if_missed(&mut self, now: Instant) {
        let unknown = self.figures.dropped.get(DropReason::UnknownVaSpace as usize).copied().unwrap_or_default();
        if unknown > self.adoption.unknown && now >= self.adoption.again {
            self.adoption.unknown = unknown;
            self.adopt(now);
        }
    }

    fn adopt(&mut self, now: Instant) {
        let Adoption { types, again, wait, .. } = &mut self.adoption;
        *again = now + *wait;
        *wait = (*wait * 2).min(ADOPT_AGAIN_MAX);
        let adopt = |types: &Vec<u8>| self.probes.adopt(types).map_err(|error| error.to_string());
        let adopted = types.as_ref().map_err(Clone::clone).and_then(adopt);
        let warning = adopted.err().map(|reason| {
            format!(
                "cannot search for processes that opened the driver before uvmd attached ({reason}): their events are dropped as unknown_va_space"
            )
        });
        if let Some(warning) = warning.as_ref().filter(|warning| self.warning.as_ref() != Some(warning)) {
            tracing::warn!("{warning}");
        }
        self.warning = warning;
    }

    /// Reads the statistics of the probes. Unreadable ones stay unchanged.
    pub(super) fn read_figures(&mut self) {
        match self.probes.figures() {
            Ok(figures) => {
                let missed_returns = self.returns.missed(figures.in_destruction(), Instant::now());
                self.figures = Figures { missed_returns, ..figures };
            }
            Err(error) => unread(&error),
        }
    }

    /// Whether the kernel skipped runs of probes since the last query.
    pub(super) fn has_skipped(&mut self) -> bool {
        let before = std::mem::replace(&mut self.skipped, self.figures.skipped());
        self.skipped > before
    }

    /// Completes when a VA space was created or destroyed.
    pub(super) async fn lifecycles_ready(&self) {
        match self.lifecycles.readable().await {
            // Cleared before the records are read, so that one that arrives meanwhile is not
            // missed.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                // The runtime shuts down. The regular readings read the records too.
                tracing::debug!("cannot wait for lifecycle records: {error}");
                future::pending::<()>().await;
            }
        }
    }
}

/// Layout, checked against the driver's types if the kernel exposes them.
fn agreed(driver: Option<&[u8]>, kernel: &Btf<'_>, layout: &Layout) -> Result<Layout, Disagreement> {
    let Some(file) = driver else { return Ok(*layout) };
    match Btf::parse_module(kernel, file) {
        Ok(types) => driver_types::completed(layout, &types),
        Err(error) => {
            tracing::warn!("the driver's types in /sys/kernel/btf/nvidia_uvm cannot be used: {error}");
            Ok(*layout)
        }
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe for types that may change their descriptor; an OwnedFd cannot"
)]
fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// Destructions that started and whose return was missed: the minimum in progress at all readings
/// of a long period.
struct Returns {
    missed: u64,
    least: u64,
    since: Instant,
}

impl Returns {
    const fn new(now: Instant) -> Self {
        Self { missed: 0, least: u64::MAX, since: now }
    }

    /// Number of missed returns so far, given the destructions in progress now.
    fn missed(&mut self, in_destruction: u64, now: Instant) -> u64 {
        self.least = self.least.min(in_destruction);
        if now.duration_since(self.since) >= DESTRUCTION_MAX {
            *self = Self { missed: self.missed.max(self.least), ..Self::new(now) };
        }
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destruction_pending_for_a_minute_is_a_missed_return() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut returns = Returns::new(begin);
        let missed =
            [(0, 2), (30, 1), (60, 3), (61, 2), (120, 5), (180, 1)].map(|(second, n)| returns.missed(n, at(second)));
        assert_eq!(missed, [0, 0, 1, 1, 2, 2]);
    }
}
