//! Access to the program's memory that a call names.

#![expect(unsafe_code, reason = "reads what the driver read, or wrote, in the same call")]

/// Value at an address that the driver has just read or written for the same call; `None` at null.
///
/// Only for arguments of a call that succeeded: the driver's documentation requires that they are
/// readable.
pub(crate) fn read<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: the driver has accessed it in the same call, which succeeded. C programs may pass an
    // unaligned pointer.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() })
}

/// 8-byte word at an offset in an argument.
pub(crate) fn read_word(argument: *const u8, offset_bytes: usize) -> Option<u64> {
    read(argument.wrapping_add(offset_bytes).cast::<[u8; 8]>()).map(u64::from_le_bytes)
}

/// Entry of an array that the driver has read at this index.
pub(crate) fn read_at<T: Copy>(pointer: *const T, at: usize) -> Option<T> {
    if pointer.is_null() { None } else { read(pointer.wrapping_add(at)) }
}

/// Bytes of a zero-terminated text from the driver.
pub(crate) fn text(pointer: *const u8) -> impl Iterator<Item = u8> {
    (0..).map_while(move |at| read_at(pointer, at).filter(|byte| *byte != 0))
}

/// Overwrites a value that the driver has just written in the same call.
pub(crate) fn overwrite<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the driver has written here in the same call.
        unsafe { pointer.write_unaligned(value) };
    }
}
