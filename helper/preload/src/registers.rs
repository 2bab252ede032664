//! Registers of a function's arguments around a call that is made before the function itself begins.

/// Saves all registers of integer arguments, and aligns the stack for a call. Registers of vectors are not
/// saved: none of the functions has such an argument.
macro_rules! save {
    () => {
        "push rdi
        push rsi
        push rdx
        push rcx
        push r8
        push r9
        sub rsp, 8"
    };
}

/// Restores what [`save`] has saved.
macro_rules! restore {
    () => {
        "add rsp, 8
        pop r9
        pop r8
        pop rcx
        pop rdx
        pop rsi
        pop rdi"
    };
}

pub(crate) use {restore, save};
