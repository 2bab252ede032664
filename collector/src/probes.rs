//! Probes, loaded and attached, and their maps.
//!
//! * `attached`: probes on one loading of the driver, as a source; `orphans` and `verdict`: their
//!   plausibility
//! * `fentry`: attachment without kprobes
//! * `table`: functions of the probes, and uncounted events without them
//! * `maps`: output of the probes
//! * `errors`: errors of the kernel when it loads them

use std::{
    collections::BTreeMap,
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use abi::{
    CountKey, Layout, Probe, Quotas, Released, Tally, Tenant, Usage,
    count::{EvictionKey, SiteKey, Space},
    names,
};
use aya::{
    Btf, Ebpf, EbpfLoader, Endianness,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, PerCpuHashMap, RingBuf},
    programs::{Iter, KProbe, ProgramError},
};

pub(crate) use self::{attached::Attached, fentry::Functions};
use self::{
    errors::{AdoptError, chain, io_error, not_loaded, not_permitted, tail},
    fentry::Loader,
    table::{NO_RESIDENCY, Need, PROBES, Row},
};
use crate::{
    Records,
    figures::{Figures, ProgramInfo},
    refusal::Refusal,
};

mod attached;
mod errors;
mod fentry;
mod maps;
mod orphans;
mod table;
mod verdict;

/// Programs, as built by scripts/build-ebpf.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/uvmd-probes"));

/// Iterator that finds the VA spaces older than the probes.
const ADOPT: &str = "uvm_adopt";
/// Function of the kernel that represents the iterated objects.
pub(crate) const ITERATED: &str = "bpf_iter_task_file";

/// Memory of the counts, allocated up front, unless [`COUNTS_MIN`] needs more. A process with
/// faults and copies in both directions uses about ten entries on each GPU.
const COUNTS_MAX_BYTES: usize = 64 << 20;
/// Minimum of counts, enough for 200 processes on eight GPUs each, for any number of CPUs: 128 MiB
/// for 512 of them.
const COUNTS_MIN: usize = 16384;
/// Maximum of counts: more than the probes can have VA spaces for.
const COUNTS_MAX: usize = 65536;

/// Capacity in keys of distributions, for any number of CPUs: each takes some 80 bytes. A process
/// uses one to three hundred on each GPU.
pub(crate) const DISTRIBUTIONS_CAPACITY: u32 = 65536;

/// Capacity in pairs of evictor and victim, by cause and GPU: each takes some 80 bytes.
pub(crate) const EVICTIONS_CAPACITY: u32 = 16384;

/// Minimum of threads whose last CPU faults are known.
const LAST_FAULTS_MIN: usize = 8192;
/// Entries that each CPU takes from an LRU hash in advance (`LOCAL_FREE_TARGET` of the kernel), of
/// which a quarter of the map is enough for all: else entries in use are replaced.
const LAST_FAULTS_PER_CPU: usize = 4 * 128;

/// Capacity in threads whose last CPU faults are known, on a machine with this many possible CPUs.
fn last_faults_capacity(cpus: usize) -> u32 {
    u32::try_from(cpus.saturating_mul(LAST_FAULTS_PER_CPU).max(LAST_FAULTS_MIN)).unwrap_or(u32::MAX)
}

/// Capacity in counts on a machine with this many possible CPUs: each entry takes 16 bytes per CPU.
#[must_use]
pub(crate) fn counts_capacity(cpus: usize) -> u32 {
    let entries = COUNTS_MAX_BYTES / (size_of::<Tally>() * cpus.max(1));
    u32::try_from(entries.clamp(COUNTS_MIN, COUNTS_MAX)).unwrap_or(u32::MAX)
}

/// Quotas of one process and one user, for maps with this capacity in counts.
#[must_use]
pub(crate) fn quotas(counts_capacity: u32) -> Quotas {
    Quotas::new(counts_capacity, DISTRIBUTIONS_CAPACITY, EVICTIONS_CAPACITY)
}

/// Probes in the kernel. A drop detaches them and frees the maps.
pub struct Probes {
    ebpf: Ebpf,
    /// Programs that are attached by fentry; `None` if they are attached by kprobes.
    fentry: Option<BTreeMap<Probe, fentry::Program>>,
    counts: PerCpuHashMap<MapData, CountKey, Tally>,
    distributions: HashMap<MapData, CountKey, Tally>,
    evictions: HashMap<MapData, EvictionKey, Tally>,
    sites: HashMap<MapData, SiteKey, Tally>,
    spaces: HashMap<MapData, u64, Space>,
    usage: HashMap<MapData, Tenant, Usage>,
    released: HashMap<MapData, Tenant, Released>,
    lifecycles: RingBuf<MapData>,
    blocks: RingBuf<MapData>,
    records: PerCpuArray<MapData, u64>,
    dropped: PerCpuArray<MapData, u64>,
    self_tests: PerCpuArray<MapData, u64>,
    hits: PerCpuArray<MapData, u64>,
    fatal_error: Array<MapData, u32>,
    /// Rejected probes, and the errors.
    rejected: BTreeMap<Probe, Refusal>,
    /// Uncounted events of the probes that could not be attached, and the reasons.
    missing: BTreeMap<Probe, String>,
}

impl Probes {
    /// Loads the probes for a layout, with a capacity in counts, quotas and limits of block
    /// records; for kprobes, or for fentry with the functions' ids. They do nothing until attached.
    ///
    /// # Errors
    /// If the kernel rejects a needed one. It may reject others: these count as missing when the
    /// rest is attached.
    pub(crate) fn load(
        layout: &Layout,
        counts_capacity: u32,
        quotas: &Quotas,
        records: &Records,
        fentry: Option<&Functions>,
    ) -> Result<Self, Refusal> {
        Self::load_some(layout, counts_capacity, quotas, records, fentry, |_| true)
    }

    /// Loads the maps, and of the probes those programs that are `wanted`.
    pub(crate) fn load_some(
        layout: &Layout,
        counts_capacity: u32,
        quotas: &Quotas,
        records: &Records,
        fentry: Option<&Functions>,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Self, Refusal> {
        let limit = records.limit();
        let is_fentry = u32::from(fentry.is_some());
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| Refusal::Load(error.to_string()))?;
        let mut ebpf = EbpfLoader::new()
            // The probes need none of the kernel's types, whose parsing costs 36 MB.
            .btf(None)
            .override_global(names::LAYOUT, layout, true)
            .override_global(names::RECORD_LIMIT, &limit, true)
            .override_global(names::QUOTAS, quotas, true)
            .override_global(names::IS_FENTRY, &is_fentry, true)
            .map_max_entries(names::COUNTS, counts_capacity)
            .map_max_entries(names::DISTRIBUTIONS, DISTRIBUTIONS_CAPACITY)
            .map_max_entries(names::EVICTIONS, EVICTIONS_CAPACITY)
            .map_max_entries(names::LAST_FAULTS, last_faults_capacity(cpus))
            .map_max_entries(names::BLOCKS, records.ring_bytes)
            .load(OBJECT)
            .map_err(|error| not_loaded(&error))?;
        let loader = fentry.map(|functions| Loader::new(&ebpf, functions)).transpose()?;
        let mut programs = BTreeMap::new();
        let mut rejected = BTreeMap::new();
        for row in PROBES.iter().filter(|row| wanted(row.program)) {
            let result = match &loader {
                Some(loader) => loader.load(row).map(|program| drop(programs.insert(row.probe, program))),
                None => load_one(&mut ebpf, row.program),
            };
            // A probe that is too large for old kernels must not disable the others.
            match (result, row.need) {
                (Ok(()), _) => {}
                (Err(refusal), Need::Always) | (Err(refusal @ Refusal::NotPermitted), _) => return Err(refusal),
                (Err(refusal), Need::Without { .. }) => drop(rejected.insert(row.probe, refusal)),
            }
        }
        let mut usage: HashMap<MapData, Tenant, Usage> = take(&mut ebpf, names::USAGE)?;
        // The node's usage always exists: tenants without their own are charged to it.
        usage.insert(Tenant::NODE, Usage::default(), 0).map_err(|error| not_loaded(&error))?;
        Ok(Self {
            counts: take(&mut ebpf, names::COUNTS)?,
            spaces: take(&mut ebpf, names::SPACES)?,
            usage,
            released: take(&mut ebpf, names::RELEASED)?,
            distributions: take(&mut ebpf, names::DISTRIBUTIONS)?,
            evictions: take(&mut ebpf, names::EVICTIONS)?,
            sites: take(&mut ebpf, names::SITES)?,
            lifecycles: take(&mut ebpf, names::LIFECYCLES)?,
            blocks: take(&mut ebpf, names::BLOCKS)?,
            records: take(&mut ebpf, names::RECORDS)?,
            dropped: take(&mut ebpf, names::DROPPED)?,
            self_tests: take(&mut ebpf, names::SELF_TESTS)?,
            hits: take(&mut ebpf, names::HITS)?,
            fatal_error: take(&mut ebpf, names::FATAL_ERROR)?,
            rejected,
            missing: BTreeMap::new(),
            fentry: loader.map(|_| programs),
            ebpf,
        })
    }

    /// Attaches the probes to the functions of a driver with this major version. Optional ones may
    /// be missing.
    pub(crate) fn attach(&mut self, major: u32, residency_is_known: bool) -> Result<(), Refusal> {
        if !residency_is_known {
            tracing::warn!("{NO_RESIDENCY}");
        }
        for row in PROBES {
            if row.is_of_residency() && !residency_is_known {
                self.missing.insert(row.probe, NO_RESIDENCY.to_owned());
                continue;
            }
            match (self.attach_one(row), row.need) {
                (Ok(()), _) => {}
                (Err(Refusal::NotPermitted), _) => return Err(Refusal::NotPermitted),
                (Err(refusal), Need::Always) => return Err(refusal),
                (Err(refusal), Need::Without { since, uncounted }) => {
                    tracing::warn!("{}: {uncounted} not counted: {refusal}", row.probe.name());
                    if major >= since {
                        self.missing.insert(row.probe, format!("{uncounted} not counted: {refusal}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Attaches a probe to the first of its functions that the driver has.
    fn attach_one(&mut self, row: &Row) -> Result<(), Refusal> {
        if let Some(refusal) = self.rejected.remove(&row.probe) {
            return Err(refusal);
        }
        if let Some(programs) = &mut self.fentry {
            return programs.get_mut(&row.probe).ok_or(Refusal::NoFunction(row.probe.name()))?.attach();
        }
        let mut refusal = Refusal::NoFunction(row.probe.name());
        for function in row.functions {
            let Err(error) = kprobe(&mut self.ebpf, row.program)?.attach(*function, 0) else { return Ok(()) };
            match io_error(&error) {
                Some(cause) if cause.kind() == io::ErrorKind::NotFound => {}
                Some(cause) if not_permitted(cause).is_some() => return Err(Refusal::NotPermitted),
                _ => refusal = Refusal::Attach { function, reason: chain(&error) },
            }
        }
        Err(refusal)
    }

    /// Uncounted events of the probes that could not be attached, and the reasons.
    pub(crate) const fn missing(&self) -> &BTreeMap<Probe, String> {
        &self.missing
    }

    /// Reason why resident and populated memory is not counted; `None` if it is.
    pub(crate) fn residency_unavailable(&self) -> Option<String> {
        let needed = [Probe::Resident, Probe::ResidentReturn];
        needed.iter().find_map(|probe| self.missing.get(probe)).cloned()
    }

    /// Whether changes of residency are missed, as some of their probes could not be attached.
    pub(crate) fn miss_moves(&self) -> bool {
        let some = [Probe::Duplicate, Probe::DuplicateReturn, Probe::Split, Probe::SplitReturn];
        some.iter().any(|probe| self.missing.contains_key(probe))
    }

    /// Finds the VA spaces older than the probes; each gets a lifecycle record.
    ///
    /// `types`: types of the kernel, including at least [`ITERATED`].
    ///
    /// # Errors
    /// If the kernel does not permit iterators.
    pub fn adopt(&mut self, types: &[u8]) -> Result<(), AdoptError> {
        let program: &mut Iter = self.ebpf.program_mut(ADOPT).ok_or(AdoptError::NoProgram(ADOPT))?.try_into()?;
        if program.fd().is_err() {
            program.load("task_file", &Btf::parse(types, Endianness::default())?)?;
        }
        let link = program.attach().and_then(|link| program.take_link(link))?;
        let mut iterator = link.into_file()?;
        // A read runs the iterator, which writes nothing.
        while let Err(error) = io::copy(&mut iterator, &mut io::sink()) {
            // After a million files without output the kernel yields; the next read continues
            // there.
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(AdoptError::Read(error));
            }
        }
        Ok(())
    }

    /// Statistics of the probes and the kernel.
    pub(crate) fn figures(&self) -> Result<Figures, MapError> {
        let mut programs = [ProgramInfo::default(); Probe::COUNT as usize];
        for row in PROBES {
            if let (Some(program), Some(info)) = (programs.get_mut(row.probe as usize), self.program_info(row)) {
                *program = info;
            }
        }
        Ok(Figures {
            hits: self.hits()?,
            fatal_status: self.fatal_status()?,
            dropped: self.dropped()?,
            self_tests: self.self_tests()?,
            programs,
            records: self.record_fates()?,
            missed_returns: 0,
        })
    }

    fn program_info(&self, row: &Row) -> Option<ProgramInfo> {
        let fd = match &self.fentry {
            Some(programs) => programs.get(&row.probe)?.fd(),
            None => self.program_fd(row.program)?.as_fd(),
        };
        let fd = fd.as_raw_fd();
        Some(ProgramInfo::parse(&fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?))
    }

    /// The ELF object of the programs.
    #[doc(hidden)]
    #[must_use]
    pub fn object() -> &'static [u8] {
        OBJECT
    }

    /// All programs, with their functions and whether they run at return, for other ways of
    /// attachment than [`Self::attach`].
    #[doc(hidden)]
    pub fn programs() -> impl Iterator<Item = (&'static str, &'static [&'static str], bool)> {
        PROBES.iter().map(|row| (row.program, row.functions, row.at_return()))
    }

    /// Ring of block records, for other writers.
    #[doc(hidden)]
    #[must_use]
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.blocks.as_fd()
    }

    /// Descriptor of a program, for other ways of attachment than [`Self::attach`].
    #[doc(hidden)]
    #[must_use]
    pub fn program_fd(&self, name: &str) -> Option<&aya::programs::ProgramFd> {
        let program: &KProbe = self.ebpf.program(name)?.try_into().ok()?;
        program.fd().ok()
    }
}

fn kprobe<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut KProbe, Refusal> {
    let program = ebpf.program_mut(name).ok_or_else(|| Refusal::Load(format!("the object has no program {name}")))?;
    program.try_into().map_err(|error: ProgramError| not_loaded(&error))
}

fn take<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &'static str) -> Result<T, Refusal> {
    let map = ebpf.take_map(name).ok_or_else(|| Refusal::Load(format!("the object has no map {name}")))?;
    map.try_into().map_err(|error| not_loaded(&error))
}

fn load_one(ebpf: &mut Ebpf, program: &'static str) -> Result<(), Refusal> {
    kprobe(ebpf, program)?.load().map_err(|error| match error {
        // The verifier's error is "permission denied" if it rejects a program; the reason is in its
        // log.
        ProgramError::LoadError { io_error, verifier_log } if !verifier_log.to_string().trim().is_empty() => {
            Refusal::Load(format!("{io_error}: {}", tail(&verifier_log.to_string())))
        }
        other => not_loaded(&other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_faults_are_four_times_those_that_cpus_take_in_advance() {
        assert_eq!([2, 16, 64, 512].map(last_faults_capacity), [8192, 8192, 32768, 262_144]);
    }

    #[test]
    fn count_map_takes_at_most_64_mib_above_its_minimum() {
        assert_eq!(counts_capacity(2), 65536);
        assert_eq!(counts_capacity(64), 65536);
        assert_eq!(counts_capacity(128), 32768);
        assert_eq!(counts_capacity(512), 16384);
        assert_eq!(counts_capacity(0), 65536);
    }
}
