//! The simulator as the machine that steps work with: they run as they do in the lab, and their accesses go to a model of the driver.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, bail};
use sim::{
    Machine as Driver, Pages,
    pages::Counts,
    units::{BLOCK_BYTES, GRANULE_BYTES, Granules},
};

use crate::{
    scenario::{Process, WORD_BYTES, part::PAGE_BYTES},
    steps::access::Kind,
    sys::{memory::zeroed, swgpu::GpuAccess},
    work::{Call, CpuMark, Kernel, Machine},
};

/// Of a card's memory the driver has so much for its page tables, and processes never have it: a frame, which holds the tables of 400 blocks and more.
const DRIVER_BYTES: u64 = BLOCK_BYTES;

/// The driver's own parameters, which are the same on every machine. No time is asked for, so nothing else of a machine counts.
pub(super) fn driver() -> anyhow::Result<Driver> {
    Ok(Driver::named("a100")?)
}

/// A process's memory in the simulator.
pub(super) struct Simulated<'m> {
    /// By allocation: its address, and what its words hold.
    memory: Vec<(u64, Box<[AtomicU64]>)>,
    pages: Mutex<Pages<'m>>,
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
        Ok(Self { memory: memory.collect::<anyhow::Result<_>>()?, pages })
    }

    pub(super) fn counts(&self) -> Counts {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).counts()
    }

    fn word(&self, allocation: usize, word: usize) -> Option<&AtomicU64> {
        self.memory.get(allocation)?.1.get(word)
    }

    /// The word that the CPU touches.
    fn touched(&self, allocation: usize, word: usize) -> Option<&AtomicU64> {
        let page = (self.address(allocation) + word as u64 * WORD_BYTES) / PAGE_BYTES;
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).by_cpu(page);
        self.word(allocation, word)
    }

    fn at(&self, address: u64) -> Option<&AtomicU64> {
        let (base, words) = self.memory.iter().rev().find(|(base, _)| *base <= address)?;
        words.get(usize::try_from((address - base) / WORD_BYTES).ok()?)
    }
}

impl Machine for Simulated<'_> {
    fn address(&self, allocation: usize) -> u64 {
        self.memory.get(allocation).map_or(0, |(address, _)| *address)
    }

    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.touched(allocation, word).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    fn cpu_write(&self, allocation: usize, word: usize, value: u64) {
        if let Some(word) = self.touched(allocation, word) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn cpu_add(&self, allocation: usize, word: usize, addend: u64) -> u64 {
        self.touched(allocation, word).map_or(0, |word| word.fetch_add(addend, Ordering::Relaxed))
    }

    fn cpu_mark(&self, _mark: &CpuMark) -> anyhow::Result<()> {
        Ok(())
    }

    fn gpu_run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        let touched = accesses.iter().map(|access| access.va / PAGE_BYTES);
        let window = usize::try_from(kernel.window)?;
        self.pages.lock().unwrap_or_else(PoisonError::into_inner).by_gpu(touched, window)?;
        for access in accesses {
            let word = self.at(access.va).context("an access beside all memory")?;
            match kernel.kind {
                Kind::Read => access.value = word.load(Ordering::Relaxed),
                Kind::Write => word.store(access.value, Ordering::Relaxed),
                Kind::Atomic => access.value = word.fetch_add(access.value, Ordering::Relaxed),
            }
        }
        Ok(())
    }

    fn call(&self, _call: Call, _address: u64, _bytes: u64) -> anyhow::Result<()> {
        bail!("the simulator takes no calls")
    }

    fn device_alloc(&self, _name: &str, _gpu: u32, _bytes: u64) -> anyhow::Result<()> {
        bail!("the simulator has managed memory alone")
    }

    fn device_free(&self, _name: &str) -> anyhow::Result<()> {
        bail!("the simulator has managed memory alone")
    }

    fn kill(&self) -> anyhow::Result<()> {
        bail!("a process in the simulator does not end")
    }
}
