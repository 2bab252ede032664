//! Argument registers of a function, around a call that is made before the function begins.

/// Saves all integer argument registers, and aligns the stack for a call. Vector registers are not
/// saved, as none of the functions has a vector argument.
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

/// Restores the registers from [`save`].
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
