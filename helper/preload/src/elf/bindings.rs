//! Bindings of loaded objects: slots that hold the addresses of other objects' functions. The
//! loader fills them from the relocation tables, when it loads the object or at the first call.

use core::{
    ffi::{CStr, c_void},
    ops::Range,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{LinkMap, Object, PhdrInfo, Symbol, at, entries, search};

/// Tags of the dynamic section.
const DT_PLTRELSZ: usize = 2;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
/// Kind of `ProgramHeader`: a range that is read-only after relocation.
const PT_GNU_RELRO: u32 = 0x6474_e552;
/// Relocations that fill a slot with the address of a symbol.
const R_X86_64_64: u32 = 1;
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;
const PAGE_BYTES: usize = 4096;

/// `Elf64_Rela`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Relocation {
    offset: usize,
    kind: u32,
    symbol: u32,
    addend: i64,
}

/// Content of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binding {
    /// The first call resolves the symbol.
    Lazy,
    /// Address of the function.
    To(usize),
}

/// Rebinds the undefined symbols of a handle's library, and of the libraries that were loaded after
/// it if `is_relocated` is true of their base address. `replacement` returns the address to bind a
/// symbol to; `None` leaves it.
///
/// # Safety
/// The handle was returned by `dlopen` and is not closed. A replacement has the symbol's type.
pub(crate) unsafe fn rebind(
    handle: *mut c_void,
    is_relocated: impl Fn(*mut c_void) -> bool,
    replacement: impl Fn(&CStr, Binding) -> Option<usize>,
) {
    // SAFETY: the caller guarantees that the handle is open.
    let Some(library) = (unsafe { handle.cast::<LinkMap>().as_ref() }) else { return };
    let mut is_reached = false;
    search::<(), _>(|info| {
        let is_library = info.base == library.base && info.dynamic() == Some(library.dynamic);
        is_reached |= is_library;
        if is_library || (is_reached && is_relocated(info.base as *mut c_void)) {
            info.rebind(&replacement);
        }
        None
    });
}

impl PhdrInfo {
    fn rebind(&self, replacement: &impl Fn(&CStr, Binding) -> Option<usize>) {
        let (Some(object), Some(dynamic)) = (self.object(), self.dynamic()) else { return };
        let [mut plt, mut plt_bytes, mut others, mut others_bytes] = [0; 4];
        // SAFETY: the object is loaded, and this is its dynamic section.
        for [tag, value] in unsafe { entries(dynamic) } {
            match tag {
                DT_JMPREL => plt = value,
                DT_PLTRELSZ => plt_bytes = value,
                DT_RELA => others = value,
                DT_RELASZ => others_bytes = value,
                _ => {}
            }
        }
        for (table, bytes) in [(plt, plt_bytes), (others, others_bytes)] {
            // The loader has added the base to addresses, except in read-only dynamic sections.
            let table = if table < self.base { table.wrapping_add(self.base) } else { table };
            for number in 0..bytes / size_of::<Relocation>() {
                // SAFETY: the table has this number of relocations.
                let relocation = unsafe { at::<Relocation>(table + number * size_of::<Relocation>()) };
                self.rebind_slot(&object, relocation, replacement);
            }
        }
    }

    fn rebind_slot(
        &self,
        object: &Object,
        Relocation { offset, kind, symbol, addend }: Relocation,
        replacement: &impl Fn(&CStr, Binding) -> Option<usize>,
    ) {
        if !matches!(kind, R_X86_64_64 | R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) || symbol == 0 || addend != 0 {
            return;
        }
        // SAFETY: a relocation has the number of one of the object's symbols.
        let Symbol { name, section, .. } = unsafe { object.symbol_at(symbol as usize) };
        if section != 0 {
            return;
        }
        let slot = self.base.wrapping_add(offset);
        // SAFETY: the object is relocated, so it has a slot there.
        let value = unsafe { at::<usize>(slot) };
        let binding = if self.contains(value) { Binding::Lazy } else { Binding::To(value) };
        if let Some(address) = replacement(object.string(name as usize), binding) {
            self.write_slot(slot, address);
        }
    }

    fn write_slot(&self, slot: usize, address: usize) {
        let read_only = self.read_only().filter(|pages| pages.contains(&slot));
        if read_only.as_ref().is_some_and(|pages| !protect(pages, READ | WRITE)) {
            return;
        }
        // SAFETY: the slot is a word of the object, aligned, and now writable. Other threads may call
        // through it meanwhile, with either address.
        let word = unsafe { AtomicUsize::from_ptr(slot as *mut usize) };
        word.store(address, Ordering::Release);
        if let Some(pages) = read_only {
            protect(&pages, READ);
        }
    }

    /// Whole pages that the loader has made read-only after relocation.
    fn read_only(&self) -> Option<Range<usize>> {
        let header = self.headers().find(|header| header.kind == PT_GNU_RELRO)?;
        let begin = self.begin(header);
        Some(begin & !(PAGE_BYTES - 1)..begin.wrapping_add(header.bytes) & !(PAGE_BYTES - 1))
    }
}

/// Protection of pages: `PROT_READ`, `PROT_WRITE`.
const READ: usize = 1;
const WRITE: usize = 2;

/// Sets the protection of pages. Returns whether the kernel has done so.
fn protect(pages: &Range<usize>, protection: usize) -> bool {
    const MPROTECT: usize = 10;
    let arguments = [pages.start, pages.end.saturating_sub(pages.start), protection, 0, 0, 0];
    // SAFETY: the pages are data of a loaded object, and stay readable.
    unsafe { syscalls::call(MPROTECT, arguments) }.is_ok()
}
