//! Text files of the kernel, in /proc and /sys.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;

use crate::call;

const READ: usize = 0;
const CLOSE: usize = 3;
const OPENAT: usize = 257;

/// Size limit of a text.
pub const TEXT_BYTES_MAX: usize = 4096;

/// File descriptor, closed on drop.
#[derive(Debug)]
pub struct Descriptor(usize);

impl Descriptor {
    /// Takes ownership of a descriptor.
    ///
    /// # Safety
    /// The descriptor is open, and nothing else closes it.
    #[must_use]
    pub const unsafe fn from_raw(number: usize) -> Self {
        Self(number)
    }

    /// Number of the descriptor.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: this value owns the descriptor.
        let _ = unsafe { call(CLOSE, [self.number(), 0, 0, 0, 0, 0]) };
    }
}

/// Reads a file, truncated to the size of `text`. `None` if that fails.
pub fn read_text<'a>(path: &CStr, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
    const AT_FDCWD: usize = (-100_isize).cast_unsigned();
    const O_RDONLY_CLOEXEC: usize = 0o2_000_000;
    let arguments = [AT_FDCWD, path.as_ptr() as usize, O_RDONLY_CLOEXEC, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let number = unsafe { call(OPENAT, arguments) }.ok()?;
    // SAFETY: it was just opened.
    let file = unsafe { Descriptor::from_raw(number) };
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        // SAFETY: the kernel writes at most `rest.len()` bytes to `rest`.
        match unsafe { call(READ, [file.number(), rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]) } {
            Ok(0) => break,
            Ok(more) => length = length.saturating_add(more),
            Err(_) => return None,
        }
    }
    text.get(..length)
}
