//! Probes on the fake driver, with the operations that tests need.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use abi::{
    BlockRecord, CountKey, DropReason, Kind, Layout, Lifecycle, LifecycleKind, Quotas, SelfTest, Tally,
    block::BLOCK_BYTES,
    count::{EvictionCause, EvictionKey},
};
use collector::{
    Records,
    testing::{Families, Probes, load},
};

use crate::{
    driver,
    image::{Family, Image},
    uprobe,
};

/// One bench at a time: its probes see every call of the fake functions, from any test.
static ONE: Mutex<()> = Mutex::new(());

/// Stand-in for /dev/nvidia-uvm: /dev/ptmx, each open file of which has separate data as well.
/// Major 5, minor 2.
const DEVICE: u32 = 5 << 20 | 2;

/// Variable set to 1 if no test may be skipped for lack of permission.
const REQUIRE_ROOT: &str = "UVMD_TEST_REQUIRE_ROOT";

/// Prints why a test is skipped; fails if it must run.
fn skip(why: &str) {
    assert!(std::env::var(REQUIRE_ROOT).as_deref() != Ok("1"), "{REQUIRE_ROOT} is set, and {why}");
    println!("skipped: {why}");
}

/// Probes attached to the fake driver.
pub struct Bench {
    family: Family,
    probes: Probes,
    layout: Layout,
    /// Keep the probes attached.
    events: Vec<(&'static str, OwnedFd)>,
    _one: MutexGuard<'static, ()>,
}

impl Bench {
    /// Attaches the probes for a family of the table, with this capacity of counts. Without root
    /// there is no bench: the test is skipped, or fails if `UVMD_TEST_REQUIRE_ROOT` is 1.
    pub fn with_capacity(family: &str, counts_capacity: u32) -> Option<Self> {
        Self::with(family, counts_capacity, Records::default())
    }

    /// Bench with quotas.
    pub fn with_quotas(family: &str, counts_capacity: u32, quotas: &Quotas) -> Option<Self> {
        Self::load(family, counts_capacity, quotas, &Records::default(), |_| true)
    }

    /// Bench with this configuration of block records.
    pub fn with(family: &str, counts_capacity: u32, records: Records) -> Option<Self> {
        Self::load(family, counts_capacity, &Quotas::UNLIMITED, &records, |_| true)
    }

    /// Bench with these programs alone: to verify, attach and detach all takes seconds.
    pub fn only(programs: &[&str], family: &str) -> Option<Self> {
        for program in programs {
            assert!(Probes::programs().any(|(known, ..)| known == *program), "no program {program}");
        }
        Self::load(family, 1024, &Quotas::UNLIMITED, &Records::default(), |program| programs.contains(&program))
    }

    fn load(
        family: &str,
        counts_capacity: u32,
        quotas: &Quotas,
        records: &Records,
        wanted: impl Fn(&str) -> bool,
    ) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
            skip("loading probes needs root");
            return None;
        }
        let family = Family::named(family);
        let families = Families::known().expect("the table is right");
        let chosen = families.of(&family.version()).expect("each representative is supported");
        let (probes, layout) = match load(chosen, counts_capacity, quotas, DEVICE, records, &wanted) {
            Ok(loaded) => loaded,
            Err(reason) => panic!("the probes do not load: {reason}"),
        };
        let events: io::Result<Vec<_>> = Probes::programs()
            .filter(|(program, ..)| wanted(program))
            .filter_map(|(program, functions, at_return)| {
                // The fake driver has only the functions that the tests need.
                let function = functions.iter().find(|function| driver::address(function).is_some())?;
                Some(attach(&probes, program, function, at_return).map(|event| (program, event)))
            })
            .collect();
        match events {
            Ok(events) => Some(Self { family, probes, layout, events, _one: one }),
            Err(error) => {
                skip(&format!("this kernel does not let programs be attached to functions of this process: {error}"));
                None
            }
        }
    }

    /// Calls a function while the returns of destructions are missed.
    pub fn without_returns(&mut self, meanwhile: impl FnOnce()) {
        let program = "uvm_destroyed";
        self.events.retain(|(attached, _)| *attached != program);
        meanwhile();
        let again = attach(&self.probes, program, "uvm_va_space_destroy", true);
        self.events.push((program, again.expect("it could be attached before")));
    }

    /// Bench with ample capacity.
    pub fn new(family: &str) -> Option<Self> {
        Self::with_capacity(family, 1024)
    }

    /// Family under test.
    pub const fn family(&self) -> &Family {
        &self.family
    }

    /// Highest processor id of a GPU.
    pub const fn gpu_max(&self) -> u32 {
        self.layout.gpu_max
    }

    /// VA space at an address, and the events structure that points to it.
    pub fn space(&self, address: u64) -> Space {
        let offset = usize::try_from(self.layout.events_va_space).expect("small");
        let mut events = vec![0; offset / 8 + 1];
        events[offset / 8] = address;
        Space { address, events }
    }

    /// Creates a VA space at an address, and returns its record.
    pub fn register(&mut self, address: u64) -> (Space, Lifecycle) {
        driver::mm_register(address);
        let records = self.probes.lifecycles();
        let made = records.iter().find(|record| record.kind() == Some(LifecycleKind::Registered));
        (self.space(address), *made.expect("a record of its making"))
    }

    /// Raises a fault of a GPU: processor, access type, merged faults. `change` modifies the entry.
    pub fn gpu_fault(&self, space: &Space, fault: &GpuFault, change: impl Fn(Image) -> Image) {
        let family = &self.family;
        let entry = family
            .image("fbe.size")
            .with("fbe.fault_address", fault.address.to_ne_bytes())
            .with("fbe.va_space", space.address.to_ne_bytes())
            .with_bits("fbe.fault_access_type(bit:n)", fault.access)
            .with("fbe.access_type_mask", (1u32 << fault.access | 1).to_ne_bytes())
            .with("fbe.num_instances", fault.instances.to_ne_bytes())
            .with_flag("fbe.is_replayable(bit)", fault.is_replayable);
        let entry = change(entry);
        let data = family
            .image("evd.size")
            .with("fault.proc_id", fault.gpu.to_ne_bytes())
            .with("fault.gpu.buffer_entry", entry.address().to_ne_bytes())
            .with("fault.gpu.batch_id", fault.batch.to_ne_bytes())
            .with("fault.gpu.is_duplicate", [fault.is_duplicate]);
        self.notify(space, "FAULT", &data);
    }

    /// Raises a fault of a CPU.
    pub fn cpu_fault(&self, space: &Space, is_write: u8) {
        self.cpu_fault_at(space, is_write, 0x40_1234);
    }

    /// Raises a fault of a CPU at an instruction.
    pub fn cpu_fault_at(&self, space: &Space, is_write: u8, pc: u64) {
        let data = self
            .family
            .image("evd.size")
            .with("fault.proc_id", 0u32.to_ne_bytes())
            .with("fault.cpu.fault_va", 0x7f00_0020_1234u64.to_ne_bytes())
            .with("fault.cpu.is_write", [is_write])
            .with("fault.cpu.pc", pc.to_ne_bytes());
        self.notify(space, "FAULT", &data);
    }

    /// Raises a migration.
    pub fn migration(&self, space: &Space, migration: &Migration) {
        self.family.migration(space, migration);
    }

    /// Raises any event.
    pub fn notify(&self, space: &Space, event: &str, data: &Image) {
        self.family.notify(space, event, data);
    }

    /// Counts of a VA space by GPU, kind and detail.
    pub fn counts(&self, generation: u64) -> HashMap<(u32, Kind, u16), (u64, u64)> {
        Self::of(self.probes.counts().expect("the counts can be read"), generation)
    }

    /// Distribution buckets of a VA space by GPU, kind and bucket.
    pub fn distributions(&self, generation: u64) -> HashMap<(u32, Kind, u16), (u64, u64)> {
        Self::of(self.probes.distributions().expect("the distributions can be read"), generation)
    }

    fn of(counts: Vec<(CountKey, Tally)>, generation: u64) -> HashMap<(u32, Kind, u16), (u64, u64)> {
        counts
            .into_iter()
            .filter(|(key, _)| key.generation == generation)
            .map(|(CountKey { gpu, kind, detail, .. }, Tally { events, amount })| {
                ((gpu, Kind::from_index(kind.into()).expect("a kind"), detail), (events, amount))
            })
            .collect()
    }

    /// Evictions by victim, evictor, GPU and cause.
    pub fn evictions(&self) -> HashMap<(u64, u64, u32, EvictionCause), (u64, u64)> {
        let all = self.probes.evictions().expect("they can be read").into_iter();
        all.map(|(EvictionKey { victim, evictor, gpu, cause }, Tally { events, amount })| {
            ((victim, evictor, gpu, EvictionCause::from_index(cause).expect("a cause")), (events, amount))
        })
        .collect()
    }

    /// Faults and copied bytes of a VA space by program counter.
    pub fn sites(&self, generation: u64) -> HashMap<u64, (u64, u64)> {
        let all = self.probes.sites().expect("they can be read").into_iter();
        let of_space = all.filter(|(key, _)| key.generation == generation);
        of_space.map(|(key, Tally { events, amount })| (key.pc, (events, amount))).collect()
    }

    /// Number of count keys of all VA spaces.
    pub fn keys(&self) -> usize {
        self.probes.counts().expect("the counts can be read").len()
    }

    /// Dropped events by reason, without zeroes.
    pub fn lost(&self) -> Vec<(DropReason, u64)> {
        let lost = self.probes.dropped().expect("the losses can be read");
        DropReason::ALL.iter().copied().zip(lost).filter(|(_, events)| *events > 0).collect()
    }

    /// Failed self-tests.
    pub fn failed(&self) -> Vec<(SelfTest, u64)> {
        let failed = self.probes.self_tests().expect("the failures can be read");
        SelfTest::ALL.iter().copied().zip(failed).filter(|(_, events)| *events > 0).collect()
    }

    /// Block records written since the last call.
    pub fn blocks(&mut self) -> Vec<BlockRecord> {
        let mut records = Vec::new();
        self.probes.blocks(|record| records.push(record));
        records
    }

    /// Number of block records by fate.
    pub fn fates(&self) -> [u64; 3] {
        self.probes.record_fates().expect("they can be read").try_into().expect("three")
    }

    /// GPU of the driver.
    pub fn gpu(&self, id: u32) -> Image {
        self.family.image("gpu.id").with("gpu.id", id.to_ne_bytes())
    }

    /// Block of a VA space, and the range that it belongs to.
    pub fn block(&self, space: &Space, start: u64) -> Block {
        self.block_with(space, start, &[])
    }

    /// Block with pages that are at GPUs already.
    pub fn block_with(&self, space: &Space, start: u64, resident: &[(u32, [u64; 8])]) -> Block {
        let range = vec![space.address];
        let states: Vec<_> = resident.iter().map(|(gpu, pages)| (*gpu, pages.to_vec())).collect();
        let at = |offset: u32| usize::try_from(offset / 8).expect("small");
        let gpus = usize::try_from(self.layout.gpu_max).expect("small");
        let mut words = vec![0; at(self.layout.block_gpus) + gpus];
        for (gpu, pages) in &states {
            words[at(self.layout.block_gpus + (gpu - 1) * 8)] = pages.as_ptr() as u64;
            words[at(self.layout.block_resident + gpu / 64 * 8)] |= 1 << (gpu % 64);
        }
        words[at(self.layout.block_range)] = range.as_ptr() as u64;
        words[at(self.layout.block_start)] = start;
        words[at(self.layout.block_start) + 1] = start + BLOCK_BYTES - 1;
        let [range_at, start] = [self.layout.block_range, self.layout.block_start].map(at);
        Block { words, range_at, start, _range: range, _states: states }
    }

    /// Destroys a block.
    pub fn destroy_block(&self, space: &Space, block: &Block) {
        let data = self.family.image("evd.size").with("blkdestroy.block", block.address().to_ne_bytes());
        self.notify(space, "BLOCK_DESTROY", &data);
    }

    /// Open file of the device that represents a VA space.
    pub fn file(&self, space: &Space) -> Vec<u64> {
        let at = usize::try_from(self.layout.file_private_data / 8).expect("small");
        let mut words = vec![0; at + 1];
        words[at] = space.address | u64::from(self.layout.va_space_file_type);
        words
    }

    /// Attached probes.
    pub const fn probes(&mut self) -> &mut Probes {
        &mut self.probes
    }
}

fn attach(probes: &Probes, program: &str, function: &str, at_return: bool) -> io::Result<OwnedFd> {
    let program = probes.program_fd(program).expect("it is loaded");
    uprobe::attach(program, driver::address(function).expect("there is a stand-in"), at_return)
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The kernel waits a tenth of a second for each; some kernels wait for several at once.
        std::thread::scope(|scope| {
            for event in self.events.drain(..) {
                scope.spawn(move || drop(event));
            }
        });
    }
}

impl Family {
    /// Raises a migration, even while another test has the bench.
    pub fn migration(&self, space: &Space, migration: &Migration) {
        let data = self
            .image("evd.size")
            .with("mig.dst", migration.to.to_ne_bytes())
            .with("mig.src", migration.from.to_ne_bytes())
            .with("mig.address", migration.address.to_ne_bytes())
            .with("mig.bytes", migration.bytes.to_ne_bytes())
            .with("mig.transfer_mode", 1u32.to_ne_bytes())
            .with("mig.cause", migration.cause.to_ne_bytes());
        self.notify(space, "MIGRATION", &data);
    }

    fn notify(&self, space: &Space, event: &str, data: &Image) {
        driver::event_notify(space.events.as_ptr() as u64, self.event(event), data.address());
    }
}

/// VA space of the fake driver.
#[derive(Clone, Debug)]
pub struct Space {
    /// Address in the driver.
    pub address: u64,
    /// `uvm_perf_va_space_events_t`, of which only the pointer matters.
    pub events: Vec<u64>,
}

/// VA block of the fake driver.
#[derive(Clone, Debug)]
pub struct Block {
    words: Vec<u64>,
    /// Word of the pointer to its range.
    range_at: usize,
    /// Word of its first address.
    start: usize,
    _range: Vec<u64>,
    _states: Vec<(u32, Vec<u64>)>,
}

impl Block {
    /// Address of the block.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }

    /// The block as one of ordinary memory (HMM).
    #[must_use]
    pub fn without_range(mut self) -> Self {
        self.words[self.range_at] = 0;
        self
    }

    /// The block with at most this many bytes.
    #[must_use]
    pub fn of_bytes(mut self, bytes: u64) -> Self {
        self.words[self.start + 1] = self.words[self.start] + bytes - 1;
        self
    }
}

/// Fault of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct GpuFault {
    /// Processor id.
    pub gpu: u32,
    /// `uvm_fault_access_type_t`
    pub access: u32,
    /// Faults merged into it.
    pub instances: u16,
    /// 1 if the page was serviced already.
    pub is_duplicate: u8,
    /// Address of the page.
    pub address: u64,
    /// Number of its batch.
    pub batch: u32,
    /// Whether the fault is replayable.
    pub is_replayable: bool,
}

impl Default for GpuFault {
    fn default() -> Self {
        Self {
            gpu: 1,
            access: 1,
            instances: 1,
            is_duplicate: 0,
            address: 0x7f00_0020_1000,
            batch: 1,
            is_replayable: true,
        }
    }
}

/// Migration of an event.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Source processor.
    pub from: u32,
    /// Destination processor.
    pub to: u32,
    /// First byte.
    pub address: u64,
    /// Length.
    pub bytes: u64,
    /// `uvm_make_resident_cause_t`
    pub cause: u32,
}

impl Default for Migration {
    fn default() -> Self {
        Self { from: 0, to: 1, address: 0x7f00_0020_0000, bytes: 65536, cause: 0 }
    }
}
