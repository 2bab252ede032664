// What the compiler demands of a library without the standard one. Part of both stages.

unsafe extern "C" {
    fn uvmd_helper_cannot_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached.
    unsafe { uvmd_helper_cannot_panic() }
}
