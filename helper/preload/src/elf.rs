//! Symbols of loaded objects, found in their ELF tables, with the GNU hash table or that of the
//! specification.

#![expect(unsafe_code, reason = "reads the tables of loaded libraries")]

mod bindings;

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::null_mut,
};

pub(crate) use bindings::{Binding, rebind};

/// `dl_phdr_info`, its first fields.
#[repr(C)]
struct PhdrInfo {
    base: usize,
    path: *const c_char,
    headers: *const ProgramHeader,
    header_count: u16,
}

/// `link_map`, its first fields: the target of a library's handle.
#[repr(C)]
struct LinkMap {
    base: usize,
    path: *const c_char,
    dynamic: usize,
}

/// `Elf64_Phdr`.
#[repr(C)]
struct ProgramHeader {
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
#[derive(Clone, Copy)]
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    bytes: usize,
}

/// Kinds of `ProgramHeader`.
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
/// Tags of the dynamic section.
const DT_NULL: usize = 0;
const DT_NEEDED: usize = 1;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;
/// Mask of a `Symbol`'s type in `info`, and the type of an indirect function (`STT_GNU_IFUNC`).
const STT_MASK: u8 = 0xf;
const STT_GNU_IFUNC: u8 = 10;

unsafe extern "C" {
    // In every version of the C library. Calls back with each loaded object until a result is not
    // 0. Holds the lock of the loader's list of objects. The loader takes that lock to change the
    // list, but does not hold it while constructors and destructors run.
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const PhdrInfo, usize, *mut c_void) -> c_int,
        search: *mut c_void,
    ) -> c_int;
}

/// Symbol of an object other than this library's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Definition of the first object after this library, in load order. Without this library, a
    /// program that is linked to the symbol would be bound to it.
    After(*mut c_void),
    /// Definition of the first object before this library, if none after it defines the symbol:
    /// this library was loaded into a running process.
    Before(*mut c_void),
}

impl Next {
    pub(crate) const fn address(self) -> *mut c_void {
        match self {
            Self::After(address) | Self::Before(address) => address,
        }
    }
}

/// Definition of a symbol by the next object after the one that contains the address `own`, or else
/// by the first object before it.
pub(crate) fn next_definition(own: usize, name: &CStr) -> Option<Next> {
    let mut is_after = false;
    let mut before = None;
    let after = search(|info| {
        if info.contains(own) {
            is_after = true;
        } else if is_after || before.is_none() {
            let found = info.object()?.symbol(name)?;
            if is_after {
                return Some(Next::After(found));
            }
            before = Some(Next::Before(found));
        }
        None
    });
    after.or(before)
}

/// First definition of a symbol in load order, except by the object that contains the address
/// `own`, and by the vDSO, which the loader does not search.
pub(crate) fn first_definition(own: usize, name: &CStr) -> Option<*mut c_void> {
    const VDSO: &CStr = c"linux-vdso.so.1";
    search(|info| {
        let object = if info.contains(own) { None } else { info.object() };
        object.filter(|object| !object.is_named(VDSO))?.symbol(name)
    })
}

/// Whether an object before the one that contains the address `own` defines a symbol.
pub(crate) fn is_defined_before(own: usize, name: &CStr) -> bool {
    let first = search(|info| {
        let is_own = info.contains(own);
        let has_symbol = !is_own && info.object().is_some_and(|object| object.symbol(name).is_some());
        (is_own || has_symbol).then_some(has_symbol)
    });
    first.unwrap_or(false)
}

/// Whether an address is in the program itself, the first object.
pub(crate) fn is_in_program(address: usize) -> bool {
    search(|info| Some(info.contains(address))).unwrap_or(false)
}

/// Whether a handle's library has this name, or is linked to a library of this name. Takes no lock.
///
/// # Safety
/// The handle is null, or was returned by `dlopen` and is not closed.
pub(crate) unsafe fn links_to(handle: *mut c_void, name: &CStr) -> bool {
    // SAFETY: the caller guarantees that the handle is null or open.
    let Some(link_map) = (unsafe { handle.cast::<LinkMap>().as_ref() }) else { return false };
    // SAFETY: the loader has stored the address of the dynamic section there.
    let object = unsafe { Object::new(link_map.base, link_map.dynamic, link_map.path) };
    // SAFETY: the loader has stored the address of the dynamic section there.
    object.is_some_and(|object| object.is_named(name) || unsafe { object.needs(link_map.dynamic, name) })
}

/// First result of `visit` for an object that defines a symbol and has a name, as a file or in its
/// tables. The object cannot be unloaded while `visit` runs.
pub(crate) fn find_named<T>(name: &CStr, symbol: &CStr, mut visit: impl FnMut(Object) -> Option<T>) -> Option<T> {
    search(|info| {
        let object = info.object().filter(|object| object.is_named(name) && object.symbol(symbol).is_some());
        visit(object?)
    })
}

/// Object at a base address, if it has this path.
pub(crate) fn with_path(base: usize, path: &CStr) -> Option<Object> {
    search(|info| info.object().filter(|object| object.base == base && object.has_path(path)))
}

/// Object that contains an address.
pub(crate) fn object_containing(address: usize) -> Option<Object> {
    search(|info| if info.contains(address) { info.object() } else { None })
}

/// Searches the loaded objects in load order.
fn search<T, F: FnMut(&PhdrInfo) -> Option<T>>(visit: F) -> Option<T> {
    struct Search<T, F> {
        visit: F,
        found: Option<T>,
    }
    unsafe extern "C" fn each<T, F: FnMut(&PhdrInfo) -> Option<T>>(
        info: *const PhdrInfo,
        _: usize,
        search: *mut c_void,
    ) -> c_int {
        // SAFETY: `dl_iterate_phdr` passes a valid object.
        let Some(info) = (unsafe { info.as_ref() }) else { return 0 };
        // SAFETY: `dl_iterate_phdr` passes on the pointer to the `Search` below.
        let Some(search) = (unsafe { search.cast::<Search<T, F>>().as_mut() }) else { return 0 };
        search.found = (search.visit)(info);
        search.found.is_some().into()
    }
    let mut search = Search { visit, found: None };
    // SAFETY: the callback has the type that the C library requires, and gets a pointer to this
    // search.
    unsafe { dl_iterate_phdr(each::<T, F>, (&raw mut search).cast()) };
    search.found
}

/// Value at an address in a loaded library.
///
/// # Safety
/// The library has a `T` at this address.
unsafe fn at<T: Copy>(address: usize) -> T {
    // SAFETY: the caller guarantees that a `T` is at this address.
    unsafe { (address as *const T).read_unaligned() }
}

impl PhdrInfo {
    fn headers(&self) -> impl Iterator<Item = &ProgramHeader> {
        // SAFETY: the object has this number of headers.
        (0..self.header_count).filter_map(|number| unsafe { self.headers.wrapping_add(number.into()).as_ref() })
    }

    fn begin(&self, header: &ProgramHeader) -> usize {
        self.base.wrapping_add(header.address)
    }

    fn contains(&self, address: usize) -> bool {
        self.headers().any(|header| header.kind == PT_LOAD && address.wrapping_sub(self.begin(header)) < header.bytes)
    }

    /// Address of the dynamic section.
    fn dynamic(&self) -> Option<usize> {
        self.headers().find(|header| header.kind == PT_DYNAMIC).map(|header| self.begin(header))
    }

    /// The object, if it has the tables of a library.
    fn object(&self) -> Option<Object> {
        // SAFETY: the header has the address of the dynamic section.
        unsafe { Object::new(self.base, self.dynamic()?, self.path) }
    }
}

/// Entries of a dynamic section: tags and values.
///
/// # Safety
/// The section exists while the entries are read.
unsafe fn entries(dynamic: usize) -> impl Iterator<Item = [usize; 2]> {
    // SAFETY: the entries extend to the final tag.
    (0..).map(move |entry| unsafe { at::<[usize; 2]>(dynamic + entry * 16) }).take_while(|[tag, _]| *tag != DT_NULL)
}

/// Hash of a name, for the GNU hash table.
fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

/// Hash of a name, for the hash table of the specification.
fn hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add((*byte).into());
        (hash ^ (hash >> 24 & 0xf0)) & 0x0fff_ffff
    })
}

/// Loaded object with symbols. Its tables exist until it is unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object {
    base: usize,
    path: *const c_char,
    /// Offset of the object's name (`DT_SONAME`) among the strings.
    name: Option<usize>,
    strings: usize,
    symbols: usize,
    hashes: Hashes,
}

/// Address of the hash table.
#[derive(Clone, Copy, Debug)]
enum Hashes {
    Gnu(usize),
    Sysv(usize),
}

impl Object {
    /// Creates an object from its dynamic section; `None` without tables.
    ///
    /// # Safety
    /// The object's dynamic section is at this address.
    unsafe fn new(base: usize, dynamic: usize, path: *const c_char) -> Option<Self> {
        let (mut name, mut strings, mut symbols, mut gnu_hashes, mut hashes) = (None, None, None, None, None);
        // SAFETY: the caller guarantees that the dynamic section is at this address.
        for [tag, value] in unsafe { entries(dynamic) } {
            // The loader has added the base to addresses, but not in the vDSO.
            let address = Some(if value < base { value.wrapping_add(base) } else { value });
            match tag {
                DT_SONAME => name = Some(value),
                DT_STRTAB => strings = address,
                DT_SYMTAB => symbols = address,
                DT_GNU_HASH => gnu_hashes = address,
                DT_HASH => hashes = address,
                _ => {}
            }
        }
        let hashes = gnu_hashes.map(Hashes::Gnu).or(hashes.map(Hashes::Sysv))?;
        Some(Self { base, path, name, strings: strings?, symbols: symbols?, hashes })
    }

    /// Base address, which is unique to an object that stays loaded.
    pub(crate) const fn base(&self) -> usize {
        self.base
    }

    /// Path with which the object was loaded. Valid until the object is unloaded.
    pub(crate) const fn path(&self) -> *const c_char {
        self.path
    }

    fn has_path(&self, path: &CStr) -> bool {
        // SAFETY: the loader's text ends with a zero.
        !self.path.is_null() && unsafe { CStr::from_ptr(self.path) } == path
    }

    /// Whether the object is linked to a library of this name (`DT_NEEDED`).
    ///
    /// # Safety
    /// The object's dynamic section is at this address.
    unsafe fn needs(&self, dynamic: usize, name: &CStr) -> bool {
        // SAFETY: the caller guarantees that the dynamic section is at this address.
        unsafe { entries(dynamic) }.any(|[tag, at]| tag == DT_NEEDED && self.string(at) == name)
    }

    /// Text at an offset among the strings.
    fn string(&self, at: usize) -> &CStr {
        // SAFETY: the strings have a zero-terminated text there.
        unsafe { CStr::from_ptr((self.strings + at) as *const c_char) }
    }

    fn is_named(&self, name: &CStr) -> bool {
        let own = self.name.is_some_and(|at| self.string(at) == name);
        own || self.file().is_some_and(|file| file == name.to_bytes())
    }

    fn file(&self) -> Option<&[u8]> {
        // SAFETY: the loader's text ends with a zero.
        let path = (!self.path.is_null()).then(|| unsafe { CStr::from_ptr(self.path) })?;
        path.to_bytes().rsplit(|byte| *byte == b'/').next()
    }

    /// Address of a symbol that the object defines; `None` if it does not, or as an indirect
    /// function.
    pub(crate) fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        let found = match self.hashes {
            // SAFETY: the table is of an object that is loaded.
            Hashes::Gnu(table) => unsafe { self.by_gnu_hash(table, name) },
            // SAFETY: the table is of an object that is loaded.
            Hashes::Sysv(table) => unsafe { self.by_hash(table, name) },
        };
        (!found.is_null()).then_some(found)
    }

    /// Symbol with a number.
    ///
    /// # Safety
    /// The object has a symbol with this number.
    unsafe fn symbol_at(&self, number: usize) -> Symbol {
        // SAFETY: the caller guarantees that the table has this entry.
        unsafe { at(self.symbols + number * size_of::<Symbol>()) }
    }

    /// Address of the symbol with a number, if it has this name and is defined by an address;
    /// otherwise null.
    ///
    /// # Safety
    /// The object has strings, and a symbol with this number.
    unsafe fn defined(&self, number: usize, name: &CStr) -> *mut c_void {
        // SAFETY: the caller guarantees that the object has a symbol with this number.
        let Symbol { name: at_name, info, section, value, .. } = unsafe { self.symbol_at(number) };
        let is_match = section != 0 && info & STT_MASK != STT_GNU_IFUNC && self.string(at_name as usize) == name;
        if is_match { self.base.wrapping_add(value) as *mut c_void } else { null_mut() }
    }

    /// Finds a symbol by the GNU hash table.
    ///
    /// # Safety
    /// The object has a hash table of this kind at this address.
    unsafe fn by_gnu_hash(&self, table: usize, name: &CStr) -> *mut c_void {
        // SAFETY: the table begins with four numbers.
        let [buckets, first, bloom_words, _] = unsafe { at::<[u32; 4]>(table) }.map(|number| number as usize);
        if buckets == 0 {
            return null_mut();
        }
        let hash = gnu_hash(name);
        let bucket_begin = table + 16 + bloom_words * 8;
        let chain_begin = bucket_begin + buckets * 4;
        // SAFETY: the table has a bucket for each remainder.
        let mut number = unsafe { at::<u32>(bucket_begin + hash as usize % buckets * 4) } as usize;
        if number < first {
            return null_mut();
        }
        loop {
            // SAFETY: the table has a hash for each symbol of the bucket; the last one's lowest bit
            // is set.
            let chained = unsafe { at::<u32>(chain_begin + (number - first) * 4) };
            if chained | 1 == hash | 1 {
                // SAFETY: the object has a symbol with this number.
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

    /// Finds a symbol by the hash table of the specification.
    ///
    /// # Safety
    /// The object has a hash table of this kind at this address.
    unsafe fn by_hash(&self, table: usize, name: &CStr) -> *mut c_void {
        // SAFETY: the table begins with two numbers.
        let [buckets, chained] = unsafe { at::<[u32; 2]>(table) }.map(|number| number as usize);
        if buckets == 0 {
            return null_mut();
        }
        let bucket_begin = table + 8;
        let chain_begin = bucket_begin + buckets * 4;
        // SAFETY: the table has a bucket for each remainder.
        let mut number = unsafe { at::<u32>(bucket_begin + hash(name) as usize % buckets * 4) } as usize;
        // Symbol 0 ends a chain.
        while number != 0 && number < chained {
            // SAFETY: a chain has only numbers of symbols.
            let found = unsafe { self.defined(number, name) };
            if !found.is_null() {
                return found;
            }
            // SAFETY: the table has the successor of each symbol in its chain.
            number = unsafe { at::<u32>(chain_begin + number * 4) } as usize;
        }
        null_mut()
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
            // Other symbols share its buckets.
            let other = |number| format!("int other{number}(void) {{ return {number}; }}\n");
            let others: String = (0..50).map(other).collect();
            fs::write(&source, format!("{others}int {}(void) {{ return 7; }}\n", name.to_str().unwrap())).unwrap();
            let mut compiler = Command::new("cc");
            let flags = ["-shared", "-fPIC", &format!("-Wl,--hash-style={style}"), "-o"];
            assert!(compiler.args(flags).args([&library, &source]).status().unwrap().success());
            let path = CString::new(library.to_str().unwrap()).unwrap();
            // SAFETY: the path ends with a zero; 2 is RTLD_NOW.
            assert!(!unsafe { dlopen(path.as_ptr(), 2) }.is_null());
            let own = symbols_are_found_by_either_hash_table as fn() as usize;
            let found = next_definition(own, name).unwrap();
            assert!(matches!(found, Next::After(_)));
            // SAFETY: the function has this type in the source above.
            let function: extern "C" fn() -> c_int = unsafe { core::mem::transmute(found.address()) };
            assert_eq!(function(), 7);
            assert_eq!(next_definition(own, c"uvmd_test_nothing"), None);
        }
    }

    #[test]
    fn handle_links_to_its_library_and_the_dependencies() {
        // SAFETY: the path ends with a zero; 2 is RTLD_NOW.
        let library = unsafe { dlopen(c"libm.so.6".as_ptr(), 2) };
        assert!(!library.is_null());
        for (handle, name, expected) in [
            (library, c"libm.so.6", true),
            (library, c"libc.so.6", true),
            (library, c"libcuda.so.1", false),
            (null_mut(), c"libc.so.6", false),
        ] {
            // SAFETY: the handle is null or open.
            assert_eq!(unsafe { links_to(handle, name) }, expected, "{name:?}");
        }
    }

    #[test]
    fn hashes_match_known_values() {
        assert_eq!((gnu_hash(c""), gnu_hash(c"printf")), (0x1505, 0x156b_2bb8));
        assert_eq!((hash(c""), hash(c"printf"), hash(c"syscall")), (0, 0x0779_05a6, 0x0b09_985c));
    }
}
