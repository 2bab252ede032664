// Panic handler, which a library without the standard library needs. Included in both stages.

unsafe extern "C" {
    fn uvmd_helper_cannot_panic() -> !;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: never reached, as the build fails if a panic is reachable.
    unsafe { uvmd_helper_cannot_panic() }
}
