//! Invocations of the probes: arguments and results of the driver's functions, for both attachments.
//!
//! A kprobe gets the registers, and fentry an array of arguments. Each program is both: the
//! attachment is a constant, so that the verifier skips the code for the other one, whose accesses
//! and helpers it would reject.

use core::mem::MaybeUninit;

use abi::{
    Probe,
    attachment::{PREEMPT_DISABLE, PREEMPT_ENABLE},
};
use aya_ebpf::{
    bindings::pt_regs,
    helpers::generated,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    maps::hit,
    memory::{Unreadable, driver},
};

/// 1 if the programs are attached by fentry and fexit. The loader fills it in before they are
/// verified.
#[unsafe(no_mangle)]
pub static IS_FENTRY: u32 = 0;

#[inline(always)]
fn is_fentry() -> bool {
    let is_fentry = &raw const IS_FENTRY;
    // SAFETY: a static that nothing writes while programs run. Volatile, as the loader fills it in.
    unsafe { is_fentry.read_volatile() == 1 }
}

/// Invocation of a program. Until its drop, no other one runs on this CPU: kprobes are not preempted by
/// themselves.
pub struct Invocation(());

impl Invocation {
    /// Begins an invocation, and counts it.
    #[inline(always)]
    pub fn of(probe: Probe) -> Self {
        if is_fentry() {
            call::<PREEMPT_DISABLE>();
        }
        hit(probe);
        Self(())
    }
}

impl Drop for Invocation {
    #[inline(always)]
    fn drop(&mut self) {
        if is_fentry() {
            call::<PREEMPT_ENABLE>();
        }
    }
}

/// Calls a function of the kernel, in whose place the programs have a number: the loader puts its
/// type id there.
#[inline(always)]
fn call<const FUNCTION: usize>() {
    // SAFETY: not an address: calls of numbers are the instructions that the loader looks for.
    let function: unsafe extern "C" fn() = unsafe { core::mem::transmute(FUNCTION) };
    // SAFETY: a function without arguments. The verifier checks that each disable has its enable.
    unsafe { function() };
}

/// Integer in a register, of which only as many bits are defined as the integer has.
pub trait Register {
    /// Lowest bits of the register.
    fn of(register: u64) -> Self;
}

impl Register for u32 {
    #[inline(always)]
    fn of(register: u64) -> Self {
        register as Self
    }
}

impl Register for u64 {
    #[inline(always)]
    fn of(register: u64) -> Self {
        register
    }
}

/// Argument, counted from 0, of the function just entered.
#[inline(always)]
pub fn argument<T: Register>(ctx: &ProbeContext, n: u32) -> Result<T, Unreadable> {
    if !is_fentry() {
        return register(ctx.regs, n).map(T::of);
    }
    let mut value = MaybeUninit::<u64>::zeroed();
    // SAFETY: the kernel's context, and a place for the value. By this helper, as a direct access
    // would have the argument's type, whose use as a number the verifier restricts.
    let status = unsafe { generated::bpf_get_func_arg(ctx.regs.cast(), n, value.as_mut_ptr()) };
    // SAFETY: zeroed, then filled with an integer.
    if status == 0 { Ok(T::of(unsafe { value.assume_init() })) } else { Err(Unreadable) }
}

/// Argument in the registers at a function's entry. Volatile, or the compiler might move the access
/// to where the attachment is another one.
#[inline(always)]
#[cfg(bpf_target_arch = "x86_64")]
fn register(registers: *mut pt_regs, n: u32) -> Result<u64, Unreadable> {
    macro_rules! read {
        ($field:ident) => {{
            // SAFETY: the kernel passes the registers.
            let field = unsafe { &raw const (*registers).$field };
            // SAFETY: one of them.
            unsafe { field.read_volatile() }
        }};
    }
    Ok(match n {
        0 => read!(rdi),
        1 => read!(rsi),
        2 => read!(rdx),
        3 => read!(rcx),
        4 => read!(r8),
        5 => read!(r9),
        // On the stack: the return address, then these arguments, 8 bytes each.
        _ => driver(read!(rsp).wrapping_add(8 + u64::from(n - 6) * 8))?,
    })
}

/// Argument in the registers at a function's entry, as above.
#[inline(always)]
#[cfg(bpf_target_arch = "aarch64")]
fn register(registers: *mut pt_regs, n: u32) -> Result<u64, Unreadable> {
    if n > 7 {
        return Err(Unreadable);
    }
    // SAFETY: the kernel passes the registers, of which the first eight have arguments.
    let field = unsafe { &raw const (*registers).regs[n as usize] };
    // SAFETY: one of them.
    Ok(unsafe { field.read_volatile() })
}

/// Result of a function that returns an `NV_STATUS`.
#[inline(always)]
pub fn status(ctx: &RetProbeContext) -> Result<u32, Unreadable> {
    if !is_fentry() {
        #[cfg(bpf_target_arch = "x86_64")]
        // SAFETY: the kernel passes the registers.
        let field = unsafe { &raw const (*ctx.regs).rax };
        #[cfg(bpf_target_arch = "aarch64")]
        // SAFETY: the kernel passes the registers.
        let field = unsafe { &raw const (*ctx.regs).regs[0] };
        // SAFETY: one of them. Volatile, as above.
        return Ok(u32::of(unsafe { field.read_volatile() }));
    }
    let mut value = MaybeUninit::<u64>::zeroed();
    // SAFETY: the kernel's context, and a place for the value.
    let status = unsafe { generated::bpf_get_func_ret(ctx.regs.cast(), value.as_mut_ptr()) };
    // SAFETY: zeroed, then filled with an integer.
    if status == 0 { Ok(u32::of(unsafe { value.assume_init() })) } else { Err(Unreadable) }
}
