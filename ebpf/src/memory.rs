//! Reads of the memory of the driver and the kernel.

use aya_ebpf::{
    helpers::{bpf_probe_read_kernel, generated},
    maps::PerCpuArray,
};

use crate::maps::layout;

/// Lowest bits of a file's pointer, in which the driver stores the type of the file.
pub const FILE_TYPE_BITS: u64 = 7;

/// Error: the driver's memory could not be read, or the layout does not permit the read.
pub struct Unreadable;

/// Reads a value of the driver at an address.
#[inline(always)]
pub fn driver<T: Copy>(address: u64) -> Result<T, Unreadable> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    copy(value.as_mut_ptr().cast(), size_of::<T>() as u32, address)?;
    // SAFETY: zeroed, then filled; T is an integer in all uses.
    Ok(unsafe { value.assume_init() })
}

/// Reads a value of the kernel at an address.
#[inline(always)]
pub fn kernel<T: Copy>(address: u64) -> Result<T, Unreadable> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_kernel(address as *const T) }.map_err(|_| Unreadable)
}

/// Buffer for a copy of a structure of the driver, one per CPU: probes do not interrupt each other
/// there. Not on the stack, which has 512 bytes in all, and loses 32 with every call on kernels
/// before 6.8.
pub type Scratch<const WORDS: usize> = PerCpuArray<[u64; WORDS]>;

/// Copies `size` bytes from an address into a buffer, whose rest is unchanged.
#[inline(always)]
pub fn fill<const WORDS: usize>(
    scratch: &Scratch<WORDS>,
    address: u64,
    size: u32,
) -> Result<&'static mut [u64; WORDS], Unreadable> {
    if size as usize > size_of::<[u64; WORDS]>() {
        return Err(Unreadable);
    }
    let words = scratch.get_ptr_mut(0).ok_or(Unreadable)?;
    copy(words.cast(), size, address)?;
    // SAFETY: this CPU's value of the map, which lives as long as the program.
    Ok(unsafe { &mut *words })
}

/// Words of the largest processor mask: 257 bits.
pub const PROCESSOR_WORDS: u32 = 5;

/// Words of a processor mask: one up to driver 545.
#[inline(always)]
pub fn processor_words() -> u32 {
    if layout!(gpu_ids) == 1 { 1 } else { PROCESSOR_WORDS }
}

/// Copy of a structure of the driver, of at most `8 * WORDS` bytes; valid until the next copy into
/// the same buffer.
pub struct Copied<const WORDS: usize>(&'static [u64; WORDS]);

impl<const WORDS: usize> Copied<WORDS> {
    /// Copies `size` bytes from an address.
    #[inline(always)]
    pub fn from(scratch: &Scratch<WORDS>, address: u64, size: u32) -> Result<Self, Unreadable> {
        Ok(Self(fill(scratch, address, size)?))
    }

    /// Field at an offset. The verifier does the checks, as it knows the layout's offsets as
    /// constants.
    #[inline(always)]
    pub fn field<T: Copy>(&self, offset: u32) -> Result<T, Unreadable> {
        let offset = offset as usize;
        if !offset.is_multiple_of(align_of::<T>()) || offset + size_of::<T>() > size_of::<[u64; WORDS]>() {
            return Err(Unreadable);
        }
        // SAFETY: inside the structure, as just checked.
        let field = unsafe { self.0.as_ptr().cast::<u8>().add(offset) };
        // SAFETY: aligned, as just checked, and T is an integer in all uses.
        Ok(unsafe { field.cast::<T>().read() })
    }
}

/// Adds to a value that other CPUs change too.
///
/// # Safety
/// The pointer must point into a map's value that the verifier accepts, 8-byte aligned.
#[inline(always)]
pub unsafe fn add_atomically(value: *mut u64, added: u64) {
    // Core has no read-modify-write operation on this target: the oldest kernels support this
    // instruction only.
    // SAFETY: one atomic addition to the value pointed to.
    unsafe {
        core::arch::asm!("lock *(u64 *)({value} + 0) += {added}", value = in(reg) value, added = in(reg) added, options(nostack));
    }
}

#[inline(always)]
fn copy(to: *mut core::ffi::c_void, size: u32, address: u64) -> Result<(), Unreadable> {
    let from = address as *const core::ffi::c_void;
    let status = if layout!(in_user_memory) == 0 {
        // SAFETY: the helper checks the source; the callers' destinations hold `size` bytes.
        unsafe { generated::bpf_probe_read_kernel(to, size, from) }
    } else {
        // SAFETY: the helper checks the source; the callers' destinations hold `size` bytes.
        unsafe { generated::bpf_probe_read_user(to, size, from) }
    };
    if status == 0 { Ok(()) } else { Err(Unreadable) }
}
