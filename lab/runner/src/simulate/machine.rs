//! The simulator as the machine that executes steps. Steps run as in the lab, and their accesses go
//! to a model of the driver.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, bail};
use gpu::swgpu::{GpuAccess, Kernel};
use sim::{
    Machine as Driver, Pages,
    machine::Thrashing,
    pages::Counts,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules},
};

use crate::{
    scenario::{Call, Place, Process, WORD_BYTES, part::PAGE_BYTES, steps::access::Kind},
    sys::{access_log::CpuMark, memory::zeroed},
    work::Machine,
};

/// GPU memory that the driver reserves for page tables: one frame, which holds the tables of 400
/// blocks and more.
const DRIVER_BYTES: u64 = BLOCK_BYTES;

type Setting = fn(&mut Thrashing, u64);

/// Parameters of the driver that the simulator models.
const PARAMETERS: [(&str, Setting); 8] = [
    ("uvm_perf_thrashing_enable", |of, value| of.enabled.value = value != 0),
    ("uvm_perf_thrashing_threshold", |of, value| of.threshold.value = byte(value)),
    ("uvm_perf_thrashing_pin_threshold", |of, value| of.pin_threshold.value = byte(value)),
    (LAPSE, |of, value| of.lapse_ns.value = value.saturating_mul(1000)),
    ("uvm_perf_thrashing_nap", |of, value| of.nap_lapses.value = value),
    ("uvm_perf_thrashing_epoch", |of, value| of.epoch_lapses.value = value),
    ("uvm_perf_thrashing_pin", |of, value| of.pin_lapses.value = value),
    ("uvm_perf_thrashing_max_resets", |of, value| of.max_resets.value = value),
];
/// Period in which the driver detects thrashing. By default it is 500 microseconds, in which
/// nothing happens twice in the lab, as emulation is slower.
const LAPSE: &str = "uvm_perf_thrashing_lapse_usec";

/// Conversion to a byte. A value that is too large for the driver becomes 0, which is out of range
/// too.
fn byte(value: u64) -> u8 {
    u8::try_from(value).unwrap_or(0)
}

/// Whether the simulator models a parameter of the driver.
pub(super) fn is_modelled(parameter: &str) -> bool {
    PARAMETERS.iter().any(|(name, _)| *name == parameter)
}

/// Model of the driver with a scenario's parameters. Default parameters are the same on every
/// machine. Times are those of one machine, and only distinguish thrashing from other accesses.
pub(super) fn driver(parameters: &BTreeMap<String, u64>) -> anyhow::Result<Driver> {
    let mut driver = Driver::named("a100")?;
    for (name, value) in parameters {
        let setting = PARAMETERS.iter().find(|(known, _)| known == name);
        let (_, setting) = setting.with_context(|| format!("the simulator does not know {name}"))?;
        setting(&mut driver.thrashing, *value);
    }
    driver.thrashing.enabled.value &= parameters.contains_key(LAPSE);
    driver.thrashing.check()?;
    Ok(driver)
}

/// Memory of a process in the simulator.
pub(super) struct Simulated<'m> {
    /// Address and words of each allocation.
    memory: Vec<(u64, Box<[AtomicU64]>)>,
    pages: Mutex<Pages<'m>>,
    /// Link traffic of remote accesses, as the software GPU counts it: each access by the rate of
    /// its step.
    remote_millibytes: AtomicU64,
}

impl<'m> Simulated<'m> {
    pub(super) fn new(process: &Process, driver: &'m Driver, card_bytes: u64) -> anyhow::Result<Self> {
        let ranges = process.addresses().zip(&process.allocations).map(|(address, allocation)| Granules {
            first: address / GRANULE_BYTES,
            end: (address + allocation.bytes).div_ceil(GRANULE_BYTES),
        });
        let pages = Mutex::new(Pages::new(driver, card_bytes.saturating_sub(DRIVER_BYTES), ranges));
        let memory = process
            .addresses()
            .zip(&process.allocations)
            .map(|(address, allocation)| Ok((address, zeroed(usize::try_from(allocation.bytes / WORD_BYTES)?))));
        Ok(Self { memory: memory.collect::<anyhow::Result<_>>()?, pages, remote_millibytes: AtomicU64::new(0) })
    }

    pub(super) fn counts(&self) -> Counts {
        let remote_bytes = self.remote_millibytes.load(Ordering::Relaxed) / 1000;
        Counts { remote_bytes, ..self.pages().counts() }
    }

    fn pages(&self) -> MutexGuard<'_, Pages<'m>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, allocation: usize, word: usize) -> Option<&AtomicU64> {
        self.memory.get(allocation)?.1.get(word)
    }

    /// Record a CPU access, and return the word.
    fn cpu_access(&self, allocation: usize, word: usize) -> Option<&AtomicU64> {
        let page = (self.address(allocation) + word as u64 * WORD_BYTES) / PAGE_BYTES;
        self.pages().by_cpu(page);
        self.word(allocation, word)
    }

    fn word_at(&self, address: u64) -> Option<&AtomicU64> {
        let (base, words) = self.memory.iter().rev().find(|(base, _)| *base <= address)?;
        words.get(usize::try_from((address - base) / WORD_BYTES).ok()?)
    }
}

impl Machine for Simulated<'_> {
    fn address(&self, allocation: usize) -> u64 {
        self.memory.get(allocation).map_or(0, |(address, _)| *address)
    }

    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.cpu_access(allocation, word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn cpu_write(&self, allocation: usize, word: usize, value: u64) {
        if let Some(word) = self.cpu_access(allocation, word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn cpu_add(&self, allocation: usize, word: usize, addend: u64) -> u64 {
        self.cpu_access(allocation, word).map_or(0, |word| word.fetch_add(addend, Ordering::Relaxed))
    }

    fn cpu_mark(&self, _mark: &CpuMark) -> anyhow::Result<()> {
        Ok(())
    }

    fn gpu_run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        let accessed_pages = accesses.iter().map(|access| access.va / PAGE_BYTES);
        let window = usize::try_from(kernel.window)?;
        let mut pages = self.pages();
        let before = pages.counts().remote_accesses;
        pages.by_gpu(accessed_pages, window)?;
        let remote = pages.counts().remote_accesses - before;
        // An atomic reads and writes, so its word crosses the link twice.
        let ways = if kernel.kind == Kind::Atomic { 2 } else { 1 };
        self.remote_millibytes.fetch_add(remote * ways * kernel.access_millibytes, Ordering::Relaxed);
        for access in accesses {
            let word = self.word_at(access.va).context("an access outside all allocations")?;
            match kernel.kind {
                Kind::Read => access.value = word.load(Ordering::Relaxed),
                Kind::Write => word.store(access.value, Ordering::Relaxed),
                Kind::Atomic => access.value = word.fetch_add(access.value, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    fn call(&self, call: Call, address: u64, bytes: u64) -> anyhow::Result<()> {
        let range = address / PAGE_BYTES..(address + bytes).div_ceil(PAGE_BYTES);
        match call {
            Call::Migrate { to: Place::Cpu } => self.pages().move_to_host(range),
            Call::Migrate { to: Place::Gpu(_) } => self.pages().move_to_gpu(range)?,
            _ => bail!("the simulator does not model advice"),
        }
        Ok(())
    }

    fn sleep(&self, duration: Duration, _is_stopped: &dyn Fn() -> bool) {
        self.pages().pause(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
    }

    fn device_alloc(&self, _name: &str, _gpu: u32, _bytes: u64) -> anyhow::Result<()> {
        bail!("the simulator models managed memory only")
    }

    fn device_free(&self, _name: &str) -> anyhow::Result<()> {
        bail!("the simulator models managed memory only")
    }

    fn kill(&self) -> anyhow::Result<()> {
        bail!("the simulator does not model the kill of a process")
    }
}
