//! Texts of files of the kernel's.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;

use crate::call;

const READ: usize = 0;
const CLOSE: usize = 3;
const OPENAT: usize = 257;

/// Most bytes of a text that is read.
pub const TEXT_BYTES_MAX: usize = 4096;

/// Descriptor that is closed at its end.
#[derive(Debug)]
pub struct Descriptor(usize);

impl Descriptor {
    /// Descriptor of this number.
    ///
    /// # Safety
    /// It is open, and nobody else closes it.
    #[must_use]
    pub const unsafe fn from_raw(number: usize) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(&self) -> usize {
        self.0
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: the descriptor is this value's own.
        let _ = unsafe { call(CLOSE, [self.number(), 0, 0, 0, 0, 0]) };
    }
}

/// Text of a file; what does not fit is cut.
pub fn read_text<'a>(path: &CStr, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
    const IN_CURRENT_FOLDER: usize = (-100_isize).cast_unsigned();
    const READ_AND_CLOSE_ON_EXEC: usize = 0o2_000_000;
    let arguments = [IN_CURRENT_FOLDER, path.as_ptr() as usize, READ_AND_CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let number = unsafe { call(OPENAT, arguments) }.ok()?;
    // SAFETY: it was just opened.
    let file = unsafe { Descriptor::from_raw(number) };
    let mut length = 0;
    while let Some(rest) = text.get_mut(length..).filter(|rest| !rest.is_empty()) {
        // SAFETY: writes at most as many bytes as there are.
        match unsafe { call(READ, [file.number(), rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0]) } {
            Ok(0) => break,
            Ok(more) => length = length.saturating_add(more),
            Err(_) => return None,
        }
    }
    text.get(..length)
}
