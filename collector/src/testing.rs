//! Parts for tests: the probes without the driver, on a kernel without kprobes; and the ledger
//! without probes.

use std::{
    fs,
    time::{Duration, SystemTime},
};

use abi::{BlockRecord, Quotas};
use model::{Owner, Process, ProcessId};

pub use sys::families::{Families, Family};
use sys::{btf::Btf, families::KernelNumbers};

pub use crate::probes::Probes;
use crate::{
    BlockLimits, OwnerLimits, Records,
    identity::Identity,
    ledger::{Ledger, Limits},
    managed::Managed,
    probes::ITERATED,
    spans::together,
};

/// Loads the probes for a family on this machine, to be attached to functions of user programs.
/// `device` replaces the driver's; all its files represent VA spaces. Only the programs that are
/// `wanted` are loaded: the verifier takes a second for all of them.
///
/// # Errors
/// Sentence, if they cannot be loaded.
pub fn load(
    family: &Family,
    counts_capacity: u32,
    quotas: &Quotas,
    device: u32,
    records: &Records,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Probes, abi::Layout), String> {
    let btf = fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    let kernel = Btf::parse(&btf)
        .and_then(|btf| KernelNumbers::from_btf(&btf, procfs::page_size()))
        .map_err(|error| error.to_string())?;
    let layout = family.layout(&kernel);
    // The probes accept any offset of a block's residency, as long as it is known.
    let block_gpus = layout.block_resident + 40;
    let layout = abi::Layout { in_user_memory: 1, uvm_device: device, block_gpus, ..layout };
    let probes = Probes::load_some(&layout, counts_capacity, quotas, records, None, wanted)
        .map_err(|error| error.to_string())?;
    Ok((probes, layout))
}

/// Finds the VA spaces older than the probes; see [`Probes::adopt`].
///
/// # Errors
/// Sentence, if the kernel does not permit it.
pub fn adopt(probes: &mut Probes) -> Result<(), String> {
    let file = fs::read("/sys/kernel/btf/vmlinux").map_err(|error| error.to_string())?;
    let types = Btf::parse(&file).and_then(|btf| btf.only_function(ITERATED)).map_err(|error| error.to_string())?;
    probes.adopt(&types).map_err(|error| error.to_string())
}

/// Ledger of processes, fed by a test.
#[derive(Debug)]
pub struct TestLedger(Ledger);

impl TestLedger {
    /// Empty ledger.
    #[must_use]
    pub fn new(blocks: BlockLimits) -> Self {
        let owners = OwnerLimits::default();
        Self(Ledger::new(Limits { retention: Duration::from_mins(5), max_ended: 1024, blocks, owners }))
    }

    /// Adds a VA space of a process.
    pub fn process(&mut self, pid: u32, generation: u64) {
        let identity =
            Identity { name: "app".to_owned(), uid: 0, cgroup: None, owner: Owner::default(), started: None };
        self.0.registered(generation, ProcessId { pid, start_ticks: 1 }, identity);
    }

    /// Adds block records, within the limits.
    pub fn records(&mut self, records: impl IntoIterator<Item = BlockRecord>) {
        for record in records {
            self.0.add_block_record(&record);
        }
        self.0.bound_blocks();
    }

    /// Sets the mappings of a process, at a time in ns since boot.
    pub fn mappings(&mut self, pid: u32, mappings: &[std::ops::Range<u64>], read_ns: u64) {
        let ranges = together(mappings, self.0.bound_ranges());
        let managed = Managed { bytes: 0, ranges: ranges.into(), mappings: mappings.len(), read_ns };
        if self.0.manages(ProcessId { pid, start_ticks: 1 }, &managed) {
            self.0.bound_ranges();
        }
    }

    /// Content of a snapshot.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        self.0.totals(|_| None, |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)).0
    }
}
