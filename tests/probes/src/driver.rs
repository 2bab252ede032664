//! Functions that stand for the driver's. They do nothing but be there to be probed.
#![expect(unsafe_code, reason = "functions in assembly")]

// Each begins with a five-byte NOP, which the kernel can probe without a trap of its own.
std::arch::global_asm!(
    ".pushsection .text",
    ".globl fake_event_notify",
    ".type fake_event_notify, @function",
    "fake_event_notify:",
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".globl fake_mm_register",
    ".type fake_mm_register, @function",
    "fake_mm_register:",
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "ret",
    ".globl fake_destroy",
    ".type fake_destroy, @function",
    "fake_destroy:",
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    // What the driver still serves while it destroys: call the second argument with the third.
    "sub rsp, 8",
    "mov rdi, rdx",
    "call rsi",
    "add rsp, 8",
    "ret",
    ".popsection",
);

/// Something to do, behind a thin pointer.
type Meanwhile<'a> = Option<Box<dyn FnOnce() + 'a>>;

#[expect(improper_ctypes, reason = "what is called hands the pointer on, to Rust again")]
unsafe extern "C" {
    fn fake_event_notify(events: u64, event: u32, data: u64);
    fn fake_mm_register(va_space: u64);
    fn fake_destroy(va_space: u64, call: extern "C" fn(&mut Meanwhile<'_>), argument: &mut Meanwhile<'_>);
}

/// `uvm_perf_event_notify(events, event, data)`, with pointers as numbers: they are only ever looked at by the kernel, which checks them.
pub fn event_notify(events: u64, event: u32, data: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_event_notify(events, event, data) }
}

/// `uvm_va_space_mm_register(va_space)`
pub fn mm_register(va_space: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_mm_register(va_space) }
}

/// `uvm_va_space_destroy(va_space)`, with something that happens before it returns.
pub fn destroy(va_space: u64, meanwhile: impl FnOnce()) {
    extern "C" fn call(meanwhile: &mut Meanwhile<'_>) {
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
    }
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    // SAFETY: the function calls `call` with `meanwhile` once, and touches nothing else.
    unsafe { fake_destroy(va_space, call, &mut meanwhile) }
}

/// Address of each function by the driver's name for it.
pub fn address(function: &str) -> Option<u64> {
    let function: *const () = match function {
        "uvm_perf_event_notify" => fake_event_notify as *const (),
        "uvm_va_space_mm_register" => fake_mm_register as *const (),
        "uvm_va_space_destroy" => fake_destroy as *const (),
        _ => return None,
    };
    Some(function as u64)
}
