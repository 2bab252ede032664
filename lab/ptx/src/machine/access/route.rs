//! Ways of an access: which memory its lanes are in, and whether they may access it.

#![expect(unsafe_code, reason = "permissions of the window are read by address")]
#![expect(clippy::indexing_slicing, reason = "hot loops over lanes, whose indices are below 32")]

use std::sync::atomic::Ordering;

use super::{AccessSpace, Machine};
use crate::machine::{LANES, LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, SPACE_WINDOW_BYTES, for_lanes, lanes};
use crate::{Access, GRANULE_BYTES, KernelError, Miss, WarpAccess};

/// Way of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// All in global memory, directly.
    Direct,
    /// All in the memory of the instruction's space, which is not global: every lane's bytes are.
    Within,
    /// Each by its own address; where `remote`, global ones by the methods of [`crate::Memory`].
    Each {
        remote: bool,
    },
    Park,
}

/// Place of one lane's bytes.
pub(super) enum Place {
    /// Address in this process.
    Global(usize),
    Remote(u64),
    Shared(usize),
    Local(usize),
    Parameter(usize),
}

impl Machine<'_, '_> {
    #[inline]
    pub(super) fn host_address(&self, address: u64) -> usize {
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

    /// Checks alignment, bounds and permissions, and asks the memory about what is missing.
    #[inline]
    pub(super) fn route(
        &mut self,
        space: AccessSpace,
        access: Access,
        mask: u32,
        lane_bytes: u32,
    ) -> Result<Route, KernelError> {
        let first = self.addresses[mask.trailing_zeros() as usize % LANES];
        // Bits in which any address differs from the first.
        let mut differing = 0;
        for_lanes(mask, |lane| differing |= self.addresses[lane] ^ first);
        let aligned = (first | differing) & (u64::from(lane_bytes) - 1) == 0;
        // No address is beyond this one.
        let last = first | differing;
        match space {
            AccessSpace::Global | AccessSpace::Generic => {
                let offset = first.wrapping_sub(self.window.base);
                if aligned && differing < GRANULE_BYTES && offset < self.window.bytes && self.permits(access, offset) {
                    self.count(access, mask);
                    return Ok(Route::Direct);
                }
            }
            AccessSpace::Shared if aligned && fits(last, lane_bytes, self.shared.len()) => return Ok(Route::Within),
            AccessSpace::Local if aligned && fits(last, lane_bytes, self.state.local_bytes) => {
                return Ok(Route::Within);
            }
            AccessSpace::Parameter if aligned && fits(last, lane_bytes, self.arguments.len()) => {
                return Ok(Route::Within);
            }
            _ => {}
        }
        self.route_each(space, access, mask, lane_bytes)
    }

    /// The same for lanes in several granules or memories, or that lack a permission.
    #[cold]
    fn route_each(
        &mut self,
        space: AccessSpace,
        access: Access,
        mask: u32,
        lane_bytes: u32,
    ) -> Result<Route, KernelError> {
        let low_bits = u64::from(lane_bytes) - 1;
        if let Some(lane) = lanes(mask).find(|&lane| self.addresses[lane] & low_bits != 0) {
            return Err(KernelError::Misaligned { address: self.addresses[lane], bytes: lane_bytes });
        }
        let global = lanes(mask)
            .filter(|&lane| self.is_global(space, self.addresses[lane]))
            .fold(0, |found, lane| found | 1 << lane);
        if global == 0 {
            return Ok(Route::Each { remote: false });
        }
        let answer = if self.permits_all(access, global) {
            Miss::Go
        } else {
            let (mut missed, mut count) = ([0; LANES], 0);
            for_lanes(global, |lane| {
                missed[count] = self.addresses[lane];
                count += 1;
            });
            let addresses = &missed[..count];
            self.memory.miss(&WarpAccess { access, addresses, lane_bytes, parked: self.parked })?
        };
        if answer == Miss::Park {
            return Ok(Route::Park);
        }
        self.count(access, global);
        Ok(if answer == Miss::Go && global == mask {
            Route::Direct
        } else {
            Route::Each { remote: answer == Miss::Remote }
        })
    }

    #[inline]
    fn count(&mut self, access: Access, mask: u32) {
        let threads = u64::from(mask.count_ones());
        match access {
            Access::Read => self.counts.loads += threads,
            Access::Write => self.counts.stores += threads,
            Access::Atomic => self.counts.atomics += threads,
        }
    }

    /// Looks the permission of one granule up, by an offset in the window.
    #[inline]
    fn permits(&self, access: Access, offset: u64) -> bool {
        let needed = access.permission();
        // SAFETY: The window has a permission for each of its granules.
        let permissions = unsafe { &*self.window.permissions.wrapping_add((offset / GRANULE_BYTES) as usize) };
        permissions.load(Ordering::Acquire) & needed == needed
    }

    /// Looks the permissions of all touched granules up. An aligned access does not cross a
    /// granule.
    fn permits_all(&self, access: Access, mask: u32) -> bool {
        let mut last = u64::MAX;
        lanes(mask).all(|lane| {
            let offset = self.addresses[lane].wrapping_sub(self.window.base);
            let granule = offset / GRANULE_BYTES;
            let known = granule == last;
            last = granule;
            known || offset < self.window.bytes && self.permits(access, offset)
        })
    }

    /// Finds a lane's bytes, and checks that they are in their space.
    #[inline]
    pub(super) fn place(
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

/// Tells whether bytes at the last offset are in a memory of this size.
#[inline]
fn fits(last: u64, lane_bytes: u32, size: usize) -> bool {
    last.checked_add(u64::from(lane_bytes)).is_some_and(|end| end <= size as u64)
}

pub(super) fn out_of_space(space: &'static str, offset: u64) -> KernelError {
    KernelError::OutOfSpace { space, offset }
}
