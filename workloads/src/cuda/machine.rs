//! Managed memory on a GPU, and the kernels that work on it.

use std::{
    ffi::{CString, c_void},
    ptr,
    time::Duration,
};

use cudarc::driver::sys::{self, CUmem_advise as MemAdvise};

use super::{
    device::Device,
    library::{CudaError, call},
};
use crate::{
    PAGE_WORDS, WORD_BYTES,
    order::Shuffle,
    phase::{Advice, Processor},
    run::Machine,
};

/// Kernels, compiled by the driver for the GPU present.
const KERNELS: &str = include_str!("../../ptx/kernels.ptx");
const BLOCK_THREADS: u32 = 256;
/// Maximum of blocks, enough to fill any GPU; a larger range is processed in a loop.
const GRID_BLOCKS_MAX: u64 = 1024;

impl Device {
    /// Allocates managed memory of whole pages, and loads the kernels. The caller has checked the
    /// guard.
    ///
    /// # Errors
    /// If CPU and GPU cannot access managed memory concurrently, or a call fails.
    pub fn managed(self, bytes: u64) -> Result<CudaMachine, CudaError> {
        let has = |attribute: &str| self.gpu().attributes.get(attribute).is_some_and(|value| *value != 0);
        let unsupported = |missing| CudaError::Unsupported { gpu: self.gpu().name.clone(), missing };
        if !has("managed_memory") {
            return Err(unsupported("has no managed memory (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY is 0)"));
        }
        if !has("concurrent_managed_access") {
            return Err(unsupported(
                "does not support page faults (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0), so there is nothing to observe",
            ));
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // From here on, dropping `machine` frees everything allocated.
        let mut machine = CudaMachine {
            device: self,
            words: bytes / WORD_BYTES,
            base: 0,
            sum: 0,
            module: ptr::null_mut(),
            kernels: Kernels([ptr::null_mut(); 4]),
        };
        call!(cuMemAllocManaged(
            &raw mut machine.base,
            length,
            sys::CUmemAttach_flags_enum::CU_MEM_ATTACH_GLOBAL as u32
        ))?;
        call!(cuMemAlloc_v2(&raw mut machine.sum, size_of::<u64>()))?;
        machine.load_kernels()?;
        Ok(machine)
    }
}

/// Functions in the order of [`Kernel`].
struct Kernels([sys::CUfunction; 4]);

#[derive(Clone, Copy)]
enum Kernel {
    WritePattern,
    Increment,
    Weigh,
    WeighShuffled,
}

/// Managed memory, and the kernels that work on it.
pub struct CudaMachine {
    device: Device,
    words: u64,
    base: sys::CUdeviceptr,
    /// Word of device memory for sums, so that reading a sum touches no managed memory.
    sum: sys::CUdeviceptr,
    module: sys::CUmodule,
    kernels: Kernels,
}

impl CudaMachine {
    /// Address of the managed memory.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base
    }

    fn load_kernels(&mut self) -> Result<(), CudaError> {
        // The file has no NUL, so the default, an empty program, is never used.
        let text = CString::new(KERNELS).unwrap_or_default();
        call!(cuModuleLoadData(&raw mut self.module, text.as_ptr().cast()))?;
        let names = [c"write_pattern", c"increment", c"weigh", c"weigh_shuffled"];
        for (function, name) in self.kernels.0.iter_mut().zip(names) {
            call!(cuModuleGetFunction(function, self.module, name.as_ptr()))?;
        }
        // First launches on empty ranges, so that no phase includes a kernel's loading time. The
        // shuffle of one page reads one word: `sum`, not managed memory.
        self.launch(Kernel::WritePattern, 0, &mut [self.base, 0, 1, 0])?;
        self.launch(Kernel::Increment, 0, &mut [self.base, 0, 1])?;
        self.launch(Kernel::Weigh, 0, &mut [self.base, 0, 1, self.sum])?;
        self.launch(Kernel::WeighShuffled, 1, &mut [self.sum, 0, 0, 0, self.sum])?;
        Ok(())
    }

    /// Runs a kernel on `count` items and waits for it. Every parameter is passed as 64 bits. Of a
    /// parameter declared with 32 bits the driver reads the lower half, which comes first.
    fn launch(&self, kernel: Kernel, count: u64, parameters: &mut [u64]) -> Result<Duration, CudaError> {
        let blocks = u32::try_from(count.div_ceil(BLOCK_THREADS.into()).clamp(1, GRID_BLOCKS_MAX)).unwrap_or(1);
        let Kernels(kernels) = &self.kernels;
        let function = kernels.get(kernel as usize).copied().unwrap_or(ptr::null_mut());
        let mut pointers: Vec<*mut c_void> = parameters.iter_mut().map(|value| ptr::from_mut(value).cast()).collect();
        let stream = ptr::null_mut();
        let pointers = pointers.as_mut_ptr();
        timed(|| {
            call!(cuLaunchKernel(function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, stream, pointers, ptr::null_mut()))
        })
    }

    fn sum_of(&self, kernel: Kernel, count: u64, parameters: &mut [u64]) -> Result<(u64, Duration), CudaError> {
        call!(cuMemsetD32_v2(self.sum, 0, 2))?;
        let elapsed = self.launch(kernel, count, parameters)?;
        let mut sum = 0u64;
        call!(cuMemcpyDtoH_v2((&raw mut sum).cast(), self.sum, size_of::<u64>()))?;
        Ok((sum, elapsed))
    }

    fn length(&self) -> usize {
        usize::try_from(self.words * WORD_BYTES).unwrap_or(usize::MAX)
    }

    fn word(&self, at: u64) -> *mut u64 {
        assert!(at < self.words, "word {at} of {}", self.words);
        // Managed memory has one address for all processors.
        ptr::with_exposed_provenance_mut(usize::try_from(self.base + at * WORD_BYTES).unwrap_or(0))
    }
}

impl Drop for CudaMachine {
    fn drop(&mut self) {
        // As in Device. The context is released after this.
        if !self.module.is_null() {
            let _ = call!(cuModuleUnload(self.module));
        }
        for memory in [self.sum, self.base] {
            if memory != 0 {
                let _ = call!(cuMemFree_v2(memory));
            }
        }
    }
}

impl Machine for CudaMachine {
    type Error = CudaError;

    fn words(&self) -> u64 {
        self.words
    }

    /// Panics beyond the end.
    fn cpu_read(&self, at: u64) -> u64 {
        // SAFETY: within the allocation, aligned, and volatile since the GPU writes it, though only
        // while a kernel runs.
        unsafe { self.word(at).read_volatile() }
    }

    /// Panics beyond the end.
    fn cpu_write(&mut self, at: u64, value: u64) {
        // SAFETY: within the allocation, aligned, and nothing in this process holds a reference into
        // it. Volatile since the GPU reads it, though only while a kernel runs.
        unsafe { self.word(at).write_volatile(value) }
    }

    fn gpu_write(&mut self, seed: u64) -> Result<Duration, CudaError> {
        self.launch(Kernel::WritePattern, self.words, &mut [self.base, self.words, 1, seed])
    }

    fn gpu_increment(&mut self) -> Result<Duration, CudaError> {
        let pages = self.words / PAGE_WORDS;
        self.launch(Kernel::Increment, pages, &mut [self.base, pages, PAGE_WORDS])
    }

    fn gpu_weigh(&mut self, stride: u64) -> Result<(u64, Duration), CudaError> {
        let count = self.words.div_ceil(stride);
        self.sum_of(Kernel::Weigh, count, &mut [self.base, count, stride, self.sum])
    }

    fn gpu_weigh_shuffled(&mut self, shuffle: Shuffle) -> Result<(u64, Duration), CudaError> {
        let Shuffle { mask, shift, seed } = shuffle;
        let parameters = &mut [self.base, mask, u64::from(shift), seed, self.sum];
        self.sum_of(Kernel::WeighShuffled, mask + 1, parameters)
    }

    fn prefetch(&mut self, to: Processor) -> Result<Duration, CudaError> {
        let to = self.device.number(to);
        timed(|| call!(cuMemPrefetchAsync(self.base, self.length(), to, ptr::null_mut())))
    }

    fn advise(&mut self, advice: Advice) -> Result<(), CudaError> {
        let (advice, device) = match advice {
            Advice::ReadMostly => (MemAdvise::CU_MEM_ADVISE_SET_READ_MOSTLY, self.device.device),
            Advice::PreferredLocation(at) => (MemAdvise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, self.device.number(at)),
            Advice::AccessedByGpu => (MemAdvise::CU_MEM_ADVISE_SET_ACCESSED_BY, self.device.device),
        };
        call!(cuMemAdvise(self.base, self.length(), advice, device))
    }
}

/// Time by the GPU's events of work on the default stream, which is complete on return.
fn timed(work: impl FnOnce() -> Result<(), CudaError>) -> Result<Duration, CudaError> {
    let (begin, end) = (Event::new()?, Event::new()?);
    begin.record()?;
    work()?;
    end.record()?;
    call!(cuEventSynchronize(end.0))?;
    call!(cuCtxSynchronize())?;
    let mut milliseconds = 0f32;
    call!(cuEventElapsedTime(&raw mut milliseconds, begin.0, end.0))?;
    Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
}

struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Self, CudaError> {
        let mut event = ptr::null_mut();
        call!(cuEventCreate(&raw mut event, 0)).map(|()| Self(event))
    }

    fn record(&self) -> Result<(), CudaError> {
        call!(cuEventRecord(self.0, ptr::null_mut()))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let _ = call!(cuEventDestroy_v2(self.0));
    }
}
