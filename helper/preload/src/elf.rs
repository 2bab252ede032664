//! Symbols of loaded objects, found in their own tables: those of the ELF specification, and the hash
//! table in GNU's form or in that of the specification.

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
const TAG_HASH: usize = 4;
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
fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

/// Hash of a name, of the hash table of the specification.
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add((*byte).into());
        (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff
    })
}

/// Tables of an object; 0 for those that it does not have.
#[derive(Default)]
struct Tables {
    base: usize,
    strings: usize,
    symbols: usize,
    gnu_hashes: usize,
    hashes: usize,
}

impl Tables {
    /// Symbol with a number, if it has this name and is defined, by an address; else null.
    ///
    /// # Safety
    /// The object has strings, and a symbol of this number.
    unsafe fn defined(&self, number: usize, name: &CStr) -> *mut c_void {
        // SAFETY: the caller's promise.
        let Symbol { name: at_name, info, section, value, .. } =
            unsafe { ((self.symbols + number * size_of::<Symbol>()) as *const Symbol).read_unaligned() };
        // SAFETY: a name that ends with a zero, among the strings.
        let there = unsafe { CStr::from_ptr((self.strings + at_name as usize) as *const c_char) };
        let is_it = section != 0 && info & KIND != INDIRECT && there == name;
        if is_it { self.base.wrapping_add(value) as *mut c_void } else { null_mut() }
    }

    /// Symbol by the GNU hash table.
    ///
    /// # Safety
    /// The object has all tables but that of the specification.
    unsafe fn by_gnu_hash(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the table begins with four numbers.
        let [buckets, first, bloom_words, _] = unsafe { at::<[u32; 4]>(self.gnu_hashes) }.map(|number| number as usize);
        if buckets == 0 {
            return null_mut();
        }
        let hash = gnu_hash(name);
        let bucket_begin = self.gnu_hashes + 16 + bloom_words * 8;
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
                let found = unsafe { self.defined(number, name) };
                if !found.is_null() {
                    return found;
                }
            }
            if chained & 1 != 0 {
                return null_mut();
            }
            number += 1;
        }
    }

    /// Symbol by the hash table of the specification.
    ///
    /// # Safety
    /// The object has all tables but GNU's.
    unsafe fn by_hash(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the table begins with two numbers.
        let [buckets, chained] = unsafe { at::<[u32; 2]>(self.hashes) }.map(|number| number as usize);
        if buckets == 0 {
            return null_mut();
        }
        let bucket_begin = self.hashes + 8;
        let chain_begin = bucket_begin + buckets * 4;
        // SAFETY: a bucket for each remainder.
        let mut number = unsafe { at::<u32>(bucket_begin + hash(name) as usize % buckets * 4) } as usize;
        // Symbol 0 ends a chain.
        while number != 0 && number < chained {
            // SAFETY: the table has the next one of each symbol.
            let found = unsafe { self.defined(number, name) };
            if !found.is_null() {
                return found;
            }
            // SAFETY: as above.
            number = unsafe { at::<u32>(chain_begin + number * 4) } as usize;
        }
        null_mut()
    }
}

/// Symbol that an object defines; null if it does not, has no such table, or leaves the choice to a
/// function.
///
/// # Safety
/// The library's dynamic section is at this address.
unsafe fn symbol(base: usize, dynamic: usize, name: &CStr) -> *mut c_void {
    let mut tables = Tables { base, ..Tables::default() };
    for entry in 0.. {
        // SAFETY: entries go on until the last tag.
        let [tag, value] = unsafe { at::<[usize; 2]>(dynamic + entry * 16) };
        // The loader has added the base to addresses; the kernel's own library keeps them as they were.
        let address = if value < base { value.wrapping_add(base) } else { value };
        match tag {
            TAG_END => break,
            TAG_STRINGS => tables.strings = address,
            TAG_SYMBOLS => tables.symbols = address,
            TAG_GNU_HASH => tables.gnu_hashes = address,
            TAG_HASH => tables.hashes = address,
            _ => {}
        }
    }
    match tables {
        Tables { strings: 0, .. } | Tables { symbols: 0, .. } | Tables { gnu_hashes: 0, hashes: 0, .. } => null_mut(),
        // SAFETY: the object has these tables.
        Tables { gnu_hashes: 0, .. } => unsafe { tables.by_hash(name) },
        // SAFETY: as above.
        _ => unsafe { tables.by_gnu_hash(name) },
    }
}

#[cfg(test)]
mod tests {
    use std::{ffi::CString, format, fs, process::Command};

    use super::*;

    unsafe extern "C" {
        fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    }

    #[test]
    fn symbols_are_found_by_either_hash_table() {
        let folder = tempfile::tempdir().unwrap();
        for (style, name) in [("gnu", c"uvmd_test_gnu"), ("sysv", c"uvmd_test_sysv")] {
            let library = folder.path().join(format!("{style}.so"));
            let source = library.with_extension("c");
            // Others share its buckets.
            let other = |number| format!("int other{number}(void) {{ return {number}; }}\n");
            let others: String = (0..50).map(other).collect();
            fs::write(&source, format!("{others}int {}(void) {{ return 7; }}\n", name.to_str().unwrap())).unwrap();
            let mut compiler = Command::new("cc");
            let flags = ["-shared", "-fPIC", &format!("-Wl,--hash-style={style}"), "-o"];
            assert!(compiler.args(flags).args([&library, &source]).status().unwrap().success());
            let path = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: a path that ends with a zero; 2 is RTLD_NOW.
            assert!(!unsafe { dlopen(path.as_ptr(), 2) }.is_null());
            let own = symbols_are_found_by_either_hash_table as fn() as usize;
            let found = next(own, name).unwrap();
            assert!(matches!(found, Next::After(_)));
            // SAFETY: the function of this type above.
            let function: extern "C" fn() -> c_int = unsafe { core::mem::transmute(found.address()) };
            assert_eq!(function(), 7);
            assert_eq!(next(own, c"uvmd_test_nothing"), None);
        }
    }

    #[test]
    fn hashes_are_those_of_the_tables() {
        assert_eq!((gnu_hash(c""), gnu_hash(c"printf")), (0x1505, 0x156b_2bb8));
        assert_eq!((hash(c""), hash(c"printf"), hash(c"syscall")), (0, 0x0779_05a6, 0x0b09_985c));
    }
}
