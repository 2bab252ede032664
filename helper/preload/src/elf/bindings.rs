//! Bindings of loaded objects: slots that hold the addresses of other objects' functions. The
//! loader fills them from the relocation tables, when it loads the object or at the first call.

use core::{
    ffi::{CStr, c_void},
    ops::Range,
    ptr::null,
    sync::atomic::{AtomicUsize, Ordering},
};

use super::{DT_NEEDED, LinkMap, Object, PT_LOAD, PhdrInfo, Symbol, at, entries, search};

/// Tags of the dynamic section.
const DT_PLTRELSZ: usize = 2;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
/// Kind of `ProgramHeader`: a range that is read-only after relocation.
const PT_GNU_RELRO: u32 = 0x6474_e552;
/// Flag of `ProgramHeader`: the segment is writable.
const PF_W: u32 = 2;
/// Relocations of slots that only calls read. Pointers in data (`R_X86_64_64`) are the program's,
/// which may have made them read-only.
const R_X86_64_GLOB_DAT: u32 = 6;
const R_X86_64_JUMP_SLOT: u32 = 7;
const PAGE_BYTES: usize = 4096;
/// Limit of the objects that are rebound at a time.
const OBJECTS_MAX: usize = 64;

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

/// Rebinds the undefined symbols of a handle's library, and of the libraries behind it in the list
/// that it is linked to, also through others. `replacement` returns the address to bind a symbol to;
/// `None` leaves it. It runs under the lock of the loader's list, and must take no other lock of the
/// loader.
///
/// # Safety
/// The handle was returned by `dlopen` and is not closed. A replacement has the symbol's type.
pub(crate) unsafe fn rebind(handle: *mut c_void, replacement: impl Fn(&CStr, Binding) -> Option<usize>) {
    // SAFETY: the caller guarantees that the handle is open.
    let Some(library) = (unsafe { handle.cast::<LinkMap>().as_ref() }) else { return };
    let mut rebound = Rebound { objects: [(0, 0); OBJECTS_MAX], count: 0 };
    // The loader has relocated all of them: its lock is held until then. Each comes before those
    // that it is linked to, unless another library had loaded these.
    search::<(), _>(|info| {
        let (object, dynamic) = (info.object()?, info.dynamic()?);
        let is_library = info.base == library.base && dynamic == library.dynamic;
        if (is_library || rebound.needs(&object)) && rebound.add(info.base, dynamic) {
            info.rebind(&object, dynamic, &replacement);
        }
        None
    });
}

/// Objects that are rebound: their base addresses and dynamic sections.
struct Rebound {
    objects: [(usize, usize); OBJECTS_MAX],
    count: usize,
}

impl Rebound {
    /// Whether one of them is linked to a library.
    fn needs(&self, library: &Object) -> bool {
        self.objects.iter().take(self.count).any(|(base, dynamic)| {
            // SAFETY: the object was found in the list of the loader, which stays locked.
            let object = unsafe { Object::new(*base, *dynamic, null()) };
            // SAFETY: as above, its dynamic section is there.
            let mut needed = unsafe { entries(*dynamic) }.filter(|[tag, _]| *tag == DT_NEEDED);
            object.is_some_and(|object| needed.any(|[_, name]| library.is_named(object.string(name))))
        })
    }

    /// Adds an object; false at the limit.
    fn add(&mut self, base: usize, dynamic: usize) -> bool {
        let slot = self.objects.get_mut(self.count);
        self.count += usize::from(slot.is_some());
        slot.is_some_and(|slot| {
            *slot = (base, dynamic);
            true
        })
    }
}

impl PhdrInfo {
    fn rebind(&self, object: &Object, dynamic: usize, replacement: &impl Fn(&CStr, Binding) -> Option<usize>) {
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
                self.rebind_slot(object, relocation, replacement);
            }
        }
    }

    fn rebind_slot(
        &self,
        object: &Object,
        Relocation { offset, kind, symbol, addend }: Relocation,
        replacement: &impl Fn(&CStr, Binding) -> Option<usize>,
    ) {
        let slot = self.base.wrapping_add(offset);
        let is_slot = matches!(kind, R_X86_64_GLOB_DAT | R_X86_64_JUMP_SLOT) && self.is_writable(slot);
        if !is_slot || symbol == 0 || addend != 0 || slot % align_of::<usize>() != 0 {
            return;
        }
        // SAFETY: a relocation has the number of one of the object's symbols.
        let Symbol { name, section, .. } = unsafe { object.symbol_at(symbol as usize) };
        if section != 0 {
            return;
        }
        // SAFETY: the object is relocated, so it has a slot there.
        let value = unsafe { at::<usize>(slot) };
        let binding = if self.contains(value) { Binding::Lazy } else { Binding::To(value) };
        if let Some(address) = replacement(object.string(name as usize), binding) {
            self.write_slot(slot, value, address);
        }
    }

    /// Whether an address is in a segment that is writable until relocation.
    fn is_writable(&self, address: usize) -> bool {
        self.headers().any(|header| {
            header.kind == PT_LOAD
                && header.flags & PF_W != 0
                && address.wrapping_sub(self.begin(header)) < header.bytes
        })
    }

    /// Replaces the value of a slot, unless the loader has resolved it meanwhile, for a call of
    /// another thread.
    fn write_slot(&self, slot: usize, value: usize, address: usize) {
        let read_only = self.read_only().filter(|pages| pages.contains(&slot));
        if read_only.as_ref().is_some_and(|pages| !protect(pages, READ | WRITE)) {
            return;
        }
        // SAFETY: the slot is an aligned word of the object, and writable: the loader leaves pages
        // other than those writable. Threads may call through it meanwhile, by either address.
        let word = unsafe { AtomicUsize::from_ptr(slot as *mut usize) };
        let _ = word.compare_exchange(value, address, Ordering::Release, Ordering::Relaxed);
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
