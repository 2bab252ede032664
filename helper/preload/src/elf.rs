//! Symbols of loaded objects, found in their own tables: those of the ELF specification, and the hash
//! table in GNU's form.

#![expect(unsafe_code, reason = "reads the tables of loaded libraries")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

/// `dl_phdr_info`, its first fields.
#[repr(C)]
struct Object {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    header_count: u16,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical: usize,
    file_bytes: usize,
    bytes: usize,
    alignment: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    bytes: usize,
}

/// Kinds of `Header`.
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
/// Tags of the dynamic section.
const TAG_END: usize = 0;
const TAG_STRINGS: usize = 5;
const TAG_SYMBOLS: usize = 6;
const TAG_GNU_HASH: usize = 0x6fff_fef5;
/// Kind of a `Symbol`, among its information: a function that returns the function.
const KIND: u8 = 0xf;
const INDIRECT: u8 = 10;

unsafe extern "C" {
    // In each version of the C library. Calls with each loaded object until a call answers other
    // than 0.
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int,
        search: *mut c_void,
    ) -> c_int;
}

/// Symbol of another object than one's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Of the first object after one's own that has it, in the order in which they were loaded. That is
    /// what a program gets that is linked to it, without one's own.
    After(*mut c_void),
    /// Of the first object before one's own that has it, where none after it does: one's own was
    /// loaded into a process that had begun.
    Before(*mut c_void),
}

impl Next {
    pub(crate) const fn address(self) -> *mut c_void {
        match self {
            Self::After(address) | Self::Before(address) => address,
        }
    }
}

/// Search for a symbol in other objects than one's own.
struct Search<'a> {
    name: &'a CStr,
    own: usize,
    is_after: bool,
    found: Option<Next>,
}

/// Definition of a symbol that comes next to that of the object with the address `own`.
pub(crate) fn next(own: usize, name: &CStr) -> Option<Next> {
    let mut search = Search { name, own, is_after: false, found: None };
    // SAFETY: the callback is of the type that the C library demands, and gets this search.
    unsafe { dl_iterate_phdr(look, (&raw mut search).cast()) };
    search.found
}

/// What lies at an address of a loaded library.
///
/// # Safety
/// The library has a `T` there.
unsafe fn at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller's promise.
    unsafe { (address as *const T).read_unaligned() }
}

unsafe extern "C" fn look(object: *const Object, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes an object.
    let Some(object) = (unsafe { object.as_ref() }) else { return 0 };
    // SAFETY: it passes what next gave it.
    let Some(search) = (unsafe { search.cast::<Search<'_>>().as_mut() }) else { return 0 };
    let mut dynamic = 0;
    for number in 0..object.header_count {
        // SAFETY: so many headers there are.
        let Some(header) = (unsafe { object.headers.wrapping_add(number.into()).as_ref() }) else { return 0 };
        let begin = object.base.wrapping_add(header.address);
        match header.kind {
            LOAD if search.own.wrapping_sub(begin) < header.bytes => {
                search.is_after = true;
                return 0;
            }
            DYNAMIC => dynamic = begin,
            _ => {}
        }
    }
    if dynamic == 0 || (search.found.is_some() && !search.is_after) {
        return 0;
    }
    // SAFETY: the header says that the dynamic section is there.
    let found = unsafe { symbol(object.base, dynamic, search.name) };
    if found.is_null() {
        return 0;
    }
    search.found = Some(if search.is_after { Next::After(found) } else { Next::Before(found) });
    search.is_after.into()
}

/// Hash of a name, of the GNU hash table.
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

/// Symbol that an object defines; null if it does not, has no such table, or leaves the choice to a
/// function.
///
/// # Safety
/// The library's dynamic section is at this address.
unsafe fn symbol(base: usize, dynamic: usize, name: &CStr) -> *mut c_void {
    let (mut strings, mut symbols, mut table) = (0, 0, 0);
    for entry in 0.. {
        // SAFETY: entries go on until the last tag.
        let [tag, value] = unsafe { at::<[usize; 2]>(dynamic + entry * 16) };
        // The loader has added the base to addresses; the kernel's own library keeps them as they were.
        let address = if value < base { value.wrapping_add(base) } else { value };
        match tag {
            TAG_END => break,
            TAG_STRINGS => strings = address,
            TAG_SYMBOLS => symbols = address,
            TAG_GNU_HASH => table = address,
            _ => {}
        }
    }
    if strings == 0 || symbols == 0 || table == 0 {
        return null_mut();
    }
    // SAFETY: the table begins with four numbers.
    let [buckets, first, bloom_words, _] = unsafe { at::<[u32; 4]>(table) }.map(|number| number as usize);
    if buckets == 0 {
        return null_mut();
    }
    let hash = hash(name);
    let bucket_begin = table + 16 + bloom_words * 8;
    let chain_begin = bucket_begin + buckets * 4;
    // SAFETY: a bucket for each remainder.
    let mut number = unsafe { at::<u32>(bucket_begin + hash as usize % buckets * 4) } as usize;
    if number < first {
        return null_mut();
    }
    loop {
        // SAFETY: a hash for each symbol of the bucket; the last one's lowest bit is set.
        let chained = unsafe { at::<u32>(chain_begin + (number - first) * 4) };
        if chained | 1 == hash | 1 {
            // SAFETY: the symbol of that number is there.
            let Symbol { name: at_name, info, section, value, .. } =
                unsafe { ((symbols + number * size_of::<Symbol>()) as *const Symbol).read_unaligned() };
            // SAFETY: a name that ends with a zero, among the strings.
            let there = unsafe { CStr::from_ptr((strings + at_name as usize) as *const c_char) };
            if section != 0 && info & KIND != INDIRECT && there == name {
                return base.wrapping_add(value) as *mut c_void;
            }
        }
        if chained & 1 != 0 {
            return null_mut();
        }
        number += 1;
    }
}
