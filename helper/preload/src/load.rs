//! Initialisation of this library, normally before the program begins.
//!
//! The loader's lock is taken only here, in `dlsym`, in `uvmd_malloc`, and for a driver call by a
//! constructor that runs before this initialisation. No other driver call may take it: `dlopen` and
//! `dlclose` hold it while constructors and destructors run, which may wait for a thread that calls
//! the driver.

use crate::{elf::Next, exports, interposed::DLSYM, libc, sandbox, second_stage, startup};

#[cfg_attr(not(feature = "injected"), expect(dead_code, reason = "called by the loader"))]
extern "C" fn initialise() {
    sandbox::find();
    DLSYM.find();
    libc::find_dl_find_object();
    // If the C library comes after this one, the loader is creating the process, in its first
    // thread. Otherwise the program loads this library, in any thread.
    let is_process_new = matches!(DLSYM.definition(), Some(Next::After(_)));
    if is_process_new {
        startup::set_first_thread(libc::current_thread());
    }
    second_stage::load(is_process_new);
    // A program that is linked to the driver may install filters before its first driver call.
    if is_process_new {
        exports::prepare_process();
    } else {
        exports::prepare();
    }
}

/// Runs before the program begins, and before it has threads.
#[cfg(feature = "injected")]
#[expect(unsafe_code, reason = "a section that the loader reads")]
#[used]
#[unsafe(link_section = ".init_array")]
static INITIALISE: extern "C" fn() = initialise;
