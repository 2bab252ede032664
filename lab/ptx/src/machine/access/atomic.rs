//! Atomics.

#![expect(unsafe_code, reason = "global memory is memory of this process, by address")]
#![expect(clippy::indexing_slicing, reason = "hot loops over lanes, whose indices are below 32")]

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::route::{Place, Route, out_of_space};
use super::{AccessSpace, Machine, Progress};
use crate::machine::lanes;
use crate::machine::state::State;
use crate::{Access, KernelError, Memory};

impl Machine<'_, '_> {
    /// Updates 2, 4 or 8 bytes per lane, one lane after the other, to `change(state, lane, old)`;
    /// hands the old values to `take(state, lane, old)`.
    pub(crate) fn update(
        &mut self,
        space: AccessSpace,
        mask: u32,
        bytes: usize,
        change: impl Fn(&State, usize, u64) -> u64,
        take: impl Fn(&mut State, usize, u64),
    ) -> Result<Progress, KernelError> {
        let remote = match self.route(space, Access::Atomic, mask, bytes as u32)? {
            Route::Park => return Ok(Progress::Park),
            Route::Direct | Route::Within => false,
            Route::Each { remote } => remote,
        };
        for lane in lanes(mask) {
            let old = match self.place(space, self.addresses[lane], lane, bytes, remote)? {
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
                Place::Parameter(_) => return Err(out_of_space("parameter", self.addresses[lane])),
            };
            take(self.state, lane, old);
        }
        Ok(Progress::Done)
    }
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
            // SAFETY: The access was found permitted and aligned, so that these are readable and
            // writable bytes for as long as the instruction runs.
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
