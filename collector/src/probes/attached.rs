//! Probes on one loading of the driver, as a source.

use std::{
    collections::{BTreeMap, HashSet},
    future, io,
    os::fd::OwnedFd,
    pin::Pin,
    time::{Duration, Instant},
};

use abi::{
    BlockRecord, CountKey, DropReason, Layout, Lifecycle, Probe, Tally, Tenant,
    count::{EvictionKey, SiteKey, Space},
    quota::SITES_CAPACITY,
};
use model::DriverInfo;
use sys::{
    btf::Btf,
    driver::{self, Module},
    driver_types,
    families::{Families, Family, KernelNumbers, va_space_file_type},
    preconditions::Attachment,
    sysfs,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    DISTRIBUTIONS_CAPACITY, EVICTIONS_CAPACITY, Functions, ITERATED, Probes, counts_capacity, orphans::Orphans, quotas,
    verdict::verdict,
};
use crate::{
    Config, clock,
    figures::Figures,
    ledger::Generation,
    refusal::Refusal,
    source::{Missed, ReadError, Reading, Source},
    sys_files::DriverFiles,
    tenants::Tenants,
};

/// Longest plausible destruction of a VA space.
const DESTRUCTION_MAX: Duration = Duration::from_mins(1);
/// Interval of searches for VA spaces: each visits every open file of the machine.
const ADOPT_AGAIN_MIN: Duration = Duration::from_secs(1);
const ADOPT_AGAIN_MAX: Duration = Duration::from_mins(1);

/// Percentage of used entries at which a map is nearly full.
const NEARLY_FULL: usize = 80;

/// Attached probes.
pub(crate) struct Attached {
    driver: DriverInfo,
    family: Family,
    probes: Probes,
    /// Last readable figures.
    figures: Figures,
    /// Known skipped runs of probes at the last query.
    skipped: u64,
    orphans: Orphans,
    /// Reason why the search for older VA spaces failed.
    warning: Option<String>,
    counts_capacity: u32,
    /// Whether it was logged that the maps are nearly full.
    nearly_full: bool,
    /// Keys of the last reading, which are not forgotten.
    held: Held,
    lifecycles: AsyncFd<OwnedFd>,
    returns: Returns,
    adoption: Adoption,
}

/// Entries of the maps.
#[derive(Default)]
struct Held {
    counts: Vec<CountKey>,
    evictions: Vec<EvictionKey>,
    sites: Vec<SiteKey>,
    spaces: Vec<Space>,
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
    pub(crate) fn new(
        config: &Config,
        families: &Families,
        module: &Module,
        files: DriverFiles,
    ) -> Result<Self, Refusal> {
        let roots = &config.roots;
        let version = module.version.clone().ok_or(Refusal::NoVersion)?;
        let (family, layout, iterated, fentry) = {
            let file = files.kernel_types.map_err(Refusal::KernelTypesUnreadable)?;
            let btf = Btf::parse(&file)?;
            let types = types_of(&btf, files.driver_types.as_deref());
            let family = family(families, &version, types.as_ref())?;
            let layout = family.layout(&KernelNumbers::from_btf(&btf, procfs::page_size())?);
            let layout = types.map_or(Ok(layout), |types| driver_types::completed(&family, &layout, &types));
            let layout = layout.map_err(|disagreement| Refusal::DriverTypes {
                version: version.clone(),
                family: family.to_string(),
                disagreement,
            })?;
            let fentry = match files.attachment {
                Attachment::Kprobe => None,
                Attachment::Fentry => Some(Functions::find(&btf, files.driver_types.as_deref())?),
            };
            let layout = family.with_residency(layout);
            (family, layout, btf.only_function(ITERATED), fentry)
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
            driver: DriverInfo {
                version,
                layout: Some(family.to_string()),
                attachment: Some(files.attachment.name()),
                parameters: files.parameters,
                residency_unavailable: probes.residency_unavailable(),
            },
            family,
            probes,
            figures: Figures::default(),
            skipped: 0,
            orphans: Orphans::new(now),
            warning: None,
            counts_capacity,
            nearly_full: false,
            held: Held::default(),
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
    fn adopt_if_missed(&mut self, now: Instant) {
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

    /// Capacity in counts of the probes' maps.
    pub(crate) const fn counts_capacity(&self) -> u32 {
        self.counts_capacity
    }

    /// Reads the statistics of the probes. Unreadable ones stay unchanged.
    fn read_figures(&mut self) {
        match self.probes.figures() {
            Ok(figures) => {
                let missed_returns = self.returns.missed(figures.in_destruction(), Instant::now());
                self.figures = Figures { missed_returns, ..figures };
            }
            Err(error) => tracing::error!("{}", ReadError::from(error)),
        }
    }

    /// Logs when a map becomes nearly full.
    fn warn_of_full_maps(&mut self, maps: [(&str, usize, u32); 4]) {
        let nearly_full = maps.into_iter().find(|(_, used, capacity)| used * 100 > *capacity as usize * NEARLY_FULL);
        if let (Some((what, used, capacity)), false) = (nearly_full, self.nearly_full) {
            tracing::warn!("{used} of {capacity} {what} are in use: at the limit, events are dropped as counts_full");
        }
        self.nearly_full = nearly_full.is_some();
    }

    /// Whether the kernel skipped runs of probes since the last query.
    fn has_skipped(&mut self) -> bool {
        let before = std::mem::replace(&mut self.skipped, self.figures.skipped());
        self.skipped > before
    }

    async fn lifecycles_ready(&self) {
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

impl Source for Attached {
    fn backend(&self) -> &'static str {
        "ebpf"
    }

    fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    fn procfs_ids_are_eightfold(&self) -> bool {
        self.family.procfs_ids_are_eightfold()
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.lifecycles_ready())
    }

    fn lifecycles(&mut self) -> Vec<Lifecycle> {
        self.probes.lifecycles()
    }

    fn misses_moves(&self) -> bool {
        self.probes.miss_moves()
    }

    fn read(&mut self, tenants: &mut Tenants, now: Duration) -> Result<Reading, ReadError> {
        // Before the keys: charges after this are no less than the keys.
        tenants.observe(self.probes.usage()?, clock::nanoseconds(now));
        let mut counts = self.probes.counts()?;
        let distributions = self.probes.distributions()?;
        let spaces = self.probes.spaces()?;
        let losses = tenants.losses(&spaces);
        let evictions = self.probes.evictions()?;
        let sites = self.probes.sites()?;
        self.warn_of_full_maps([
            ("counts", counts.len(), self.counts_capacity),
            ("parts of distributions", distributions.len(), DISTRIBUTIONS_CAPACITY),
            ("pairs of evictor and victim", evictions.len(), EVICTIONS_CAPACITY),
            ("sites of CPU faults", sites.len(), SITES_CAPACITY),
        ]);
        counts.extend(distributions);
        self.held = Held { counts: keys(&counts), evictions: keys(&evictions), sites: keys(&sites), spaces };
        Ok(Reading { counts, evictions, sites, losses })
    }

    fn forget(
        &mut self,
        gone: &HashSet<Generation>,
        tenants: &mut Tenants,
        shares_until_ns: &dyn Fn(Tenant) -> u64,
    ) -> Result<(), ReadError> {
        let Held { counts, evictions, sites, spaces } = &mut self.held;
        for key in counts.extract_if(.., |key| gone.contains(&key.generation)) {
            self.probes.forget(&key)?;
        }
        let is_final = |key: &mut EvictionKey| gone.contains(&key.victim) || gone.contains(&key.evictor);
        for key in evictions.extract_if(.., is_final) {
            self.probes.forget_eviction(&key)?;
        }
        for key in sites.extract_if(.., |key| gone.contains(&key.generation)) {
            self.probes.forget_site(&key)?;
        }
        for (tenant, released) in
            tenants.release(counts.iter(), evictions.iter(), sites.iter(), spaces, shares_until_ns)
        {
            self.probes.release(tenant, released)?;
        }
        Ok(())
    }

    fn forget_tenants(&mut self, tenants: &mut Tenants, now_ns: u64) -> Result<(), ReadError> {
        for (tenant, usage) in tenants.forgettable(now_ns) {
            if self.probes.forget_tenant(tenant, &usage)? {
                tenants.forgotten(tenant);
            }
        }
        Ok(())
    }

    fn blocks(&mut self, take: &mut dyn FnMut(BlockRecord)) {
        self.probes.blocks(take);
    }

    fn missed(&mut self, open: Vec<Generation>, tenants: &Tenants) -> Missed {
        self.read_figures();
        let some_records = self.has_skipped();
        let now = Instant::now();
        self.adopt_if_missed(now);
        let ring_full = self.figures.dropped.get(DropReason::RingFull as usize).copied().unwrap_or_default();
        if !self.orphans.is_due(ring_full, now) {
            return Missed { some_records, ends: Vec::new() };
        }
        let ends = match self.probes.spaces() {
            Ok(spaces) => {
                let shared = tenants.shared(0).into_iter().map(|shared| shared.generation);
                let known: HashSet<_> = spaces.iter().map(|space| space.generation).chain(shared).collect();
                self.orphans.look(open, &known, ring_full, now)
            }
            Err(error) => {
                tracing::error!("{}", ReadError::from(error));
                Vec::new()
            }
        };
        Missed { some_records, ends }
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }

    fn probes(&self) -> Option<&BTreeMap<Probe, String>> {
        Some(self.probes.missing())
    }

    fn contradiction(&self) -> Option<Refusal> {
        verdict(&self.family, &self.figures)
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

fn keys<K: Copy>(tallies: &[(K, Tally)]) -> Vec<K> {
    tallies.iter().map(|(key, _)| *key).collect()
}

/// The driver's types, if the kernel exposes them.
fn types_of<'a>(kernel: &'a Btf<'_>, file: Option<&'a [u8]>) -> Option<Btf<'a>> {
    let types = Btf::parse_module(kernel, file?);
    types
        .inspect_err(|error| tracing::warn!("the driver's types in /sys/kernel/btf/nvidia_uvm cannot be used: {error}"))
        .ok()
}

/// Family of a version, or by the driver's types if none is known.
fn family(families: &Families, version: &str, types: Option<&Btf<'_>>) -> Result<Family, Refusal> {
    if let Some(family) = families.of(version) {
        return Ok(family.clone());
    }
    let (version, supported) = (version.to_owned(), families.to_string());
    match types.map(|types| driver_types::derived_family(families, types)) {
        None => Err(Refusal::UnknownVersion { version, supported }),
        Some(Err(unfit)) => Err(Refusal::UnknownTypes { version, unfit }),
        Some(Ok(family)) => {
            tracing::warn!("driver {version} is in no known family ({supported}): its layout is from its types");
            Ok(family)
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
