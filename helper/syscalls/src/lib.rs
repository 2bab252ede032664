//! System calls that the helper makes directly, in both of its stages: they leave `errno` alone, and
//! need no function of a C library.
//!
//! * [`file`], [`text`]: texts of the kernel's, and numbers in them
//! * [`filter`]: filters of system calls, which may end the process for one of them
//! * [`futex`]: waits at words

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

/// Makes the system call of a number.
///
/// # Errors
/// Of the kernel.
///
/// # Safety
/// As the call with this number demands of its arguments.
#[expect(unsafe_code, reason = "a system call")]
pub unsafe fn call(number: usize, arguments: [usize; 6]) -> Result<usize, Errno> {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the kernel changes rax, rcx and r11 alone; the rest is the caller's promise.
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
