//! Machine of the steps at the driver: this process, with its VA space and GPUs.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, bail};
use gpu::{
    swgpu::{AccessCounters, DeviceMemory, Gpu, GpuAccess, Kernel, Space},
    uvm::VaSpace,
    words::Words,
};

use super::reply;
use crate::{
    protocol::{Advised, Reply},
    residency::Residency,
    scenario::{Call, Place, Process, part::PAGE_BYTES},
    sys::{
        access_log::{self, CpuMark},
        advice::{RangeAdvice, advice_at},
        counters::Tracker,
        driver_major,
        memory::SharedPages,
        process,
        residency::ResidencyQuery,
    },
    work::Machine,
};

/// Process that is registered with the driver.
pub(super) struct Tenant {
    // In the order in which they must be closed: the VA space before the GPU's channel, whose
    // memory it uses.
    memory: Vec<(u64, Words)>,
    va_space: VaSpace,
    tracker: Option<Tracker>,
    device_memory: Mutex<BTreeMap<String, (u32, DeviceMemory)>>,
    gpus: BTreeMap<u32, (Space, Gpu)>,
}

impl Tenant {
    /// Registers the process, with the driver's counters in `counters`, if any.
    pub(super) fn new(process: &Process, counters: Option<&SharedPages>) -> anyhow::Result<Self> {
        let gpus = process.gpus.iter().map(|number| Gpu::open(*number)).collect::<Result<Vec<Gpu>, _>>()?;
        let mut va_space = VaSpace::new(gpus.iter().map(|gpu| &gpu.uuid))?;
        // Attached before any event that counts.
        let tracker = counters.map(|pages| Tracker::attach(&va_space, pages)).transpose()?;
        va_space.attach_address_space()?;
        let mut attached = BTreeMap::new();
        for (number, gpu) in process.gpus.iter().zip(gpus) {
            let space = gpu.space()?;
            va_space.attach(&gpu.uuid, &space)?;
            attached.insert(*number, (space, gpu));
        }
        let mut memory = Vec::new();
        for (address, allocation) in process.addresses().zip(&process.allocations) {
            memory.push((address, Words::managed(&va_space, address, allocation.bytes)?));
        }
        Ok(Self { memory, va_space, tracker, device_memory: Mutex::default(), gpus: attached })
    }

    pub(super) fn tracker_fds(&self) -> Vec<i32> {
        self.tracker.iter().flat_map(Tracker::fds).collect()
    }

    /// Accesses of its GPUs, with the bytes that they moved.
    pub(super) fn accesses(&self) -> anyhow::Result<Vec<AccessCounters>> {
        Ok(self.gpus.values().map(|(space, _)| space.access_counters()).collect::<Result<_, _>>()?)
    }

    /// Residency of its pages, by allocation.
    pub(super) fn residency(&self, process: &Process) -> anyhow::Result<Vec<Residency>> {
        let mut query = ResidencyQuery::new(&self.va_space, driver_major()?);
        let gpus = self.gpus.keys().last().map_or(0, |last| *last as usize + 1);
        let mut all = Vec::new();
        for (allocation, (base, _)) in process.allocations.iter().zip(&self.memory) {
            let mut found =
                Residency { allocation: allocation.name.clone(), gpu_bytes: vec![0; gpus], ..Residency::default() };
            for page in 0..allocation.bytes.div_ceil(PAGE_BYTES) {
                let places = query.processors(base + page * PAGE_BYTES)?;
                if places.is_empty() {
                    found.nowhere_bytes += PAGE_BYTES;
                }
                for place in places {
                    let gpu = self.gpus.iter().find(|(_, (_, gpu))| gpu.uuid == place);
                    let number = gpu.and_then(|(number, _)| usize::try_from(*number).ok());
                    match number.and_then(|number| found.gpu_bytes.get_mut(number)) {
                        Some(bytes) => *bytes += PAGE_BYTES,
                        None => found.cpu_bytes += PAGE_BYTES,
                    }
                }
            }
            all.push(found);
        }
        Ok(all)
    }

    /// Advice in force on its memory, by any process.
    pub(super) fn advised(&self, process: &Process) -> anyhow::Result<Vec<Advised>> {
        let driver_major = driver_major()?;
        let mut advised = Vec::new();
        for (allocation, (base, _)) in process.allocations.iter().zip(&self.memory) {
            let mut begin = *base;
            while begin < base + allocation.bytes {
                let RangeAdvice { end, has_preferred_location, accessed_by, duplicates_reads } =
                    advice_at(&self.va_space, begin, driver_major)?;
                let kinds = [
                    has_preferred_location.then(|| "a preferred location".to_owned()),
                    (accessed_by > 0).then(|| format!("accessed by {accessed_by}")),
                    duplicates_reads.then(|| "read duplication".to_owned()),
                ];
                let kinds: Vec<String> = kinds.into_iter().flatten().collect();
                if !kinds.is_empty() {
                    advised.push(Advised { begin, end, description: kinds.join(", ") });
                }
                begin = end;
            }
        }
        Ok(advised)
    }

    fn gpu(&self, number: u32) -> anyhow::Result<&(Space, Gpu)> {
        self.gpus.get(&number).with_context(|| format!("the process has no GPU {number}"))
    }

    /// Driver's name of a place; `None` is the CPU.
    fn processor(&self, place: Place) -> anyhow::Result<Option<&[u8; 16]>> {
        match place {
            Place::Cpu => Ok(None),
            Place::Gpu(number) => Ok(Some(&self.gpu(number)?.1.uuid)),
        }
    }
}

#[expect(clippy::indexing_slicing, reason = "a validated scenario names only allocations that it has")]
impl Machine for Tenant {
    fn address(&self, allocation: usize) -> u64 {
        self.memory[allocation].0
    }

    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.memory[allocation].1.read(word)
    }

    fn cpu_write(&self, allocation: usize, word: usize, value: u64) {
        self.memory[allocation].1.write(word, value);
    }

    fn cpu_add(&self, allocation: usize, word: usize, addend: u64) -> u64 {
        self.memory[allocation].1.add(word, addend)
    }

    fn cpu_mark(&self, mark: &CpuMark) -> anyhow::Result<()> {
        // Only in the first GPU's log: the logs of several GPUs share one sequence.
        self.gpus.values().next().map_or(Ok(()), |(_, gpu)| access_log::mark(gpu, mark))
    }

    fn gpu_run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        Ok(self.gpu(kernel.gpu)?.0.run(kernel, accesses)?)
    }

    fn call(&self, call: Call, base: u64, bytes: u64) -> anyhow::Result<()> {
        let driver = &self.va_space;
        let result = match call {
            Call::Migrate { to } => driver.migrate(base, bytes, self.processor(to)?),
            Call::SetPreferredLocation { to } => driver.set_preferred_location(base, bytes, self.processor(to)?),
            Call::UnsetPreferredLocation => driver.unset_preferred_location(base, bytes),
            Call::SetAccessedBy { by } => driver.set_accessed_by(base, bytes, self.processor(by)?),
            Call::UnsetAccessedBy { by } => driver.unset_accessed_by(base, bytes, self.processor(by)?),
            Call::EnableReadDuplication => driver.enable_read_duplication(base, bytes),
            Call::DisableReadDuplication => driver.disable_read_duplication(base, bytes),
        };
        Ok(result?)
    }

    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()> {
        let mut device_memory = self.device_memory.lock().unwrap_or_else(PoisonError::into_inner);
        if device_memory.contains_key(name) {
            bail!("device memory {name:?} is not freed yet");
        }
        let taken = self.gpu(gpu)?.1.alloc(bytes).with_context(|| format!("no device memory for {name:?}"))?;
        device_memory.insert(name.to_owned(), (gpu, taken));
        Ok(())
    }

    fn device_free(&self, name: &str) -> anyhow::Result<()> {
        let taken = self.device_memory.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        let (gpu, memory) = taken.with_context(|| format!("device memory {name:?} is not allocated"))?;
        Ok(self.gpu(gpu)?.1.free(&memory)?)
    }

    fn kill(&self) -> anyhow::Result<()> {
        reply(&Reply::Dying)?;
        process::kill_self()
    }
}
