//! Memory of the program that a call names.

#![expect(unsafe_code, reason = "reads what the driver read, or wrote, in the same call")]

/// What lies at an address that the driver has just read or written for the same call; `None` at
/// null.
///
/// Only for arguments of a call that succeeded: the driver's documentation then demands that they
/// are readable.
pub(crate) fn read<T: Copy>(pointer: *const T) -> Option<T> {
    // SAFETY: see above. Programs in C may hold it unaligned.
    (!pointer.is_null()).then(|| unsafe { pointer.read_unaligned() })
}

/// Word of 8 bytes at a place in an argument.
pub(crate) fn read_word(argument: *const u8, offset_bytes: usize) -> Option<u64> {
    read(argument.wrapping_add(offset_bytes).cast::<[u8; 8]>()).map(u64::from_le_bytes)
}

/// Entry of an array of which the driver has read this entry.
pub(crate) fn read_at<T: Copy>(pointer: *const T, at: usize) -> Option<T> {
    if pointer.is_null() { None } else { read(pointer.wrapping_add(at)) }
}

/// Bytes of a text that ends with a zero, of the driver's.
pub(crate) fn text(pointer: *const u8) -> impl Iterator<Item = u8> {
    (0..).map_while(move |at| read_at(pointer, at).filter(|byte| *byte != 0))
}

/// Writes an entry that the driver has just written in the same call.
pub(crate) fn replace<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: see above.
        unsafe { pointer.write_unaligned(value) };
    }
}
