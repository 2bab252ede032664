//! Accesses of a warp to memory.

#![expect(unsafe_code, reason = "global memory is memory of this process, by address")]
#![expect(clippy::indexing_slicing, reason = "hot loops over lanes, whose indices are below 32")]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::program::Progress;
use super::state::State;
use super::{LANES, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, SPACE_WINDOW_BYTES, lanes};
use crate::{Access, Counts, GRANULE_BYTES, KernelError, Memory, Miss, WarpAccess, Window};

/// State space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessSpace {
    Global,
    Shared,
    Local,
    Parameter,
    Generic,
}

/// A warp with all memory that it can access.
pub(crate) struct Machine<'a, 'm> {
    pub(crate) state: &'a mut State,
    pub(crate) shared: &'a mut [u8],
    pub(crate) arguments: &'a [u8],
    pub(crate) memory: &'a mut (dyn Memory + 'm),
    pub(crate) window: Window,
    pub(crate) counts: &'a mut Counts,
    /// Times that the warp has parked at the present instruction.
    pub(crate) parked: u32,
}

/// Addresses of the lanes of an access.
pub(crate) type Addresses = [u64; LANES];

/// How the lanes of an access are served.
enum Route {
    /// All in global memory, directly.
    Direct,
    /// Each by its own address; where `remote`, global ones by the methods of [`Memory`].
    Each {
        remote: bool,
    },
    Park,
}

/// Place of one lane's bytes.
enum Place {
    /// Address in this process.
    Global(usize),
    Remote(u64),
    Shared(usize),
    Local(usize),
    Parameter(usize),
}

/// Integer that an access moves.
pub(crate) trait Unit: Copy + Default + Send + Sync + 'static {
    const BYTES: usize;
    /// Integer of its first bytes.
    fn from_bytes(bytes: &[u8]) -> Option<Self>;
    /// Its bytes, padded with zeros.
    fn to_bytes(self) -> [u8; 8];
}

macro_rules! unit {
    ($($integer:ty),*) => {
        $(impl Unit for $integer {
            const BYTES: usize = size_of::<$integer>();

            #[inline]
            fn from_bytes(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|chunk| Self::from_le_bytes(*chunk))
            }

            #[inline]
            fn to_bytes(self) -> [u8; 8] {
                u64::from(self).to_le_bytes()
            }
        })*
    };
}

unit!(u8, u16, u32, u64);

impl Machine<'_, '_> {
    /// Loads `units` consecutive integers per lane, and hands each to `take(unit, lane, value)`.
    #[inline]
    pub(crate) fn load<U: Unit>(
        &mut self,
        space: AccessSpace,
        addresses: &Addresses,
        mask: u32,
        units: usize,
        mut take: impl FnMut(&mut State, usize, usize, U),
    ) -> Result<Progress, KernelError> {
        let remote = match self.route(space, Access::Read, addresses, mask, (U::BYTES * units) as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct => {
                for lane in lanes(mask) {
                    let address = self.host_address(addresses[lane]);
                    for unit in 0..units {
                        // SAFETY: `route` found the access permitted, so these are readable bytes, and
                        // aligned. Volatile, since other processes write them at any time.
                        let value = unsafe { std::ptr::read_volatile((address as *const U).wrapping_add(unit)) };
                        take(self.state, unit, lane, value);
                    }
                }
                return Ok(Progress::Done);
            }
            Route::Each { remote } => remote,
        };
        let last = (self.shared.len() as u64).saturating_sub((U::BYTES * units) as u64 - 1);
        if space == AccessSpace::Shared && lanes(mask).all(|lane| addresses[lane] < last) {
            for lane in lanes(mask) {
                let bytes = &self.shared[addresses[lane] as usize..];
                for unit in 0..units {
                    take(self.state, unit, lane, U::from_bytes(&bytes[unit * U::BYTES..]).unwrap_or_default());
                }
            }
            return Ok(Progress::Done);
        }
        for lane in lanes(mask) {
            let place = self.place(space, addresses[lane], lane, U::BYTES * units, remote)?;
            for unit in 0..units {
                let skip = unit * U::BYTES;
                let value = match place {
                    Place::Global(address) => {
                        // SAFETY: As above.
                        unsafe { std::ptr::read_volatile((address as *const U).wrapping_add(unit)) }
                    }
                    Place::Remote(address) => {
                        let mut bytes = [0; 8];
                        self.memory.load(address + skip as u64, &mut bytes[..U::BYTES])?;
                        U::from_bytes(&bytes).unwrap_or_default()
                    }
                    Place::Shared(offset) => U::from_bytes(&self.shared[offset + skip..]).unwrap_or_default(),
                    Place::Local(offset) => U::from_bytes(&self.state.local[offset + skip..]).unwrap_or_default(),
                    Place::Parameter(offset) => U::from_bytes(&self.arguments[offset + skip..]).unwrap_or_default(),
                };
                take(self.state, unit, lane, value);
            }
        }
        Ok(Progress::Done)
    }

    /// Stores `units` consecutive integers per lane, of `give(unit, lane)`.
    #[inline]
    pub(crate) fn store<U: Unit>(
        &mut self,
        space: AccessSpace,
        addresses: &Addresses,
        mask: u32,
        units: usize,
        give: impl Fn(&State, usize, usize) -> U,
    ) -> Result<Progress, KernelError> {
        let remote = match self.route(space, Access::Write, addresses, mask, (U::BYTES * units) as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct => {
                for lane in lanes(mask) {
                    let address = self.host_address(addresses[lane]);
                    for unit in 0..units {
                        let value = give(self.state, unit, lane);
                        // SAFETY: `route` found the access permitted, so these are writable bytes, and
                        // aligned. Volatile, since other processes read them at any time.
                        unsafe { std::ptr::write_volatile((address as *mut U).wrapping_add(unit), value) };
                    }
                }
                return Ok(Progress::Done);
            }
            Route::Each { remote } => remote,
        };
        for lane in lanes(mask) {
            let place = self.place(space, addresses[lane], lane, U::BYTES * units, remote)?;
            for unit in 0..units {
                let value = give(self.state, unit, lane);
                let skip = unit * U::BYTES;
                let bytes = value.to_bytes();
                let bytes = &bytes[..U::BYTES];
                match place {
                    Place::Global(address) => {
                        // SAFETY: As above.
                        unsafe { std::ptr::write_volatile((address as *mut U).wrapping_add(unit), value) };
                    }
                    Place::Remote(address) => self.memory.store(address + skip as u64, bytes)?,
                    Place::Shared(offset) => self.shared[offset + skip..][..U::BYTES].copy_from_slice(bytes),
                    Place::Local(offset) => self.state.local[offset + skip..][..U::BYTES].copy_from_slice(bytes),
                    Place::Parameter(_) => return Err(out_of_space("parameter", addresses[lane])),
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Updates 2, 4 or 8 bytes per lane, one lane after the other, to `change(state, lane, old)`;
    /// hands the old values to `take(state, lane, old)`.
    pub(crate) fn update(
        &mut self,
        space: AccessSpace,
        addresses: &Addresses,
        mask: u32,
        bytes: usize,
        change: impl Fn(&State, usize, u64) -> u64,
        take: impl Fn(&mut State, usize, u64),
    ) -> Result<Progress, KernelError> {
        let remote = match self.route(space, Access::Atomic, addresses, mask, bytes as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct => false,
            Route::Each { remote } => remote,
        };
        for lane in lanes(mask) {
            let old = match self.place(space, addresses[lane], lane, bytes, remote)? {
                Place::Global(address) => update_global(address, bytes, |old| change(self.state, lane, old)),
                Place::Remote(address) => {
                    let state = &*self.state;
                    update_remote(self.memory, address, bytes, |old| change(state, lane, old))?
                }
                Place::Shared(offset) => {
                    let state = &*self.state;
                    update_bytes(&mut self.shared[offset..][..bytes], |old| change(state, lane, old))
                }
                Place::Local(offset) => {
                    let old = read_bytes(&self.state.local[offset..][..bytes]);
                    let new = change(self.state, lane, old);
                    self.state.local[offset..][..bytes].copy_from_slice(&new.to_le_bytes()[..bytes]);
                    old
                }
                Place::Parameter(_) => return Err(out_of_space("parameter", addresses[lane])),
            };
            take(self.state, lane, old);
        }
        Ok(Progress::Done)
    }

    /// Reads a string of at most 4 KiB at the generic address of one lane; none: the warp parks.
    pub(crate) fn text(&mut self, address: u64, lane: usize) -> Result<Option<Vec<u8>>, KernelError> {
        let mut text = Vec::new();
        for index in 0..4096 {
            match self.byte(address.wrapping_add(index), lane)? {
                None => return Ok(None),
                Some(0) => break,
                Some(byte) => text.push(byte),
            }
        }
        Ok(Some(text))
    }

    /// Reads `N` bytes at the generic address of one lane.
    pub(crate) fn bytes<const N: usize>(&mut self, address: u64, lane: usize) -> Result<Option<[u8; N]>, KernelError> {
        let mut bytes = [0; N];
        for (index, byte) in bytes.iter_mut().enumerate() {
            match self.byte(address.wrapping_add(index as u64), lane)? {
                None => return Ok(None),
                Some(read) => *byte = read,
            }
        }
        Ok(Some(bytes))
    }

    fn byte(&mut self, address: u64, lane: usize) -> Result<Option<u8>, KernelError> {
        let mut byte = 0;
        let loads = self.counts.loads;
        let progress =
            self.load::<u8>(AccessSpace::Generic, &[address; LANES], 1 << lane, 1, |_, _, _, value| byte = value)?;
        self.counts.loads = loads;
        Ok((progress == Progress::Done).then_some(byte))
    }

    #[inline]
    fn host_address(&self, address: u64) -> usize {
        address.wrapping_add(self.window.offset) as usize
    }

    /// Tells whether an address is of the global space.
    #[inline]
    fn is_global(&self, space: AccessSpace, address: u64) -> bool {
        match space {
            AccessSpace::Global => true,
            AccessSpace::Generic => {
                address.wrapping_sub(self.window.base) < self.window.bytes
                    || address.wrapping_sub(SHARED_WINDOW) >= 3 * SPACE_WINDOW_BYTES
            }
            _ => false,
        }
    }

    /// Checks alignment and permissions, and asks the memory about what is missing.
    #[inline]
    fn route(
        &mut self,
        space: AccessSpace,
        access: Access,
        addresses: &Addresses,
        mask: u32,
        lane_bytes: u32,
    ) -> Result<Route, KernelError> {
        let low_bits = u64::from(lane_bytes) - 1;
        if lanes(mask).any(|lane| addresses[lane] & low_bits != 0) {
            let address = lanes(mask).map(|lane| addresses[lane]).find(|address| address & low_bits != 0);
            return Err(KernelError::Misaligned { address: address.unwrap_or_default(), bytes: lane_bytes });
        }
        let global = match space {
            AccessSpace::Global => mask,
            AccessSpace::Generic => lanes(mask)
                .filter(|&lane| self.is_global(space, addresses[lane]))
                .fold(0, |found, lane| found | 1 << lane),
            _ => 0,
        };
        if global == 0 {
            return Ok(Route::Each { remote: false });
        }
        let answer = if self.permits(access, addresses, global) {
            Miss::Go
        } else {
            let missed: Vec<u64> = lanes(global).map(|lane| addresses[lane]).collect();
            self.memory.miss(&WarpAccess { access, addresses: &missed, lane_bytes, parked: self.parked })?
        };
        let threads = u64::from(global.count_ones());
        match access {
            _ if answer == Miss::Park => return Ok(Route::Park),
            Access::Read => self.counts.loads += threads,
            Access::Write => self.counts.stores += threads,
            Access::Atomic => self.counts.atomics += threads,
        }
        Ok(if answer == Miss::Go && global == mask {
            Route::Direct
        } else {
            Route::Each { remote: answer == Miss::Remote }
        })
    }

    /// Looks the permissions of all touched granules up. An aligned access does not cross a granule.
    #[inline]
    fn permits(&self, access: Access, addresses: &Addresses, mask: u32) -> bool {
        let needed = access.permission();
        let mut last = u64::MAX;
        for lane in lanes(mask) {
            let offset = addresses[lane].wrapping_sub(self.window.base);
            if offset >= self.window.bytes {
                return false;
            }
            let granule = offset / GRANULE_BYTES;
            if granule != last {
                // SAFETY: The window has a permission for each of its granules.
                let permissions = unsafe { &*self.window.permissions.wrapping_add(granule as usize) };
                if permissions.load(Ordering::Acquire) & needed != needed {
                    return false;
                }
                last = granule;
            }
        }
        true
    }

    /// Finds a lane's bytes, and checks that they are in their space.
    #[inline]
    fn place(
        &self,
        space: AccessSpace,
        address: u64,
        lane: usize,
        bytes: usize,
        remote: bool,
    ) -> Result<Place, KernelError> {
        let within = |name, offset: u64, size: usize| match offset.checked_add(bytes as u64) {
            Some(end) if end <= size as u64 => Ok(offset as usize),
            _ => Err(out_of_space(name, offset)),
        };
        let (space, offset) = if self.is_global(space, address) {
            (AccessSpace::Global, address)
        } else if space == AccessSpace::Generic {
            let space = match address & !(SPACE_WINDOW_BYTES - 1) {
                SHARED_WINDOW => AccessSpace::Shared,
                LOCAL_WINDOW => AccessSpace::Local,
                _ => AccessSpace::Parameter,
            };
            (space, address & (SPACE_WINDOW_BYTES - 1))
        } else {
            (space, address)
        };
        Ok(match space {
            AccessSpace::Global | AccessSpace::Generic if remote => Place::Remote(address),
            AccessSpace::Global | AccessSpace::Generic => Place::Global(self.host_address(address)),
            AccessSpace::Shared => Place::Shared(within("shared", offset, self.shared.len())?),
            AccessSpace::Parameter if offset & !(SPACE_WINDOW_BYTES - 1) == PARAMETER_WINDOW => {
                Place::Parameter(within("parameter", offset - PARAMETER_WINDOW, self.arguments.len())?)
            }
            AccessSpace::Parameter => Place::Parameter(within("parameter", offset, self.arguments.len())?),
            AccessSpace::Local => {
                let size = self.state.local_bytes;
                Place::Local(lane * size + within("local", offset, size)?)
            }
        })
    }
}

fn out_of_space(space: &'static str, offset: u64) -> KernelError {
    KernelError::OutOfSpace { space, offset }
}

fn read_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
}

fn update_bytes(bytes: &mut [u8], change: impl Fn(u64) -> u64) -> u64 {
    let old = read_bytes(bytes);
    let new = change(old).to_le_bytes();
    let length = bytes.len();
    bytes.copy_from_slice(&new[..length]);
    old
}

/// Updates memory of this process atomically: other threads and processes update it, too.
fn update_global(address: usize, bytes: usize, change: impl Fn(u64) -> u64) -> u64 {
    macro_rules! update {
        ($atomic:ty, $integer:ty) => {{
            // SAFETY: The access was found permitted and aligned, so that these are readable and writable
            // bytes for as long as the instruction runs.
            let atomic = unsafe { <$atomic>::from_ptr(address as *mut $integer) };
            let mut old = atomic.load(Ordering::Relaxed);
            loop {
                let new = change(u64::from(old)) as $integer;
                match atomic.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
                    Ok(_) => break u64::from(old),
                    Err(found) => old = found,
                }
            }
        }};
    }
    match bytes {
        2 => update!(AtomicU16, u16),
        4 => update!(AtomicU32, u32),
        _ => update!(AtomicU64, u64),
    }
}

/// Updates 2 bytes as a part of 4.
fn update_remote(
    memory: &mut dyn Memory,
    address: u64,
    bytes: usize,
    change: impl Fn(u64) -> u64,
) -> Result<u64, KernelError> {
    if bytes > 2 {
        return Ok(memory.update(address, bytes as u32, &mut |old| change(old))?);
    }
    let shift = (address & 2) * 8;
    let old = memory.update(address & !3, 4, &mut |old| {
        let new = change(old >> shift & 0xffff) & 0xffff;
        old & !(0xffff << shift) | new << shift
    })?;
    Ok(old >> shift & 0xffff)
}

impl Machine<'_, '_> {
    /// 8 bytes of the running function's frame, in one lane.
    pub(crate) fn argument(&self, offset: u64, lane: usize) -> u64 {
        let start = lane * self.state.local_bytes + (self.state.frame_bytes + offset) as usize;
        let bytes = self.state.local.get(start..).unwrap_or_default();
        bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Sets 4 bytes of the running function's frame, in one lane.
    pub(crate) fn set_result(&mut self, offset: u64, lane: usize, value: u32) {
        let start = lane * self.state.local_bytes + (self.state.frame_bytes + offset) as usize;
        if let Some(bytes) = self.state.local.get_mut(start..start + 4) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}
