//! System calls for both stages of the helper, without the C library: `errno` is left unchanged.
//!
//! * [`file`], [`text`]: text files of the kernel, and numbers in them
//! * [`filter`]: number of system call filters (seccomp)
//! * [`futex`]: wait and wake-up by futex

#![cfg_attr(not(test), no_std)]
#![cfg(target_arch = "x86_64")]

pub mod file;
pub mod filter;
pub mod futex;
pub mod text;

use core::arch::asm;

/// Error number of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Makes the system call with this number.
///
/// # Errors
/// The error number that the kernel returns.
///
/// # Safety
/// The arguments are valid for this system call.
#[expect(unsafe_code, reason = "a system call")]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the kernel changes only rax, rcx and r11; the caller guarantees that the arguments are
    // valid.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match result {
        -4095..0 => Err(Errno(i32::try_from(-result).unwrap_or(0))),
        _ => Ok(result.cast_unsigned()),
    }
}
