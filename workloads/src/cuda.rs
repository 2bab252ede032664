//! The CUDA driver, through cudarc's bindings: the only unsafe code of this crate. What leaves this module is safe to use.
//!
//! cudarc panics when libcuda, or a function in it, is not there; so [`open`] looks for all of them first. Its result codes are those of CUDA
//! 12.9; the functions called here return none that came later.
#![expect(unsafe_code, reason = "foreign functions and managed memory; every other module is safe code")]

use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, c_int, c_void},
    ptr,
    time::Duration,
};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute, CUmem_advise as MemAdvise, CUresult};
use thiserror::Error;

use crate::{
    PAGE_WORDS, WORD_BYTES,
    order::Shuffle,
    phase::{Advice, Processor},
    report::Gpu,
    run::Machine,
};

/// Compiled by the driver for whatever GPU there is.
const KERNELS: &str = include_str!("../ptx/kernels.ptx");
const BLOCK_THREADS: u32 = 256;
/// Enough to fill any GPU; a larger range is walked in a loop.
const GRID_BLOCKS_MAX: u64 = 1024;

/// Why there is no GPU to work with, or why it did not do what it was asked for.
#[derive(Debug, Error)]
pub enum CudaError {
    /// No driver here.
    #[error(
        "there is no libcuda here: install NVIDIA's driver, or let the container have its GPU (nvidia-container-toolkit)"
    )]
    NoLibrary,
    /// A driver that is too old.
    #[error("libcuda has no {0}: the driver is too old")]
    NoFunction(&'static str),
    /// The driver does not start; without a GPU, for one.
    #[error("CUDA does not start: {0}")]
    NoDriver(String),
    /// No such GPU.
    #[error("there is no GPU {index}: CUDA sees {count}")]
    NoDevice {
        /// Asked for.
        index: i32,
        /// Those there are.
        count: i32,
    },
    /// The GPU cannot do it.
    #[error("{gpu} {lack}")]
    Unsupported {
        /// Its name.
        gpu: String,
        /// What it lacks.
        lack: &'static str,
    },
    /// A call failed.
    #[error("{call} failed: {reason}")]
    Call {
        /// The function.
        call: &'static str,
        /// CUDA's name of the error and its description.
        reason: String,
    },
}

/// Every function called here.
const FUNCTIONS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAdvise",
    "cuMemAllocManaged",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemPrefetchAsync",
    "cuMemcpyDtoH_v2",
    "cuMemsetD32_v2",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
];

macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: every argument is a plain number, a handle made by this module and not yet destroyed, or a pointer to a live local (or to memory
        // that the callee's documentation asks for) of the type that the function reads or writes.
        let result = unsafe { sys::$function($($argument),*) };
        check(stringify!($function), result)
    }};
}

fn check(call: &'static str, result: CUresult) -> Result<(), CudaError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(CudaError::Call { call, reason: describe(result) }) }
}

/// As "`CUDA_ERROR_NO_DEVICE` (no CUDA-capable device is detected)".
fn describe(result: CUresult) -> String {
    let mut texts = [ptr::null(); 2];
    let [name, text] = &mut texts;
    // SAFETY: writes a pointer to a string that lasts as long as the library.
    let named = unsafe { sys::cuGetErrorName(result, name) };
    // SAFETY: as above.
    let described = unsafe { sys::cuGetErrorString(result, text) };
    if named != CUresult::CUDA_SUCCESS || described != CUresult::CUDA_SUCCESS || texts.iter().any(|text| text.is_null())
    {
        return format!("error {}", result as u32);
    }
    // SAFETY: not null, and a NUL-terminated string that lasts.
    let [name, text] = texts.map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy());
    format!("{name} ({text})")
}

/// Look for the library and every function, where cudarc would panic.
fn look_for_library() -> Result<(), CudaError> {
    // SAFETY: loads the system's libcuda, whose initialisers have no requirements.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoLibrary);
    }
    // SAFETY: as above; it is there.
    let library = unsafe { sys::culib() };
    let lacks = |function: &&&'static str| {
        // SAFETY: the symbol is not used, only looked for.
        let found = unsafe { library.get::<*const c_void>(function.as_bytes()) };
        found.is_err()
    };
    FUNCTIONS.iter().find(lacks).map_or(Ok(()), |function| Err(CudaError::NoFunction(function)))
}

/// The attributes that decide how managed memory works.
const ATTRIBUTES: &[(&str, Attribute)] = &[
    ("managed_memory", Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY),
    ("concurrent_managed_access", Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS),
    ("pageable_memory_access", Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS),
    (
        "pageable_memory_access_uses_host_page_tables",
        Attribute::CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
    ),
    ("direct_managed_mem_access_from_host", Attribute::CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    ("host_native_atomic_supported", Attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED),
    ("multiprocessor_count", Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
    ("pci_bus_id", Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
];

/// A GPU with its primary context, current on this thread.
pub struct Device {
    device: sys::CUdevice,
    about: Gpu,
}

/// Open a GPU, whatever it can do.
///
/// # Errors
/// When there is no driver or no such GPU, or a call fails.
pub fn open(index: i32) -> Result<Device, CudaError> {
    look_for_library()?;
    call!(cuInit(0)).map_err(|error| match error {
        CudaError::Call { reason, .. } => CudaError::NoDriver(reason),
        other => other,
    })?;
    let mut count = 0;
    call!(cuDeviceGetCount(&raw mut count))?;
    if !(0..count).contains(&index) {
        return Err(CudaError::NoDevice { index, count });
    }
    let mut device = 0;
    call!(cuDeviceGet(&raw mut device, index))?;
    let mut context = ptr::null_mut();
    call!(cuDevicePrimaryCtxRetain(&raw mut context, device))?;
    call!(cuCtxSetCurrent(context))?;
    Ok(Device { device, about: describe_device(index, device)? })
}

fn describe_device(index: i32, device: sys::CUdevice) -> Result<Gpu, CudaError> {
    let attribute = |attribute| {
        let mut value = 0;
        call!(cuDeviceGetAttribute(&raw mut value, attribute, device)).map(|()| value)
    };
    let mut name = [0u8; 128];
    call!(cuDeviceGetName(name.as_mut_ptr().cast(), c_int::from(i8::MAX), device))?;
    let name = CStr::from_bytes_until_nul(&name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut uuid = sys::CUuuid_st { bytes: [0; 16] };
    call!(cuDeviceGetUuid_v2(&raw mut uuid, device))?;
    let (mut free_bytes, mut total_bytes) = (0, 0);
    call!(cuMemGetInfo_v2(&raw mut free_bytes, &raw mut total_bytes))?;
    let mut cuda_version = 0;
    call!(cuDriverGetVersion(&raw mut cuda_version))?;
    let attributes: BTreeMap<String, i32> = ATTRIBUTES
        .iter()
        .map(|&(name, which)| attribute(which).map(|value| (name.to_owned(), value)))
        .collect::<Result<_, _>>()?;
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(Gpu {
        index,
        name,
        uuid: uuid_text(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])),
        compute_capability: (major, minor),
        free_bytes: free_bytes as u64,
        total_bytes: total_bytes as u64,
        cuda_version,
        attributes,
    })
}

/// As nvidia-smi writes it.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = u128::from_be_bytes(bytes);
    let part = |low: u32, digits: usize| format!("{:0digits$x}", (hex >> low) & ((1 << (4 * digits)) - 1));
    format!("GPU-{}-{}-{}-{}-{}", part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12))
}

impl Device {
    /// What it is.
    #[must_use]
    pub fn about(&self) -> &Gpu {
        &self.about
    }

    /// Allocate managed memory of whole pages, and load the kernels. The caller has asked the guard.
    ///
    /// # Errors
    /// When the GPU cannot share memory with a CPU that uses it at the same time, or a call fails.
    pub fn managed(self, bytes: u64) -> Result<CudaMachine, CudaError> {
        let has = |attribute: &str| self.about.attributes.get(attribute).is_some_and(|value| *value != 0);
        let unsupported = |lack| CudaError::Unsupported { gpu: self.about.name.clone(), lack };
        if !has("managed_memory") {
            return Err(unsupported("has no managed memory (CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY is 0)"));
        }
        if !has("concurrent_managed_access") {
            return Err(unsupported(
                "does not take page faults (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS is 0), so there is nothing to observe",
            ));
        }
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // From here on, whatever was made is unmade when `machine` is dropped.
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

impl Drop for Device {
    fn drop(&mut self) {
        // Nothing is left to be done about a failure; the driver cleans up after the process.
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// In the order of [`Kernel`].
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
    /// A word of the GPU's own memory for sums, so that telling them touches no managed memory.
    sum: sys::CUdeviceptr,
    module: sys::CUmodule,
    kernels: Kernels,
}

impl CudaMachine {
    /// Where the memory is.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base
    }

    fn load_kernels(&mut self) -> Result<(), CudaError> {
        // The file has no NUL, so this never takes the default, which would be no program.
        let text = CString::new(KERNELS).unwrap_or_default();
        call!(cuModuleLoadData(&raw mut self.module, text.as_ptr().cast()))?;
        let names = [c"write_pattern", c"increment", c"weigh", c"weigh_shuffled"];
        for (function, name) in self.kernels.0.iter_mut().zip(names) {
            call!(cuModuleGetFunction(function, self.module, name.as_ptr()))?;
        }
        // Once on nothing, so that no phase pays for a kernel's first launch. The shuffle of one page reads one word: of `sum`, not of managed memory.
        self.launch(Kernel::WritePattern, 0, &mut [self.base, 0, 1, 0])?;
        self.launch(Kernel::Increment, 0, &mut [self.base, 0, 1])?;
        self.launch(Kernel::Weigh, 0, &mut [self.base, 0, 1, self.sum])?;
        self.launch(Kernel::WeighShuffled, 1, &mut [self.sum, 0, 0, 0, self.sum])?;
        Ok(())
    }

    /// Run a kernel on `count` items and wait for it. Every parameter is handed over as 64 bits; of one that is declared with 32 the driver takes
    /// the lower half, which comes first.
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

/// What the GPU's events measure around work on the default stream, which is over when this returns.
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

impl Drop for CudaMachine {
    fn drop(&mut self) {
        // As in Device. The context is let go after this.
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
        // SAFETY: within the allocation, aligned, and volatile since the GPU writes it; it does so only while a kernel runs.
        unsafe { self.word(at).read_volatile() }
    }

    /// Panics beyond the end.
    fn cpu_write(&mut self, at: u64, value: u64) {
        // SAFETY: as in `cpu_read`, and nothing in this process holds a reference into the allocation.
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
        let to = self.number(to);
        timed(|| call!(cuMemPrefetchAsync(self.base, self.length(), to, ptr::null_mut())))
    }

    fn advise(&mut self, advice: Advice) -> Result<(), CudaError> {
        let (advice, device) = match advice {
            Advice::ReadMostly => (MemAdvise::CU_MEM_ADVISE_SET_READ_MOSTLY, self.device.device),
            Advice::PreferredLocation(at) => (MemAdvise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, self.number(at)),
            Advice::AccessedByGpu => (MemAdvise::CU_MEM_ADVISE_SET_ACCESSED_BY, self.device.device),
        };
        call!(cuMemAdvise(self.base, self.length(), advice, device))
    }
}

impl CudaMachine {
    /// How CUDA calls a processor: the CPU is device -1.
    fn number(&self, processor: Processor) -> sys::CUdevice {
        match processor {
            Processor::Cpu => -1,
            Processor::Gpu => self.device.device,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_reads_as_nvidia_smi_shows_it() {
        let bytes = std::array::from_fn(|at| u8::try_from(at * 17).unwrap());
        assert_eq!(uuid_text(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn without_a_driver_there_is_an_error_and_no_panic() {
        match open(0) {
            Ok(device) => assert!(device.about().total_bytes > 0),
            Err(CudaError::NoLibrary | CudaError::NoDriver(_) | CudaError::NoDevice { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_function_that_is_called_is_looked_for_first() {
        let (code, _) = include_str!("cuda.rs").split_once("#[cfg(test)]").unwrap();
        let called = |text: &str| text.split("cu").skip(1).count();
        assert!(called(code) > FUNCTIONS.len());
        let (_, after) = code.split_once("];").unwrap();
        for word in after.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let is_function =
                word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()));
            assert!(!is_function || FUNCTIONS.contains(&word), "{word} is not in FUNCTIONS");
        }
        assert!(FUNCTIONS.is_sorted());
    }
}
