//! Backend of the lab: the software GPU under the real nvidia-uvm.
//!
//! Managed memory is nvidia-uvm's, and kernels access it by the mirror of the GPU's address space
//! (`lab/swgpu/mirror.h`), with genuine faults. The bytes of device memory are anonymous memory at
//! the place where the mirror would have them, its frames are taken from the card, so that the
//! driver has to evict. Host memory is mapped for CPU and GPUs alike.

mod device;
mod engine;
mod frames;
mod global;

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use gpu::{swgpu::Gpu, uvm::VaSpace, words::Words};
use ptx::{Counts, Kernel, KernelError, Launch, MemoryFault};

use self::{
    device::Device,
    engine::{Engine, Side},
    global::Global,
};
use super::{
    Accesses, Advice, Backend, BackendError, Kind, Location, Place, Properties, Range,
    observed::{Lasting, Observed},
    pages::Shared,
    registered::Registered,
    space::Space,
    window::{self, ALLOWED, DEVICE_BASE, HOST_BASE, SPACE_BYTES, Spaces},
};
use crate::settings::Settings;

/// Distance of the devices' views of the window from it and from each other.
const VIEW_OFFSET: u64 = 4 * SPACE_BYTES;
/// Devices for whose views there are addresses.
const DEVICES_MAX: u32 = 8;
/// Pages of the driver.
const PAGE_BYTES: u64 = 4096;

/// Backend of the lab.
pub(crate) struct Lab {
    // In the order in which they must be closed: the VA space before the GPU's channel.
    va_space: VaSpace,
    devices: Vec<Device>,
    properties: Vec<Properties>,
    books: Mutex<Books>,
    registered: Registered,
    /// Host memory, by its offset in the host's space.
    host: Shared,
}

/// What is allocated.
struct Books {
    free: Spaces,
    managed_live: BTreeMap<u64, Words>,
    /// Length and device of device memory by its address.
    device_live: BTreeMap<u64, (u64, usize)>,
}

/// Whether this machine has a software GPU.
pub(crate) fn is_here() -> bool {
    std::path::Path::new("/dev/swgpu").exists()
}

/// Unit of the bus in which accesses by engines, and remote ones, are counted.
const SECTOR_BYTES: u64 = 32;

const fn is_managed(address: u64) -> bool {
    address >= window::BASE && address < DEVICE_BASE
}

fn of_gpu(error: &gpu::Error) -> BackendError {
    BackendError::System { call: "a request to the lab's GPU", error: format!("{error:?}") }
}

impl Lab {
    /// Registers this process with the driver, for all GPUs of the machine.
    ///
    /// # Errors
    /// The software GPU or the driver refuses.
    pub(crate) fn new(settings: &Settings) -> Result<Self, BackendError> {
        let first = Gpu::open(0).map_err(|error| of_gpu(&error))?;
        let others = (1..first.count.min(DEVICES_MAX)).map(Gpu::open);
        let others: Vec<Gpu> = others.collect::<Result<_, _>>().map_err(|error| of_gpu(&error))?;
        let gpus: Vec<Gpu> = [first].into_iter().chain(others).collect();
        let attach = || {
            let mut va_space = VaSpace::new(gpus.iter().map(|gpu| &gpu.uuid))?;
            va_space.attach_address_space()?;
            Ok(va_space)
        };
        let va_space: VaSpace = attach().map_err(|error| of_gpu(&error))?;
        let host = Shared::create("cuda-host", SPACE_BYTES)?;
        host.map(HOST_BASE)?;
        let devices = gpus.into_iter().map(|gpu| Device::start(gpu, &va_space, &host, settings));
        let devices: Vec<Device> = devices.collect::<Result<_, _>>()?;
        let properties = devices.iter().map(|device| device.properties(settings)).collect();
        let books = Books { free: Spaces::new(), managed_live: BTreeMap::new(), device_live: BTreeMap::new() };
        let books = Mutex::new(books);
        Ok(Self { va_space, devices, properties, books, registered: Registered::default(), host })
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device(&self, device: usize) -> Result<&Device, MemoryFault> {
        self.devices.get(device).ok_or(MemoryFault { address: 0 })
    }

    /// Device that has memory of the device space.
    fn owner(&self, range: Range) -> Result<&Device, MemoryFault> {
        let fault = MemoryFault { address: range.address };
        let books = self.books();
        let (begin, (bytes, device)) = books.device_live.range(..=range.address).next_back().ok_or(fault)?;
        if range.end() > begin + bytes { Err(fault) } else { self.device(*device) }
    }

    /// Side of a transfer of a device's engine.
    fn side(&self, device: usize, place: Place, bytes: u64) -> Result<Side<'_>, MemoryFault> {
        let range = Range { address: place.address(), bytes };
        match place.address() {
            address if is_managed(address) => Ok(Side::managed(self.device(device)?, range)),
            DEVICE_BASE..HOST_BASE => Ok(Side::plain(self.owner(range)?.view(range.address))),
            address => Ok(Side::plain(address)),
        }
    }

    fn uuid(&self, location: Location) -> Option<&gpu::Uuid> {
        match location {
            Location::Host => None,
            Location::Device(device) => self.properties.get(device).map(|properties| &properties.uuid),
        }
    }
}

impl Backend for Lab {
    fn devices(&self) -> &[Properties] {
        &self.properties
    }

    fn free_bytes(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, Device::free_bytes)
    }

    fn in_window(&self, address: u64) -> bool {
        window::contains(address)
    }

    fn allocate(&self, kind: Kind, bytes: u64) -> Result<u64, BackendError> {
        let refused = || BackendError::OutOfMemory(bytes);
        if let Kind::Device(device) = kind {
            // Without the lock: the driver evicts meanwhile.
            self.devices.get(device).ok_or_else(refused)?.take(bytes)?;
        }
        let mut books = self.books();
        match kind {
            Kind::Managed => {
                let address = books.free.take(kind, bytes).ok_or_else(refused)?;
                let length = bytes.max(1).next_multiple_of(PAGE_BYTES);
                match Words::managed(&self.va_space, address, length) {
                    Ok(words) => {
                        books.managed_live.insert(address, words);
                        Ok(address)
                    }
                    Err(error) => {
                        books.free.give(kind, Range { address, bytes });
                        Err(of_gpu(&error))
                    }
                }
            }
            Kind::Device(index) => {
                let address = books.free.take(kind, bytes);
                let device = self.devices.get(index).ok_or_else(refused)?;
                let Some(address) = address else {
                    device.give(bytes);
                    return Err(refused());
                };
                books.device_live.insert(address, (Space::length(bytes), index));
                device.permit(Range { address, bytes }, ALLOWED);
                Ok(address)
            }
            Kind::Host => {
                let address = books.free.take(kind, bytes).ok_or_else(refused)?;
                self.devices.iter().for_each(|device| device.permit(Range { address, bytes }, ALLOWED));
                Ok(address)
            }
        }
    }

    fn release(&self, kind: Kind, range: Range) {
        match kind {
            Kind::Managed => {
                let words = self.books().managed_live.remove(&range.address);
                // Before the address can be taken again.
                let unmapped = words.map(Words::unmap);
                if let Some(Ok(())) = unmapped {
                    self.books().free.give(kind, range);
                }
            }
            Kind::Device(index) => {
                let Some(device) = self.devices.get(index) else { return };
                device.permit(range, 0);
                device.discard(Range { address: range.address, bytes: Space::length(range.bytes) });
                device.give(range.bytes);
                let mut books = self.books();
                books.device_live.remove(&range.address);
                books.free.give(kind, range);
            }
            Kind::Host => {
                self.devices.iter().for_each(|device| device.permit(range, 0));
                self.host.discard(range.address - HOST_BASE, Space::length(range.bytes));
                self.books().free.give(kind, range);
            }
        }
    }

    fn register(&self, memory: Place, bytes: u64) {
        self.registered.insert(memory.address(), bytes);
    }

    fn unregister(&self, memory: Place) {
        self.registered.remove(memory.address());
    }

    fn run(&self, device: usize, kernel: &Kernel, launch: Launch) -> Result<(Counts, Accesses), KernelError> {
        let device = self.device(device)?;
        let launch = Launch { resident_blocks: device.resident_blocks, ..launch };
        let mut memory = Global::new(device, &self.registered);
        let mut seen = Accesses::default();
        let result = match device.observed {
            None => kernel.run(&launch, &mut memory),
            Some(table) => {
                let mut observed = Observed::new(&mut memory, device.permissions(), Lasting::Access, table);
                let result = kernel.run(&launch, &mut observed);
                seen = observed.finish();
                result
            }
        };
        let accesses = result.as_ref().map_or(0, |counts| counts.loads + counts.stores + counts.atomics);
        // Of a kernel that failed, its remote accesses.
        let alive = memory.finish(accesses);
        let counts = result?;
        alive?;
        Ok((counts, seen))
    }

    fn copy(&self, device: usize, to: Place, from: Place, bytes: u64) -> Result<(), MemoryFault> {
        let (to, from) = (self.side(device, to, bytes)?, self.side(device, from, bytes)?);
        Engine::new(self.device(device)?).copy(&to, &from, bytes)
    }

    fn fill(&self, device: usize, to: Place, unit: &[u8], count: u64) -> Result<(), MemoryFault> {
        let fault = MemoryFault { address: to.address() };
        let bytes = count.checked_mul(unit.len() as u64).ok_or(fault)?;
        let to = self.side(device, to, bytes)?;
        Engine::new(self.device(device)?).fill(&to, unit, bytes)
    }

    fn migrate(&self, range: Range, to: Location) -> Result<(), BackendError> {
        let pages = range.rounded(PAGE_BYTES);
        self.va_space.migrate(pages.address, pages.bytes, self.uuid(to)).map_err(|error| of_gpu(&error))
    }

    fn advise(&self, range: Range, advice: Advice) -> Result<(), BackendError> {
        let Range { address, bytes } = range.rounded(PAGE_BYTES);
        let space = &self.va_space;
        let result = match advice {
            Advice::ReadMostly(true) => space.enable_read_duplication(address, bytes),
            Advice::ReadMostly(false) => space.disable_read_duplication(address, bytes),
            Advice::Preferred(Some(to)) => space.set_preferred_location(address, bytes, self.uuid(to)),
            Advice::Preferred(None) => space.unset_preferred_location(address, bytes),
            Advice::AccessedBy(by, true) => space.set_accessed_by(address, bytes, self.uuid(by)),
            Advice::AccessedBy(by, false) => space.unset_accessed_by(address, bytes, self.uuid(by)),
        };
        result.map_err(|error| of_gpu(&error))
    }
}
