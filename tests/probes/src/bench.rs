//! The probes on the stand-in driver, and what tests ask of both.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use abi::{CountKey, Kind, Layout, Lifecycle, LifecycleKind, LostReason, SelfTest, Tally};
use collector::testing::{Families, Probes, load};

use crate::{
    driver,
    image::{Family, Image},
    uprobe,
};

/// One bench at a time: its probes see every call of the stand-in functions, whichever test it comes from.
static ONE: Mutex<()> = Mutex::new(());

/// Stands for /dev/nvidia-uvm: /dev/ptmx, each open file of which has data of its own as well. Major 5, minor 2.
const DEVICE: u32 = 5 << 20 | 2;

/// Set to 1 where no test may be skipped for want of rights: by who runs them all.
const REQUIRE_ROOT: &str = "UVMD_TEST_REQUIRE_ROOT";

/// Says why a test does not run; where it must run, that is a failure.
fn skip(why: &str) {
    assert!(std::env::var(REQUIRE_ROOT).as_deref() != Ok("1"), "{REQUIRE_ROOT} is set, and {why}");
    println!("skipped: {why}");
}

/// The probes, attached to the stand-in driver.
pub struct Bench {
    family: Family,
    probes: Probes,
    layout: Layout,
    /// Keep the probes attached.
    events: Vec<OwnedFd>,
    _one: MutexGuard<'static, ()>,
}

impl Bench {
    /// Attaches the probes for a family of the table, with room for so many counts. Without root there is no bench: the test says so, or fails
    /// where `UVMD_TEST_REQUIRE_ROOT` is 1.
    pub fn with_capacity(family: &str, counts_capacity: u32) -> Option<Self> {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
            skip("loading probes needs root");
            return None;
        }
        let family = Family::named(family);
        let families = Families::known().expect("the table is right");
        let chosen = families.of(&family.version()).expect("each representative is supported");
        let (probes, layout) = match load(chosen, counts_capacity, DEVICE) {
            Ok(loaded) => loaded,
            Err(reason) => panic!("the probes do not load: {reason}"),
        };
        let attach = |program, function, at_return| attach(&probes, program, function, at_return);
        let events: io::Result<Vec<_>> = [
            attach("uvm_destroyed", "uvm_va_space_destroy", true),
            attach("uvm_destroy", "uvm_va_space_destroy", false),
            attach("uvm_register", "uvm_va_space_mm_register", false),
            attach("uvm_notify", "uvm_perf_event_notify", false),
        ]
        .into_iter()
        .collect();
        match events {
            Ok(events) => Some(Self { family, probes, layout, events, _one: one }),
            Err(error) => {
                skip(&format!("this kernel does not let programs be attached to functions of this process: {error}"));
                None
            }
        }
    }

    /// Runs something while nobody sees destructions return.
    pub fn without_returns(&mut self, meanwhile: impl FnOnce()) {
        drop(self.events.remove(0));
        meanwhile();
        let again = attach(&self.probes, "uvm_destroyed", "uvm_va_space_destroy", true);
        self.events.insert(0, again.expect("it could be attached before"));
    }

    /// The same with plenty of room.
    pub fn new(family: &str) -> Option<Self> {
        Self::with_capacity(family, 1024)
    }

    /// The family under test.
    pub const fn family(&self) -> &Family {
        &self.family
    }

    /// A VA space at an address, and the events structure that points to it.
    pub fn space(&self, address: u64) -> Space {
        let offset = usize::try_from(self.layout.events_va_space).expect("small");
        let mut events = vec![0; offset / 8 + 1];
        events[offset / 8] = address;
        Space { address, events }
    }

    /// Makes a VA space at an address; what the ring then says of it.
    pub fn register(&mut self, address: u64) -> (Space, Lifecycle) {
        driver::mm_register(address);
        let records = self.probes.lifecycles();
        let made = records.iter().find(|record| record.kind() == Some(LifecycleKind::Registered));
        (self.space(address), *made.expect("a record of its making"))
    }

    /// A fault of a GPU: processor, access type, faults merged. Change `entry` to have it look otherwise.
    pub fn gpu_fault(&self, space: &Space, fault: &GpuFault, change: impl Fn(Image) -> Image) {
        let family = &self.family;
        let entry = family
            .image("fbe.size")
            .with("fbe.fault_address", 0x7f00_0020_1000u64.to_ne_bytes())
            .with("fbe.va_space", space.address.to_ne_bytes())
            .with_bits("fbe.fault_access_type(bit:n)", fault.access)
            .with("fbe.access_type_mask", (1u32 << fault.access | 1).to_ne_bytes())
            .with("fbe.num_instances", fault.instances.to_ne_bytes());
        let entry = change(entry);
        let data = family
            .image("evd.size")
            .with("fault.proc_id", fault.gpu.to_ne_bytes())
            .with("fault.gpu.buffer_entry", entry.address().to_ne_bytes())
            .with("fault.gpu.is_duplicate", [fault.is_duplicate]);
        self.notify(space, "FAULT", &data);
    }

    /// A fault of a CPU.
    pub fn cpu_fault(&self, space: &Space, is_write: u8) {
        let data = self
            .family
            .image("evd.size")
            .with("fault.proc_id", 0u32.to_ne_bytes())
            .with("fault.cpu.fault_va", 0x7f00_0020_1234u64.to_ne_bytes())
            .with("fault.cpu.is_write", [is_write]);
        self.notify(space, "FAULT", &data);
    }

    /// A migration.
    pub fn migration(&self, space: &Space, migration: &Migration) {
        let data = self
            .family
            .image("evd.size")
            .with("mig.dst", migration.to.to_ne_bytes())
            .with("mig.src", migration.from.to_ne_bytes())
            .with("mig.address", migration.address.to_ne_bytes())
            .with("mig.bytes", migration.bytes.to_ne_bytes())
            .with("mig.transfer_mode", 1u32.to_ne_bytes())
            .with("mig.cause", migration.cause.to_ne_bytes());
        self.notify(space, "MIGRATION", &data);
    }

    /// Any event.
    pub fn notify(&self, space: &Space, event: &str, data: &Image) {
        driver::event_notify(space.events.as_ptr() as u64, self.family.event(event), data.address());
    }

    /// What was counted for a VA space: by GPU, kind and detail.
    pub fn counts(&self, generation: u64) -> HashMap<(u32, Kind, u16), (u64, u64)> {
        let counts = self.probes.counts().expect("the counts can be read");
        counts
            .into_iter()
            .filter(|(key, _)| key.generation == generation)
            .map(|(CountKey { gpu, kind, detail, .. }, Tally { events, amount })| {
                ((gpu, Kind::from_index(kind.into()).expect("a kind"), detail), (events, amount))
            })
            .collect()
    }

    /// How many keys there are for all VA spaces.
    pub fn keys(&self) -> usize {
        self.probes.counts().expect("the counts can be read").len()
    }

    /// Events lost, those that were.
    pub fn lost(&self) -> Vec<(LostReason, u64)> {
        let lost = self.probes.lost().expect("the losses can be read");
        LostReason::ALL.iter().copied().zip(lost).filter(|(_, events)| *events > 0).collect()
    }

    /// Self-tests that failed.
    pub fn failed(&self) -> Vec<(SelfTest, u64)> {
        let failed = self.probes.self_tests().expect("the failures can be read");
        SelfTest::ALL.iter().copied().zip(failed).filter(|(_, events)| *events > 0).collect()
    }

    /// The probes themselves.
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
        // The kernel waits a tenth of a second for each: side by side, that is once.
        std::thread::scope(|scope| {
            for event in self.events.drain(..) {
                scope.spawn(move || drop(event));
            }
        });
    }
}

/// A VA space of the stand-in driver.
#[derive(Clone, Debug)]
pub struct Space {
    /// What the driver would have it at.
    pub address: u64,
    /// `uvm_perf_va_space_events_t`: all that matters of it is the pointer.
    pub events: Vec<u64>,
}

/// A fault of a GPU.
#[derive(Clone, Copy, Debug)]
pub struct GpuFault {
    /// Processor id.
    pub gpu: u32,
    /// `uvm_fault_access_type_t`
    pub access: u32,
    /// Faults merged into it.
    pub instances: u16,
    /// 1 if the page was served already.
    pub is_duplicate: u8,
}

impl Default for GpuFault {
    fn default() -> Self {
        Self { gpu: 1, access: 1, instances: 1, is_duplicate: 0 }
    }
}

/// A migration.
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
