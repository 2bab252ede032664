//! What is done when this library is loaded, as a rule before the program begins.

use syscalls::filter;

use crate::{elf::Next, exports, libc, origin, permission, sandbox};

#[cfg_attr(not(feature = "injected"), expect(dead_code, reason = "called by the loader"))]
extern "C" fn at_load() {
    sandbox::find();
    libc::find_dlsym();
    let Some(dlsym) = libc::dlsym() else { return };
    // Where the C library comes after this one, the loader makes the process, in its first thread.
    // Elsewhere the program loads this library, whatever its thread.
    if !matches!(libc::next_dlsym(), Some(Next::After(_))) {
        return;
    }
    origin::set_first_thread(libc::own_thread(dlsym));
    if permission::admitted_filters(dlsym) > 0 {
        origin::set_filters(filter::count());
    }
    // A program that is linked to the driver may forbid anything before it first calls it.
    exports::prepare();
}

/// Before the program begins, and has threads.
#[cfg(feature = "injected")]
#[expect(unsafe_code, reason = "a section that the loader reads")]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
