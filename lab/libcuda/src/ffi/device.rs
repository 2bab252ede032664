//! Devices.

use std::ffi::c_char;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute as A, CUdevprop, CUuuid};

use super::{
    args::{Out, Text, size},
    functions,
};
use crate::{
    Error, Result,
    backend::Properties,
    driver::Driver,
    module::{SHARED_BYTES, SHARED_BYTES_MAX},
};

/// Index of a device that there is.
///
/// # Errors
/// There is none.
pub(super) fn index(driver: &Driver, device: CUdevice) -> Result<usize> {
    let index = usize::try_from(device).map_err(|_| Error::CUDA_ERROR_INVALID_DEVICE)?;
    if index < driver.machine.backend.devices().len() { Ok(index) } else { Err(Error::CUDA_ERROR_INVALID_DEVICE) }
}

fn properties(driver: &Driver, device: CUdevice) -> Result<&Properties> {
    let index = index(driver, device)?;
    driver.machine.backend.devices().get(index).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)
}

fn bus_id(properties: &Properties) -> String {
    let (domain, bus, device) = properties.pci;
    format!("{domain:04X}:{bus:02X}:{device:02X}.0")
}

/// Writes a text with its NUL into as many bytes as there are.
fn set_text(to: Out<u8>, length: i32, text: &str) -> Result<()> {
    let Some(last) = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)) else {
        return Err(Error::CUDA_ERROR_INVALID_VALUE);
    };
    let bytes = text.bytes().take(last).chain([0]).enumerate();
    bytes.into_iter().try_for_each(|(at, byte)| to.set_at(at, byte))
}

/// Value of an attribute; those not listed are 0.
fn attribute(driver: &Driver, properties: &Properties, attribute: i32) -> i32 {
    let (major, minor) = properties.capability;
    let bus = |number: u32| i32::try_from(number).unwrap_or(0);
    let concurrent = i32::from(properties.concurrent);
    let values = [
        (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, i32::MAX),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535),
        (A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, SHARED_BYTES),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, SHARED_BYTES_MAX),
        (A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, SHARED_BYTES_MAX),
        (A::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536),
        (A::CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32),
        (A::CU_DEVICE_ATTRIBUTE_MAX_PITCH, i32::MAX),
        (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536),
        (A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536),
        (A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1_000_000),
        (A::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512),
        (A::CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32),
        (A::CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1),
        (A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4),
        (A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024),
        (A::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 16),
        (A::CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1),
        (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1),
        (A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, bus(properties.pci.0)),
        (A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, bus(properties.pci.1)),
        (A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, bus(properties.pci.2)),
        (A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1_000_000),
        (A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 256),
        (A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20),
        (A::CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 2),
        (A::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, major),
        (A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor),
        (A::CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1),
        (A::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, concurrent),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1),
        (A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1),
        (A::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1),
        (A::CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1),
        (A::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, i32::from(driver.machine.settings.pools)),
    ];
    values.iter().find(|(known, _)| *known as i32 == attribute).map_or(0, |(_, value)| *value)
}

functions! {
    driver(driver) fn cuDeviceGetCount(count: Out<i32>) {
        count.set(i32::try_from(driver.machine.backend.devices().len()).unwrap_or(i32::MAX))
    }

    driver(driver) fn cuDeviceGet(device: Out<CUdevice>, ordinal: i32) {
        index(driver, ordinal)?;
        device.set(ordinal)
    }

    driver(driver) fn cuDeviceGetName(name: Out<u8>, length: i32, device: CUdevice) {
        set_text(name, length, &properties(driver, device)?.name)
    }

    driver(driver) fn cuDeviceGetUuid_v2 [cuDeviceGetUuid](uuid: Out<CUuuid>, device: CUdevice) {
        let bytes = properties(driver, device)?.uuid.map(|byte| c_char::from_ne_bytes([byte]));
        uuid.set(CUuuid { bytes })
    }

    driver(driver) fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: CUdevice) {
        bytes.set(size(properties(driver, device)?.total_bytes))
    }

    driver(driver) fn cuDeviceGetAttribute(value: Out<i32>, name: i32, device: CUdevice) {
        let properties = properties(driver, device)?;
        if !(1..A::CU_DEVICE_ATTRIBUTE_MAX as i32).contains(&name) {
            return Err(Error::CUDA_ERROR_INVALID_VALUE);
        }
        value.set(attribute(driver, properties, name))
    }

    driver(driver) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: CUdevice) {
        let capability = properties(driver, device)?.capability;
        major.set(capability.0)?;
        minor.set(capability.1)
    }

    driver(driver) fn cuDeviceGetProperties(to: Out<CUdevprop>, device: CUdevice) {
        properties(driver, device)?;
        to.set(CUdevprop {
            maxThreadsPerBlock: 1024,
            maxThreadsDim: [1024, 1024, 64],
            maxGridSize: [i32::MAX, 65535, 65535],
            sharedMemPerBlock: SHARED_BYTES,
            totalConstantMemory: 65536,
            SIMDWidth: 32,
            memPitch: i32::MAX,
            regsPerBlock: 65536,
            clockRate: 1_000_000,
            textureAlign: 512,
        })
    }

    driver(driver) fn cuDeviceGetPCIBusId(text: Out<u8>, length: i32, device: CUdevice) {
        set_text(text, length, &bus_id(properties(driver, device)?))
    }

    driver(driver) fn cuDeviceGetByPCIBusId(device: Out<CUdevice>, text: Text) {
        let wanted = text.read()?.to_uppercase();
        let at = driver.machine.backend.devices().iter().position(|properties| {
            let id = bus_id(properties);
            id == wanted || id.strip_suffix(".0") == Some(&wanted) || id.split_once(':').map(|(_, id)| id) == Some(&wanted)
        });
        device.set(at.and_then(|at| i32::try_from(at).ok()).ok_or(Error::CUDA_ERROR_INVALID_DEVICE)?)
    }

    driver(driver) fn cuDeviceCanAccessPeer(can: Out<i32>, device: CUdevice, peer: CUdevice) {
        index(driver, device)?;
        index(driver, peer)?;
        can.set(0)
    }

    driver(driver) fn cuDeviceGetP2PAttribute(value: Out<i32>, _attribute: u32, device: CUdevice, peer: CUdevice) {
        if index(driver, device)? == index(driver, peer)? {
            return Err(Error::CUDA_ERROR_INVALID_DEVICE);
        }
        value.set(0)
    }

    driver(driver) fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, _kind: u32, device: CUdevice) {
        index(driver, device)?;
        supported.set(0)
    }
}
