//! What the compiler demands of a library without the standard one.

#![expect(unsafe_code, reason = "a symbol that nobody has: no panic is reachable, or the build says so")]

unsafe extern "C" {
    fn uvmd_helper_cannot_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached.
    unsafe { uvmd_helper_cannot_panic() }
}
