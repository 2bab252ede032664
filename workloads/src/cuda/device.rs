//! GPU, and facts about it.

use std::{
    collections::BTreeMap,
    ffi::{CStr, c_int},
    ptr,
};

use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};

use super::library::{CudaError, call, check_library};
use crate::{phase::Processor, report::Gpu};

/// Attributes that determine how managed memory works.
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

/// GPU with its primary context, current on this thread.
pub struct Device {
    pub(super) device: sys::CUdevice,
    gpu: Gpu,
}

/// Opens a GPU of any capability.
///
/// # Errors
/// If there is no driver or no such GPU, or a call fails.
pub fn open(index: i32) -> Result<Device, CudaError> {
    check_library()?;
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
    Ok(Device { device, gpu: describe_device(index, device)? })
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
        .map(|&(name, attribute_id)| attribute(attribute_id).map(|value| (name.to_owned(), value)))
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

/// UUID, as shown by nvidia-smi.
fn uuid_text(bytes: [u8; 16]) -> String {
    let hex = u128::from_be_bytes(bytes);
    let part = |low: u32, digits: usize| format!("{:0digits$x}", (hex >> low) & ((1 << (4 * digits)) - 1));
    format!("GPU-{}-{}-{}-{}-{}", part(96, 8), part(80, 4), part(64, 4), part(48, 4), part(0, 12))
}

impl Device {
    /// Facts about the GPU.
    #[must_use]
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// CUDA's number of a processor: the CPU is device -1.
    pub(super) fn number(&self, processor: Processor) -> sys::CUdevice {
        match processor {
            Processor::Cpu => -1,
            Processor::Gpu => self.device,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A failure has no remedy here; the driver cleans up after the process.
        let _ = call!(cuDevicePrimaryCtxRelease_v2(self.device));
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
            Ok(device) => assert!(device.gpu().total_bytes > 0),
            Err(CudaError::NoLibrary | CudaError::NoDriver(_) | CudaError::NoDevice { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
