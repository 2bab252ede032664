//! Global memory of a kernel on a GPU of the lab.
#![expect(unsafe_code, reason = "kernels access the mirror, and memory that the program has registered")]

use std::{
    collections::{HashMap, HashSet},
    io::Write as _,
    ptr,
};

use gpu::{
    Kind,
    mirror::{Place, Touch},
    swgpu::AccessCounters,
};
use ptx::{Access, Memory, MemoryFault, Miss, WarpAccess, Window};

use super::{PAGE_BYTES, SECTOR_BYTES, device::Device, is_managed};
use crate::backend::{registered::Registered, update::update, window};

/// Times that a warp parks at an instruction before its accesses are made one at a time, each with
/// its fault: others' faults may evict what its own have brought.
const PARKS_MAX: u32 = 4;

/// Page and permission that an access needs.
type Page = (u64, u8);

/// Where the page of an access is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Memory that the device may access.
    Local,
    /// Memory of the program that it has registered.
    Registered,
    /// Managed memory elsewhere, which the driver has mapped for the device.
    Remote { is_peer: bool },
    /// Managed memory that takes a fault.
    Missing,
}

/// Memory of one launch.
pub(super) struct Global<'a> {
    device: &'a Device,
    registered: &'a Registered,
    /// Pages that parked warps miss, in the order of their misses.
    missed: Vec<Touch>,
    missed_pages: Vec<Page>,
    is_missed: HashSet<Page>,
    /// Pages that were not in the GPU's memory when they were touched, and whether a peer has them.
    remote: HashMap<Page, bool>,
    /// Sectors of one access, to spare an allocation: number, and whether a peer has it.
    sectors: Vec<(u64, bool)>,
    counters: AccessCounters,
}

const fn kind_of(access: Access) -> Kind {
    match access {
        Access::Read => Kind::Read,
        Access::Write => Kind::Write,
        Access::Atomic => Kind::Atomic,
    }
}

impl<'a> Global<'a> {
    /// Memory of a launch on a device.
    pub(super) fn new(device: &'a Device, registered: &'a Registered) -> Self {
        Self {
            device,
            registered,
            missed: Vec::new(),
            missed_pages: Vec::new(),
            is_missed: HashSet::new(),
            remote: HashMap::new(),
            sectors: Vec::new(),
            counters: AccessCounters::default(),
        }
    }

    /// Hands over the counts of the kernel's accesses.
    ///
    /// # Errors
    /// The channel has died: what the kernel read since is no data.
    pub(super) fn finish(mut self, accesses: u64) -> Result<(), MemoryFault> {
        self.counters.accesses = accesses;
        match self.device.space.accessed(self.counters) {
            Ok(true) => Ok(()),
            _ => Err(MemoryFault { address: 0 }),
        }
    }

    /// Notes that a warp misses a page.
    fn note(&mut self, page: Page, kind: Kind) {
        // Warps that follow each other mostly miss the same page, and there are a hundred times more of
        // them than pages.
        if self.missed_pages.last() != Some(&page) && self.is_missed.insert(page) {
            self.missed.push(Touch::new(page.0, kind));
            self.missed_pages.push(page);
        }
    }

    /// Class of the page of an address, for an access that lacks its permission.
    fn class(&self, address: u64, access: &WarpAccess<'_>) -> Result<Class, MemoryFault> {
        let permission = access.access.permission();
        let inside = window::contains(address);
        if inside && self.device.permits(address, permission) {
            Ok(Class::Local)
        } else if is_managed(address) {
            let remote = self.remote.get(&(address & !(PAGE_BYTES - 1), permission));
            Ok(remote.map_or(Class::Missing, |is_peer| Class::Remote { is_peer: *is_peer }))
        } else if !inside && self.registered.contains(address, access.lane_bytes.into()) {
            Ok(Class::Registered)
        } else {
            Err(MemoryFault { address })
        }
    }

    /// Counts what an access moves over the bus: sectors of remote pages.
    fn count_remote(&mut self, access: Access, sectors: &mut Vec<(u64, bool)>) {
        self.counters.remote_accesses += sectors.len() as u64;
        sectors.sort_unstable();
        sectors.dedup();
        let counters = &mut self.counters;
        for (_, is_peer) in sectors.drain(..) {
            let (read, written) = if is_peer {
                (&mut counters.remote_from_peer_millibytes, &mut counters.remote_to_peer_millibytes)
            } else {
                (&mut counters.remote_htod_millibytes, &mut counters.remote_dtoh_millibytes)
            };
            *read += if access == Access::Write { 0 } else { SECTOR_BYTES * 1000 };
            *written += if access == Access::Read { 0 } else { SECTOR_BYTES * 1000 };
        }
    }

    /// Makes an access that has been touched, whatever has happened to its pages since.
    fn go(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        let mut sectors = std::mem::take(&mut self.sectors);
        sectors.clear();
        let mut registered = false;
        for &address in access.addresses {
            match self.class(address, access)? {
                Class::Remote { is_peer } => sectors.push((address / SECTOR_BYTES, is_peer)),
                Class::Registered => registered = true,
                Class::Local | Class::Missing => {}
            }
        }
        self.count_remote(access.access, &mut sectors);
        self.sectors = sectors;
        Ok(if registered { Miss::Remote } else { Miss::Go })
    }

    /// Address in this process of registered memory, or of the window.
    fn pointer(&self, address: u64, bytes: u64) -> Result<*mut u8, MemoryFault> {
        let inside = window::contains(address);
        if !inside && !self.registered.contains(address, bytes) {
            return Err(MemoryFault { address });
        }
        let address = if inside { self.device.view(address) } else { address };
        Ok(ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)))
    }
}

// SAFETY: permissions are set for memory of the window alone, which is mapped in the device's view
// for the rest of the process. What the GPU cannot translate the mirror faults in, or backs with a
// page of no meaning once the channel is dead.
unsafe impl Memory for Global<'_> {
    fn window(&self) -> Window {
        self.device.window()
    }

    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault> {
        let (mut missing, mut registered) = (false, false);
        let mut last = None;
        let mut sectors = std::mem::take(&mut self.sectors);
        for &address in access.addresses {
            let page = address & !(PAGE_BYTES - 1);
            // Neighbouring lanes mostly access the same page.
            let class = match last {
                Some((last_page, class)) if last_page == page && class != Class::Registered => class,
                _ => self.class(address, access)?,
            };
            last = Some((page, class));
            match class {
                Class::Local => {}
                Class::Registered => registered = true,
                Class::Remote { is_peer } => sectors.push((address / SECTOR_BYTES, is_peer)),
                Class::Missing => {
                    missing = true;
                    self.note((page, access.access.permission()), kind_of(access.access));
                }
            }
        }
        if missing && access.parked >= PARKS_MAX {
            // Its pages alone, so that those that stay remote are counted.
            self.settle()?;
            self.sectors = sectors;
            return self.go(access);
        }
        let parks = missing;
        if parks {
            sectors.clear();
        } else {
            self.count_remote(access.access, &mut sectors);
        }
        self.sectors = sectors;
        Ok(match registered {
            _ if parks => Miss::Park,
            true => Miss::Remote,
            false => Miss::Go,
        })
    }

    fn settle(&mut self) -> Result<(), MemoryFault> {
        self.is_missed.clear();
        let pages = std::mem::take(&mut self.missed_pages);
        let mut touches = std::mem::take(&mut self.missed);
        let Some(first) = pages.first() else { return Ok(()) };
        self.device.space.touch(&mut touches, self.device.window).map_err(|_| MemoryFault { address: first.0 })?;
        for (page, touch) in pages.into_iter().zip(touches) {
            match touch.place() {
                Place::Host => drop(self.remote.insert(page, false)),
                Place::Peer => drop(self.remote.insert(page, true)),
                Place::Local | Place::Other => {}
            }
        }
        Ok(())
    }

    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault> {
        let from = self.pointer(address, bytes.len() as u64)?.cast_const();
        // SAFETY: `pointer` returns registered memory with room for these bytes, or memory of the
        // device's view, which is mapped for the rest of the process.
        unsafe { ptr::copy(from, bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault> {
        let to = self.pointer(address, bytes.len() as u64)?;
        // SAFETY: `pointer` returns registered memory with room for these bytes, or memory of the
        // device's view, which is mapped for the rest of the process.
        unsafe { ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault> {
        let word = self.pointer(address, bytes.into())?;
        // SAFETY: `pointer` returns registered memory with room for the word, or memory of the device's
        // view. The interpreter has checked the alignment.
        unsafe { update(word, bytes, change) }.ok_or(MemoryFault { address })
    }

    fn print(&mut self, text: &str) {
        let _ = std::io::stdout().write_all(text.as_bytes());
    }
}
