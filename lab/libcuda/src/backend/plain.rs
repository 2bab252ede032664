//! Backend without a device: all memory is memory of this process, and is where it is.
#![expect(unsafe_code, reason = "the window's memory is accessed at addresses that the permissions allow")]

use std::{
    collections::BTreeMap,
    io::Write as _,
    ptr, slice,
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use ptx::{Access, Counts, GRANULE_BYTES, Kernel, KernelError, Launch, Memory, MemoryFault, Miss, WarpAccess, Window};

use super::{Advice, Backend, BackendError, Kind, Location, Properties, Range, pages::Pages, space::Space};
use crate::{place::Place, settings::Settings};

/// First address of the window: far from what the system and sanitizers use.
const WINDOW_BASE: u64 = 0x2000_0000_0000;
/// Addresses of each kind of memory.
const SPACE_BYTES: u64 = 1 << 40;
/// Managed, device and host memory.
const WINDOW_BYTES: u64 = 3 * SPACE_BYTES;
/// Device memory is charged in multiples of this.
const CHARGE_BYTES: u64 = 512;
/// All that a device may do with memory that is allocated.
const ALLOWED: u8 = ptx::permission::READ | ptx::permission::WRITE | ptx::permission::ATOMIC;
/// Atomic updates of ordinary memory, one at a time.
static UPDATES: Mutex<()> = Mutex::new(());

/// Backend on plain memory.
pub(crate) struct Plain {
    devices: Vec<Properties>,
    memory: Pages,
    permissions: &'static [AtomicU8],
    /// Location of each granule of managed memory: 0 unknown, 1 the CPU, else the device's number +
    /// 2.
    locations: &'static [AtomicU8],
    books: Mutex<Books>,
    /// Ordinary memory that devices access: length by first address.
    registered: RwLock<BTreeMap<u64, u64>>,
    loses: Option<u64>,
    hangs: bool,
}

/// What is allocated.
struct Books {
    managed: Space,
    device: Space,
    host: Space,
    charged_bytes: Vec<u64>,
    managed_live: Vec<Range>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn charge(bytes: u64) -> u64 {
    if bytes == 0 { CHARGE_BYTES } else { bytes.div_ceil(CHARGE_BYTES).saturating_mul(CHARGE_BYTES) }
}

impl Plain {
    /// Maps the window.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn new(settings: &Settings) -> Result<Self, BackendError> {
        let granules = usize::try_from(WINDOW_BYTES / GRANULE_BYTES).unwrap_or(0);
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
            memory: Pages::map(Some(WINDOW_BASE), usize::try_from(WINDOW_BYTES).unwrap_or(0))?,
            permissions: Pages::map(None, granules)?.atomics(),
            locations: Pages::map(None, granules)?.atomics(),
            books: Mutex::new(Books {
                managed: Space::new(WINDOW_BASE, SPACE_BYTES),
                device: Space::new(WINDOW_BASE + SPACE_BYTES, SPACE_BYTES),
                host: Space::new(WINDOW_BASE + 2 * SPACE_BYTES, SPACE_BYTES),
                charged_bytes: vec![0; settings.devices],
                managed_live: Vec::new(),
            }),
            registered: RwLock::new(BTreeMap::new()),
            loses: settings.loses,
            hangs: settings.hangs,
        })
    }

    fn granules(range: Range) -> std::ops::Range<usize> {
        let index = |address: u64| usize::try_from(address.saturating_sub(WINDOW_BASE) / GRANULE_BYTES).unwrap_or(0);
        index(range.address)..index(range.end().saturating_add(GRANULE_BYTES - 1))
    }

    fn set(table: &[AtomicU8], range: Range, value: u8) {
        for granule in table.get(Self::granules(range)).unwrap_or_default() {
            granule.store(value, Ordering::Release);
        }
    }

    fn is_registered(&self, address: u64, bytes: u64) -> bool {
        let registered = self.registered.read().unwrap_or_else(PoisonError::into_inner);
        let block = registered.range(..=address).next_back();
        block.is_some_and(|(base, length)| address.saturating_add(bytes) <= base.saturating_add(*length))
    }

    /// Checks the permissions of an access by a kernel.
    fn check(&self, address: u64, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        if !in_window(address) {
            return if self.is_registered(address, bytes) { Ok(()) } else { Err(MemoryFault { address }) };
        }
        let granules = self.permissions.get(Self::granules(Range { address, bytes })).unwrap_or_default();
        let allowed = |granule: &AtomicU8| granule.load(Ordering::Acquire) & access.permission() != 0;
        if !granules.is_empty() && granules.iter().all(allowed) { Ok(()) } else { Err(MemoryFault { address }) }
    }

    /// Checks the permissions of an access by an engine. Ordinary memory is the program's promise.
    fn check_engine(&self, place: Place, bytes: u64, access: Access) -> Result<(), MemoryFault> {
        if in_window(place.address()) { self.check(place.address(), bytes, access) } else { Ok(()) }
    }

    /// Words whose writes are lost, with their contents.
    fn kept_words(&self) -> Vec<(Place, Vec<u8>)> {
        let Some(word) = self.loses else { return Vec::new() };
        let offset = word.saturating_mul(8);
        let live = locked(&self.books).managed_live.clone();
        let holds = |range: &&Range| offset.saturating_add(8) <= range.bytes;
        let keep = |range: &Range| {
            // SAFETY: eight bytes of an allocation of the window.
            let place = unsafe { Place::new(range.address + offset) };
            (place, place.read(8))
        };
        live.iter().filter(holds).map(keep).collect()
    }
}

const fn in_window(address: u64) -> bool {
    address >= WINDOW_BASE && address < WINDOW_BASE + WINDOW_BYTES
}

impl Backend for Plain {
    fn devices(&self) -> &[Properties] {
        &self.devices
    }

    fn free_bytes(&self, device: usize) -> u64 {
        let total = self.devices.get(device).map_or(0, |properties| properties.total_bytes);
        total.saturating_sub(locked(&self.books).charged_bytes.get(device).copied().unwrap_or(0))
    }

    fn in_window(&self, address: u64) -> bool {
        in_window(address)
    }

    fn allocate(&self, kind: Kind, bytes: u64) -> Result<u64, BackendError> {
        let refused = BackendError::OutOfMemory(bytes);
        let mut books = locked(&self.books);
        if let Kind::Device(device) = kind {
            let total = self.devices.get(device).map_or(0, |properties| properties.total_bytes);
            let charged = books.charged_bytes.get_mut(device).ok_or_else(|| refused.clone())?;
            let after = charged.saturating_add(charge(bytes));
            if after > total {
                return Err(refused);
            }
            *charged = after;
        }
        let taken = match kind {
            Kind::Managed => books.managed.take(bytes),
            Kind::Device(_) => books.device.take(bytes),
            Kind::Host => books.host.take(bytes),
        };
        let address = taken.ok_or(refused)?;
        let range = Range { address, bytes: bytes.max(1) };
        if kind == Kind::Managed {
            books.managed_live.push(range);
        }
        Self::set(self.permissions, range, ALLOWED);
        Ok(address)
    }

    fn release(&self, kind: Kind, range: Range) {
        Self::set(self.permissions, Range { bytes: range.bytes.max(1), ..range }, 0);
        Self::set(self.locations, Range { bytes: range.bytes.max(1), ..range }, 0);
        self.memory.discard(range.address, Space::length(range.bytes));
        let mut books = locked(&self.books);
        match kind {
            Kind::Managed => {
                books.managed.give(range.address, range.bytes);
                books.managed_live.retain(|live| live.address != range.address);
            }
            Kind::Device(device) => {
                books.device.give(range.address, range.bytes);
                if let Some(charged) = books.charged_bytes.get_mut(device) {
                    *charged = charged.saturating_sub(charge(range.bytes));
                }
            }
            Kind::Host => books.host.give(range.address, range.bytes),
        }
    }

    fn register(&self, memory: Place, bytes: u64) {
        self.registered.write().unwrap_or_else(PoisonError::into_inner).insert(memory.address(), bytes);
    }

    fn unregister(&self, memory: Place) {
        self.registered.write().unwrap_or_else(PoisonError::into_inner).remove(&memory.address());
    }

    fn run(&self, _device: usize, kernel: &Kernel, launch: Launch) -> Result<Counts, KernelError> {
        if self.hangs {
            loop {
                thread::park();
            }
        }
        let kept = self.kept_words();
        let counts = kernel.run(&launch, &mut Global(self))?;
        for (place, bytes) in kept {
            // SAFETY: eight bytes of an allocation of the window, which exists while a kernel runs.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place.pointer(), bytes.len()) };
        }
        Ok(counts)
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
            // SAFETY: as above; `at` is less than the length by a unit at least.
            unsafe { ptr::copy_nonoverlapping(unit.as_ptr(), to.after(at).pointer(), unit.len()) };
        }
        Ok(())
    }

    fn migrate(&self, range: Range, to: Location) -> Result<(), BackendError> {
        let value = match to {
            Location::Host => 1,
            Location::Device(device) => u8::try_from(device + 2).unwrap_or(0),
        };
        Self::set(self.locations, range, value);
        Ok(())
    }

    fn advise(&self, _range: Range, _advice: Advice) -> Result<(), BackendError> {
        Ok(())
    }

    fn residency(&self, address: u64) -> Option<Location> {
        let granule = Self::granules(Range { address, bytes: 1 }).start;
        match self.locations.get(granule)?.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Location::Host),
            device => Some(Location::Device(usize::from(device) - 2)),
        }
    }
}

/// Global memory of a kernel.
struct Global<'a>(&'a Plain);

impl Global<'_> {
    fn pointer(address: u64) -> *mut u8 {
        ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
    }
}

// SAFETY: permissions are set for allocated memory of the window alone, which is mapped for the
// rest of the process. `miss` never answers `Go`.
unsafe impl Memory for Global<'_> {
    fn window(&self) -> Window {
        Window { base: WINDOW_BASE, bytes: WINDOW_BYTES, offset: 0, permissions: self.0.permissions.as_ptr() }
    }

    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        for address in access.addresses {
            self.0.check(*address, access.lane_bytes.into(), access.access)?;
        }
        Ok(Miss::Remote)
    }

    fn settle(&mut self) -> Result<(), MemoryFault> {
        Ok(())
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        self.0.check(address, bytes.len() as u64, Access::Read)?;
        // SAFETY: allocated or registered memory, as just checked.
        unsafe { ptr::copy(Self::pointer(address).cast_const(), bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        self.0.check(address, bytes.len() as u64, Access::Write)?;
        // SAFETY: allocated or registered memory, as just checked.
        unsafe { ptr::copy(bytes.as_ptr(), Self::pointer(address), bytes.len()) };
        Ok(())
    }

    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        self.0.check(address, bytes.into(), Access::Atomic)?;
        let _one_at_a_time = locked(&UPDATES);
        let mut word = [0; 8];
        let length = usize::try_from(bytes).unwrap_or(0).min(word.len());
        // SAFETY: allocated or registered memory of this length, as just checked.
        let memory = unsafe { slice::from_raw_parts_mut(Self::pointer(address), length) };
        for (byte, stored) in word.iter_mut().zip(memory.iter()) {
            *byte = *stored;
        }
        let old = u64::from_le_bytes(word);
        for (stored, byte) in memory.iter_mut().zip(change(old).to_le_bytes()) {
            *stored = byte;
        }
        Ok(old)
    }

    fn print(&mut self, text: &str) {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_access_what_is_allocated_and_registered_and_nothing_else() {
        let plain = Plain::new(&Settings::from_environment()).unwrap();
        let address = plain.allocate(Kind::Managed, 100).unwrap();
        let mut global = Global(&plain);
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
        Global(&plain).load(own_address, &mut bytes).unwrap();
        assert_eq!(bytes, own);
        plain.unregister(place);
        let range = Range { address, bytes: 100 };
        assert_eq!(plain.residency(address), None);
        plain.migrate(range, Location::Device(0)).unwrap();
        assert_eq!(plain.residency(address), Some(Location::Device(0)));
        plain.release(Kind::Managed, range);
        assert!(Global(&plain).load(address, &mut bytes).is_err());
        assert_eq!(plain.allocate(Kind::Managed, 100).unwrap(), address);
        Global(&plain).load(address, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
    }
}
