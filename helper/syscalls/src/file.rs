//! Texts of files of the kernel's.

#![expect(unsafe_code, reason = "system calls")]

use core::ffi::CStr;

use crate::call;

const READ: usize = 0;
const CLOSE: usize = 3;
const OPENAT: usize = 257;
const OPENAT2: usize = 437;
/// Directory of a relative path: the current one.
const IN_CURRENT_FOLDER: usize = (-100_isize).cast_unsigned();
const READ_AND_CLOSE_ON_EXEC: usize = 0o2_000_000;

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

/// `open_how` of linux/openat2.h.
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Text of a file; what does not fit is cut.
pub fn read_text<'a>(path: &CStr, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
    let arguments = [IN_CURRENT_FOLDER, path.as_ptr() as usize, READ_AND_CLOSE_ON_EXEC, 0, 0, 0];
    // SAFETY: the path ends with a zero.
    let number = unsafe { call(OPENAT, arguments) }.ok()?;
    // SAFETY: it was just opened.
    let file = unsafe { Descriptor::from_raw(number) };
    read_all(&file, text)
}

/// The same, if all names of the path were looked up before, by any process. Whoever looks up another name waits
/// for the lock of its folder, which any user who may read that folder can hold. `None` before Linux 5.12.
pub fn read_text_of_known_name<'a>(path: &CStr, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
    const RESOLVE_CACHED: u64 = 0x20;
    let how = OpenHow { flags: READ_AND_CLOSE_ON_EXEC as u64, mode: 0, resolve: RESOLVE_CACHED };
    let arguments = [IN_CURRENT_FOLDER, path.as_ptr() as usize, (&raw const how) as usize, size_of::<OpenHow>(), 0, 0];
    // SAFETY: the path ends with a zero, and the structure is of the size that is passed.
    let number = unsafe { call(OPENAT2, arguments) }.ok()?;
    // SAFETY: it was just opened.
    let file = unsafe { Descriptor::from_raw(number) };
    read_all(&file, text)
}

fn read_all<'a>(file: &Descriptor, text: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a [u8]> {
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

#[cfg(test)]
mod tests {
    use std::{ffi::CString, fs, thread};

    use super::*;

    #[test]
    fn name_that_nobody_has_looked_up_is_not_known() {
        // Of a new thread.
        let length = thread::spawn(|| {
            let folder = fs::read_link("/proc/thread-self").unwrap();
            let name = CString::new(format!("/proc/{}/stat", folder.display())).unwrap();
            let mut text = [0; TEXT_BYTES_MAX];
            assert!(read_text_of_known_name(&name, &mut text).is_none());
            assert!(read_text(&name, &mut text).is_some());
            read_text_of_known_name(&name, &mut text).map(<[u8]>::len)
        });
        // None on kernels that do not know of it.
        assert!(length.join().unwrap().is_none_or(|length| length > 0));
    }
}
