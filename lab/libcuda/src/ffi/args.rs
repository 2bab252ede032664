//! Arguments of the ABI. The caller answers for the pointers that it passes, as the ABI demands:
//! each is null, or points to as many values as the function's documentation says. Nothing else
//! makes one.

use std::{
    ffi::{CStr, c_char, c_void},
    mem::offset_of,
    ptr,
};

use cudarc::driver::sys;

use crate::{Error, Result, backend::Place, handle::Handle};

const INVALID: Error = Error::CUDA_ERROR_INVALID_VALUE;

/// Type that can be read from the caller's memory.
///
/// # Safety
/// All bit patterns are valid, if each of the `ENUMS` has one of the values between first and last.
pub(super) unsafe trait Readable: Copy {
    /// Offsets of fields that are enumerations, with their first and last value.
    const ENUMS: &[(usize, u32, u32)] = &[];
}

macro_rules! readable {
    ($($type:ty $([$($field:ident: $first:literal..=$last:literal),+])?),+ $(,)?) => {
        $(
            // SAFETY: numbers, pointers and arrays of them, beside the enumerations that are
            // listed.
            unsafe impl Readable for $type {
                $(const ENUMS: &[(usize, u32, u32)] = &[$((offset_of!($type, $field), $first, $last)),+];)?
            }
        )+
    };
}
readable! {
    u8, u16, u32, u64, usize, i32, f32,
    sys::CUlaunchConfig,
    sys::CUDA_KERNEL_NODE_PARAMS_v1,
    sys::CUDA_KERNEL_NODE_PARAMS_v2,
    sys::CUDA_MEMSET_NODE_PARAMS_v1,
    sys::CUDA_HOST_NODE_PARAMS_v1,
    sys::CUDA_MEMCPY2D_v2 [srcMemoryType: 1..=4, dstMemoryType: 1..=4],
    sys::CUDA_MEMCPY3D_v2 [srcMemoryType: 1..=4, dstMemoryType: 1..=4],
    sys::CUDA_MEMCPY3D_PEER_v1 [srcMemoryType: 1..=4, dstMemoryType: 1..=4],
}
// SAFETY: pointers.
unsafe impl<T> Readable for *mut T {}
// SAFETY: pointers.
unsafe impl<T> Readable for *const T {}

/// Pointer to values that the function reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct In<T>(*const T);

impl<T> In<T> {
    /// As memory for values of any type.
    pub(super) const fn any(self) -> Any {
        Any(self.0.cast_mut().cast())
    }

    /// Whether it is null.
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

impl<T: Readable> In<T> {
    /// Value at an index.
    ///
    /// # Errors
    /// Null, or an enumeration without such a value.
    pub(super) fn at(self, index: usize) -> Result<T> {
        if self.0.is_null() {
            return Err(INVALID);
        }
        let value = self.0.wrapping_add(index);
        for (offset, first, last) in T::ENUMS {
            // SAFETY: a field of a value that the caller lets be read.
            let field = unsafe { value.wrapping_byte_add(*offset).cast::<u32>().read_unaligned() };
            if !(*first..=*last).contains(&field) {
                return Err(INVALID);
            }
        }
        // SAFETY: the caller lets it be read, and its enumerations are valid.
        Ok(unsafe { value.read_unaligned() })
    }

    /// First value.
    ///
    /// # Errors
    /// As [`In::at`].
    pub(super) fn read(self) -> Result<T> {
        self.at(0)
    }

    /// Values. Of none the pointer may be null.
    ///
    /// # Errors
    /// As [`In::at`].
    pub(super) fn list(self, count: usize) -> Result<Vec<T>> {
        (0..count).map(|index| self.at(index)).collect()
    }
}

/// Pointer to values that the function writes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Whether it is null.
    pub(super) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Writes the value.
    ///
    /// # Errors
    /// Null.
    pub(super) fn set(self, value: T) -> Result<()> {
        self.set_at(0, value)
    }

    /// Writes the value at an index.
    ///
    /// # Errors
    /// Null.
    pub(super) fn set_at(self, index: usize, value: T) -> Result<()> {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller lets it be written.
        unsafe { self.0.wrapping_add(index).write_unaligned(value) };
        Ok(())
    }

    /// Writes the value, unless it is null.
    pub(super) fn set_if_any(self, value: T) {
        let _ = self.set(value);
    }
}

impl<T: Readable> Out<T> {
    /// Value that was there.
    ///
    /// # Errors
    /// Null.
    pub(super) fn read(self) -> Result<T> {
        In(self.0.cast_const()).read()
    }
}

impl<H> Out<*mut H> {
    /// Writes a handle.
    ///
    /// # Errors
    /// Null.
    pub(super) fn set_handle(self, handle: Handle) -> Result<()> {
        self.set(pointer(handle))
    }
}

/// Writes a list of handles as functions with a count do: up to the count that was there, or the
/// count alone where there is no list. Places beyond the end become null.
pub(super) fn set_handles<H>(list: Out<*mut H>, count: Out<usize>, handles: &[Handle]) -> Result<()> {
    if list.is_null() {
        return count.set(handles.len());
    }
    let places = count.read()?;
    for index in 0..places {
        list.set_at(index, pointer(handles.get(index).copied().unwrap_or(0)))?;
    }
    count.set(places.min(handles.len()))
}

/// Memory for a value whose type depends on another argument.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Any(*mut c_void);

impl Any {
    /// Null.
    pub(super) const fn null() -> Self {
        Self(ptr::null_mut())
    }

    /// Memory at a pointer that was passed.
    pub(super) const fn from_pointer(pointer: *mut u8) -> Self {
        Self(pointer.cast())
    }

    /// Memory at an address that was passed.
    pub(super) fn from_address(address: usize) -> Self {
        Self(ptr::with_exposed_provenance_mut(address))
    }

    /// Memory some bytes further on.
    pub(super) const fn after(self, bytes: usize) -> Self {
        Self(self.0.wrapping_byte_add(bytes))
    }

    /// As a place for this type.
    pub(super) const fn out<T>(self) -> Out<T> {
        Out(self.0.cast())
    }

    /// As a value of this type.
    pub(super) const fn input<T>(self) -> In<T> {
        In(self.0.cast_const().cast())
    }

    /// Writes a number of 8 bytes at most into as many bytes as there are.
    ///
    /// # Errors
    /// Null.
    pub(super) fn set_number(self, bytes: usize, value: u64) -> Result<()> {
        let out: Out<u8> = self.out();
        value.to_le_bytes().iter().take(bytes).enumerate().try_for_each(|(at, byte)| out.set_at(at, *byte))
    }

    /// Address.
    pub(super) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Pointer as given.
    pub(super) const fn pointer(self) -> *mut c_void {
        self.0
    }
}

/// Text that the function reads.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Text(*const c_char);

impl Text {
    /// Text.
    ///
    /// # Errors
    /// Null, or not UTF-8.
    pub(super) fn read(self) -> Result<String> {
        if self.0.is_null() {
            return Err(INVALID);
        }
        // SAFETY: the caller passes a text that ends with a NUL.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map(str::to_owned).map_err(|_| INVALID)
    }
}

/// Text of the driver, which lives as long as the object that it is of.
pub(super) fn text(text: &CStr) -> *const c_char {
    text.as_ptr()
}

/// Place that the caller names.
pub(super) fn place(address: u64) -> Place {
    // SAFETY: the ABI demands that memory of the caller stays until the operation ends.
    unsafe { Place::new(address) }
}

/// Pointer that a program takes for a handle.
pub(super) fn pointer<T>(handle: Handle) -> *mut T {
    ptr::without_provenance_mut(handle)
}

/// Length as the ABI has it.
pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Location of memory, as the ABI has it; passed by value, so that its type may have any value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct MemLocation {
    /// `CUmemLocationType`.
    pub(super) kind: u32,
    /// Device.
    pub(super) id: i32,
}
const _: () = assert!(size_of::<MemLocation>() == size_of::<sys::CUmemLocation>());
readable!(MemLocation);
