//! Backend without a device: all memory is memory of this process, and is where it is.
#![expect(unsafe_code, reason = "the window's memory is accessed at addresses that the permissions allow")]

mod global;

use std::{
    ptr,
    sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicU8},
    thread,
};

use ptx::{Access, Counts, GRANULE_BYTES, Kernel, KernelError, Launch, MemoryFault};

use self::global::Global;
use super::{
    Accesses, Advice, Backend, BackendError, Kind, Location, Place, Properties, Range,
    observed::{Lasting, Observed, Table},
    pages::Pages,
    registered::Registered,
    space::Space,
    window::{self, ALLOWED, Spaces, charge},
};
use crate::settings::Settings;

/// Backend on plain memory.
pub(crate) struct Plain {
    devices: Vec<Properties>,
    memory: Pages,
    /// Permissions by device.
    permissions: Vec<&'static [AtomicU8]>,
    /// By device, if accesses are observed.
    observed: Vec<Table>,
    books: Mutex<Books>,
    registered: Registered,
    loses: Option<u64>,
    hangs: bool,
}

/// What is allocated.
struct Books {
    free: Spaces,
    charged_bytes: Vec<u64>,
    managed_live: Vec<Range>,
}

impl Books {
    /// Gives the memory of a device back that an allocation was charged with.
    fn discharge(&mut self, kind: Kind, bytes: u64) {
        if let Kind::Device(device) = kind
            && let Some(charged) = self.charged_bytes.get_mut(device)
        {
            *charged = charged.saturating_sub(charge(bytes));
        }
    }
}

impl Plain {
    /// Maps the window.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(settings: &Settings) -> Result<Self, BackendError> {
        let granules = usize::try_from(window::BYTES / GRANULE_BYTES).unwrap_or(0);
        let device = |index: usize| {
            let number = u8::try_from(index).unwrap_or(u8::MAX);
            let mut uuid = *b"lab GPU, plain \0";
            uuid[15] = number + 1;
            Properties {
                uuid,
                name: "Lab GPU".to_owned(),
                total_bytes: settings.memory_bytes,
                capability: settings.capability,
                pci: (0, u32::from(number) + 1, 0),
                concurrent: settings.concurrent,
            }
        };
        Ok(Self {
            devices: (0..settings.devices).map(device).collect(),
            memory: Pages::map(Some(window::BASE), usize::try_from(window::BYTES).unwrap_or(0))?,
            permissions: (0..settings.devices)
                .map(|_| Ok(Pages::map(None, granules)?.atomics()))
                .collect::<Result<_, BackendError>>()?,
            observed: (0..if settings.observes() { settings.devices } else { 0 })
                .map(|_| Table::map())
                .collect::<Result<_, _>>()?,
            books: Mutex::new(Books {
                free: Spaces::new(),
                charged_bytes: vec![0; settings.devices],
                managed_live: Vec::new(),
            }),
            registered: Registered::default(),
            loses: settings.loses,
            hangs: settings.hangs,
        })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets what devices may do with an allocation: of device memory the device's own alone.
    fn permit(&self, kind: Kind, range: Range, permissions: u8) {
        for (device, table) in self.permissions.iter().enumerate() {
            if !matches!(kind, Kind::Device(owner) if owner != device) {
                window::permit(table, range, permissions);
            }
        }
    }

    /// Permissions of a device, by granule.
    fn permissions(&self, device: usize) -> Result<&'static [AtomicU8], MemoryFault> {
        self.permissions.get(device).copied().ok_or(MemoryFault { address: 0 })
    }

    /// Checks the permissions of an access by a kernel of a device.
    fn check(&self, device: usize, address: u64, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        let allowed = if window::contains(address) {
            window::permits(self.permissions(device)?, Range { address, bytes }, access.permission())
        } else {
            self.registered.contains(address, bytes)
        };
        if allowed { Ok(()) } else { Err(MemoryFault { address }) }
    }

    /// Checks that an access by an engine is to allocated memory, of any device. Ordinary memory is
    /// the program's promise.
    fn check_engine(&self, place: Place, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        let allowed = |device| self.check(device, place.address(), bytes, access).is_ok();
        if !window::contains(place.address()) || (0..self.devices.len()).any(allowed) {
            Ok(())
        } else {
            Err(MemoryFault { address: place.address() })
        }
    }

    /// Words whose writes are lost, with their contents.
    fn kept_words(&self) -> Vec<(Place, Vec<u8>)> {
        let Some(word) = self.loses else { return Vec::new() };
        let offset = word.saturating_mul(8);
        let live = self.books().managed_live.clone();
        let holds = |range: &&Range| offset.saturating_add(8) <= range.bytes;
        let keep = |range: &Range| {
            // SAFETY: eight bytes of an allocation of the window.
            let place = unsafe { Place::new(range.address + offset) };
            (place, place.read(8))
        };
        live.iter().filter(holds).map(keep).collect()
    }
}

impl Backend for Plain {
    fn devices(&self) -> &[Properties] {
        &self.devices
    }

    fn free_bytes(&self, device: usize) -> u64 {
        let total = self.devices.get(device).map_or(0, |properties| properties.total_bytes);
        total.saturating_sub(self.books().charged_bytes.get(device).copied().unwrap_or(0))
    }

    fn in_window(&self, address: u64) -> bool {
        window::contains(address)
    }

    fn allocate(&self, kind: Kind, bytes: u64) -> Result<u64, BackendError> {
        let refused = BackendError::OutOfMemory(bytes);
        let mut books = self.books();
        if let Kind::Device(device) = kind {
            let total = self.devices.get(device).map_or(0, |properties| properties.total_bytes);
            let charged = books.charged_bytes.get_mut(device).ok_or_else(|| refused.clone())?;
            let after = charged.saturating_add(charge(bytes));
            if after > total {
                return Err(refused);
            }
            *charged = after;
        }
        let Some(address) = books.free.take(kind, bytes) else {
            books.discharge(kind, bytes);
            return Err(refused);
        };
        let range = Range { address, bytes: bytes.max(1) };
        if kind == Kind::Managed {
            books.managed_live.push(range);
        }
        self.permit(kind, range, ALLOWED);
        Ok(address)
    }

    fn release(&self, kind: Kind, range: Range) {
        self.permit(kind, Range { bytes: range.bytes.max(1), ..range }, 0);
        self.memory.discard(range.address, Space::length(range.bytes));
        let mut books = self.books();
        books.managed_live.retain(|live| live.address != range.address);
        books.discharge(kind, range.bytes);
        books.free.give(kind, range);
    }

    fn register(&self, memory: Place, bytes: u64) {
        self.registered.insert(memory.address(), bytes);
    }

    fn unregister(&self, memory: Place) {
        self.registered.remove(memory.address());
    }

    fn run(&self, device: usize, kernel: &Kernel, launch: Launch) -> Result<(Counts, Accesses), KernelError> {
        if self.hangs {
            loop {
                thread::park();
            }
        }
        let kept = self.kept_words();
        let mut global = Global::new(self, device)?;
        let (counts, accesses) = match self.observed.get(device) {
            None => (kernel.run(&launch, &mut global)?, Accesses::default()),
            Some(table) => {
                let mut observed = Observed::new(&mut global, self.permissions(device)?, Lasting::Kernel, *table);
                (kernel.run(&launch, &mut observed)?, observed.finish())
            }
        };
        for (place, bytes) in kept {
            // SAFETY: eight bytes of an allocation of the window, which exists while a kernel runs.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.pointer(), bytes.len()) };
        }
        Ok((counts, accesses))
    }

    fn copy(&self, _device: usize, to: Place, from: Place, bytes: u64) -> Result<(), MemoryFault> {
        self.check_engine(from, bytes, Access::Read)?;
        self.check_engine(to, bytes, Access::Write)?;
        let length = usize::try_from(bytes).map_err(|_| MemoryFault { address: to.address() })?;
        // SAFETY: allocated memory of the window, or ordinary memory by the contract of `Place`.
        unsafe { ptr::copy(from.pointer().cast_const(), to.pointer(), length) };
        Ok(())
    }

    fn fill(&self, _device: usize, to: Place, unit: &[u8], count: u64) -> Result<(), MemoryFault> {
        let fault = MemoryFault { address: to.address() };
        let bytes = count.checked_mul(unit.len() as u64).ok_or(fault)?;
        self.check_engine(to, bytes, Access::Write)?;
        let length = usize::try_from(bytes).map_err(|_| fault)?;
        if unit.is_empty() || length == 0 {
            return Ok(());
        }
        if let [first, rest @ ..] = unit
            && rest.iter().all(|byte| byte == first)
        {
            // SAFETY: allocated memory of the window, or ordinary memory by the contract of
            // `Place`.
            unsafe { ptr::write_bytes(to.pointer(), *first, length) };
            return Ok(());
        }
        for at in (0..bytes).step_by(unit.len()) {
            // SAFETY: allocated memory of the window, or ordinary memory by the contract of `Place`, of
            // `bytes`; `at` is less by a unit at least.
            unsafe { ptr::copy_nonoverlapping(unit.as_ptr(), to.after(at).pointer(), unit.len()) };
        }
        Ok(())
    }

    fn migrate(&self, _range: Range, _to: Location) -> Result<(), BackendError> {
        Ok(())
    }

    fn advise(&self, _range: Range, _advice: Advice) -> Result<(), BackendError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ptx::Memory as _;

    use super::*;

    #[test]
    fn devices_access_what_is_allocated_and_registered_and_nothing_else() {
        let plain = Plain::new(&Settings::from_environment()).unwrap();
        let address = plain.allocate(Kind::Managed, 100).unwrap();
        let mut global = Global::new(&plain, 0).unwrap();
        global.store(address, &[1, 2, 3, 4]).unwrap();
        let mut bytes = [0; 4];
        global.load(address, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3, 4]);
        assert_eq!(global.update(address, 4, &mut |old| old + 1), Ok(0x0403_0201));
        let beyond = address + GRANULE_BYTES;
        assert_eq!(global.store(beyond, &[1]), Err(MemoryFault { address: beyond }));
        let own = [7u8; 4];
        let own_address = own.as_ptr().expose_provenance() as u64;
        assert!(global.load(own_address, &mut bytes).is_err());
        // SAFETY: lives to the end of the test.
        let place = unsafe { Place::new(own_address) };
        plain.register(place, 4);
        Global::new(&plain, 0).unwrap().load(own_address, &mut bytes).unwrap();
        assert_eq!(bytes, own);
        plain.unregister(place);
        let range = Range { address, bytes: 100 };
        plain.release(Kind::Managed, range);
        assert!(Global::new(&plain, 0).unwrap().load(address, &mut bytes).is_err());
        assert_eq!(plain.allocate(Kind::Managed, 100).unwrap(), address);
        Global::new(&plain, 0).unwrap().load(address, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
    }
}
