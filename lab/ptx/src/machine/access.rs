//! Accesses of a warp to memory.

#![expect(unsafe_code, reason = "global memory is memory of this process, by address")]
#![expect(clippy::indexing_slicing, reason = "hot loops over lanes, whose indices are below 32")]

mod atomic;
mod builtin;
mod route;

use std::sync::Mutex;

use super::state::{Lane, State, Word};
use super::{LANES, for_lanes, lanes};
use crate::{Access, Counts, Heap, KernelError, Memory, Window};
use route::{Place, Route, out_of_space};

/// State space of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessSpace {
    Global,
    Shared,
    Local,
    Parameter,
    Generic,
}

/// Outcome of an instruction on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Performed.
    Done,
    /// Not performed: the warp parks, and executes the instruction again.
    Park,
}

/// A warp with all memory that it can access.
pub(crate) struct Machine<'a, 'm> {
    pub(crate) state: &'a mut State,
    /// Addresses of the lanes of the present access.
    pub(crate) addresses: &'a mut Addresses,
    pub(crate) shared: &'a mut [u8],
    pub(crate) arguments: &'a [u8],
    pub(crate) memory: &'a mut (dyn Memory + 'm),
    pub(crate) window: Window,
    pub(crate) counts: &'a mut Counts,
    pub(crate) heap: Option<&'a Mutex<Heap>>,
    /// Times that the warp has parked at the present instruction.
    pub(crate) parked: u32,
}

/// Addresses of the lanes of an access.
pub(crate) type Addresses = [u64; LANES];

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
    /// Loads consecutive integers per lane, one for each register, and sets these to
    /// `read(integer)`.
    #[inline]
    pub(crate) fn load<U: Unit, R: Lane>(
        &mut self,
        space: AccessSpace,
        mask: u32,
        registers: &[usize],
        read: impl Fn(U) -> R,
    ) -> Result<Progress, KernelError> {
        let remote = match self.route(space, Access::Read, mask, (U::BYTES * registers.len()) as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct => {
                for (unit, &register) in registers.iter().enumerate() {
                    let offset = self.window.offset.wrapping_add((unit * U::BYTES) as u64);
                    let register = &mut R::Word::file_mut(self.state)[register];
                    for_lanes(mask, |lane| {
                        let place = self.addresses[lane].wrapping_add(offset) as usize as *const U;
                        // SAFETY: `route` found the access permitted, so these are readable bytes,
                        // and aligned. Volatile, since other processes write them at any time.
                        register[lane] = read(unsafe { place.read_volatile() }).into_word();
                    });
                }
                return Ok(Progress::Done);
            }
            Route::Within => {
                let (bytes, stride) = match space {
                    AccessSpace::Shared => (self.shared.as_ptr(), 0),
                    AccessSpace::Local => (self.state.local.as_ptr(), self.state.local_bytes),
                    _ => (self.arguments.as_ptr(), 0),
                };
                for (unit, &register) in registers.iter().enumerate() {
                    let register = &mut R::Word::file_mut(self.state)[register];
                    for_lanes(mask, |lane| {
                        let offset = self.addresses[lane] as usize + lane * stride + unit * U::BYTES;
                        let place = bytes.wrapping_add(offset).cast::<U>();
                        // SAFETY: `route` found the bytes of all lanes within this memory.
                        register[lane] = read(unsafe { place.read_unaligned() }).into_word();
                    });
                }
                return Ok(Progress::Done);
            }
            Route::Each { remote } => remote,
        };
        let units = registers.len();
        self.load_lanes(space, mask, units, remote, |state, unit, lane, value| {
            R::Word::file_mut(state)[registers[unit]][lane] = read(value).into_word();
        })
    }

    /// Stores consecutive integers per lane, one of each register.
    #[inline]
    pub(crate) fn store<U: Unit + Lane>(
        &mut self,
        space: AccessSpace,
        mask: u32,
        registers: &[usize],
    ) -> Result<Progress, KernelError> {
        let lane_bytes = U::BYTES * registers.len();
        let remote = match self.route(space, Access::Write, mask, lane_bytes as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct => {
                for (unit, &register) in registers.iter().enumerate() {
                    let offset = self.window.offset.wrapping_add((unit * U::BYTES) as u64);
                    let values = &U::Word::file(self.state)[register];
                    for_lanes(mask, |lane| {
                        let place = self.addresses[lane].wrapping_add(offset) as usize as *mut U;
                        // SAFETY: `route` found the access permitted, so these are writable bytes,
                        // and aligned. Volatile, since other processes read them at any time.
                        unsafe { place.write_volatile(U::from_word(values[lane])) };
                    });
                }
                return Ok(Progress::Done);
            }
            Route::Within if space == AccessSpace::Shared => {
                let shared = self.shared.as_mut_ptr();
                for (unit, &register) in registers.iter().enumerate() {
                    let values = &U::Word::file(self.state)[register];
                    for_lanes(mask, |lane| {
                        let place = shared.wrapping_add(self.addresses[lane] as usize + unit * U::BYTES).cast::<U>();
                        // SAFETY: `route` found the bytes of all lanes within this memory.
                        unsafe { place.write_unaligned(U::from_word(values[lane])) };
                    });
                }
                return Ok(Progress::Done);
            }
            Route::Within => false,
            Route::Each { remote } => remote,
        };
        for lane in lanes(mask) {
            let place = self.place(space, self.addresses[lane], lane, lane_bytes, remote)?;
            for (unit, &register) in registers.iter().enumerate() {
                let value = U::from_word(U::Word::file(self.state)[register][lane]);
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
                    Place::Parameter(_) => return Err(out_of_space("parameter", self.addresses[lane])),
                }
            }
        }
        Ok(Progress::Done)
    }

    /// Loads integers per lane, each by its own address, and hands each to `take(unit, lane,
    /// value)`.
    fn load_lanes<U: Unit>(
        &mut self,
        space: AccessSpace,
        mask: u32,
        units: usize,
        remote: bool,
        mut take: impl FnMut(&mut State, usize, usize, U),
    ) -> Result<Progress, KernelError> {
        for lane in lanes(mask) {
            let place = self.place(space, self.addresses[lane], lane, U::BYTES * units, remote)?;
            for unit in 0..units {
                let skip = unit * U::BYTES;
                let value = match place {
                    Place::Global(address) => {
                        // SAFETY: `route` found the access permitted, as above.
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
}
