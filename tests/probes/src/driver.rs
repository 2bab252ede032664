//! Functions that replace the driver's. They exist only to be probed.
#![expect(unsafe_code, reason = "functions in assembly")]

/// Each starts with a five-byte NOP, which the kernel can probe without a trap.
macro_rules! functions {
    ($($symbol:literal: $body:literal,)+) => {
        std::arch::global_asm!(
            ".pushsection .text",
            $(
                concat!(".globl ", $symbol),
                concat!(".type ", $symbol, ", @function"),
                concat!($symbol, ":"),
                ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                $body,
                concat!(".size ", $symbol, ", . - ", $symbol),
            )+
            ".popsection",
        );
    };
}

// Functions with a callback call their last argument but one with their last.
functions! {
    "fake_event_notify": "ret",
    "fake_mm_register": "ret",
    "fake_replay": "ret",
    "fake_thrashing": "ret",
    "fake_throttle": "ret",
    "fake_throttled": "ret",
    "fake_map_remote": "ret",
    "fake_evict": "ret",
    "fake_fatal_error": "ret",
    "fake_set_preferred_location": "ret",
    "fake_discard": "ret",
    "fake_destroy": "sub rsp, 8\n mov rdi, rdx\n call rsi\n add rsp, 8\n ret",
    "fake_migrate": "sub rsp, 8\n mov rdi, rcx\n call rdx\n add rsp, 8\n ret",
    "fake_alloc_pages": "sub rsp, 8\n mov rdi, rdx\n call rsi\n add rsp, 8\n ret",
    "fake_alloc_range": "sub rsp, 8\n mov rdi, rdx\n call rsi\n add rsp, 8\n ret",
    "fake_handler": "sub rsp, 8\n mov rdi, rdx\n call rsi\n add rsp, 8\n ret",
    // Callback and argument are the fifth and sixth argument, and the seventh is the return value.
    "fake_split": "sub rsp, 8\n mov rdi, r9\n call r8\n mov eax, [rsp + 16]\n add rsp, 8\n ret",
    // Callback and argument are the ninth and tenth argument, and the eleventh is the return value.
    "fake_resident": "sub rsp, 8\n mov rdi, [rsp + 40]\n call [rsp + 32]\n mov eax, [rsp + 48]\n add rsp, 8\n ret",
    "fake_duplicate": "sub rsp, 8\n mov rdi, [rsp + 40]\n call [rsp + 32]\n mov eax, [rsp + 48]\n add rsp, 8\n ret",
}

/// Callback behind a thin pointer.
type Meanwhile<'a> = Option<Box<dyn FnOnce() + 'a>>;

type Callback = extern "C" fn(&mut Meanwhile<'_>);
/// Arguments of making a block resident, then the callback and the return value.
type Resident = unsafe extern "C" fn(u64, u64, u64, u32, u32, u64, u64, u64, Callback, &mut Meanwhile<'_>, u64) -> u32;

#[expect(improper_ctypes, reason = "what is called hands the pointer on, to Rust again")]
unsafe extern "C" {
    fn fake_event_notify(events: u64, event: u32, data: u64);
    fn fake_mm_register(va_space: u64);
    fn fake_destroy(va_space: u64, call: Callback, argument: &mut Meanwhile<'_>);
    fn fake_handler(gpu: u64, call: Callback, argument: &mut Meanwhile<'_>);
    fn fake_replay(gpu: u64, push: u64, batch: u32, client: u32);
    fn fake_thrashing(va_space: u64, address: u64, bytes: u64, processors: u64);
    fn fake_throttle(va_space: u64, address: u64, processor: u32);
    fn fake_throttled(va_space: u64, address: u64, processor: u32);
    fn fake_map_remote(block: u64, push: u64, processor: u32, residency: u32, address: u64, bytes: u64, cause: u32);
    fn fake_evict(block: u64, gpu: u64, chunk: u64, tracker: u64);
    fn fake_fatal_error(status: u32);
    fn fake_migrate(parameters: u64, file: u64, call: Callback, argument: &mut Meanwhile<'_>);
    fn fake_alloc_pages(pmm: u64, call: Callback, argument: &mut Meanwhile<'_>);
    fn fake_alloc_range(pmm: u64, call: Callback, argument: &mut Meanwhile<'_>);
    fn fake_set_preferred_location(parameters: u64, file: u64);
    fn fake_discard(parameters: u64, file: u64);
    fn fake_split(
        block: u64,
        end: u64,
        other: u64,
        range: u64,
        call: Callback,
        argument: &mut Meanwhile<'_>,
        status: u64,
    ) -> u32;
    fn fake_resident(
        block: u64,
        retry: u64,
        context: u64,
        destination: u32,
        region: u32,
        mask: u64,
        prefetch: u64,
        cause: u64,
        call: Callback,
        argument: &mut Meanwhile<'_>,
        status: u64,
    ) -> u32;
    fn fake_duplicate(
        block: u64,
        retry: u64,
        context: u64,
        destination: u32,
        region: u32,
        mask: u64,
        prefetch: u64,
        cause: u64,
        call: Callback,
        argument: &mut Meanwhile<'_>,
        status: u64,
    ) -> u32;
}

extern "C" fn call(meanwhile: &mut Meanwhile<'_>) {
    if let Some(meanwhile) = meanwhile.take() {
        meanwhile();
    }
}

/// `uvm_perf_event_notify(events, event, data)`, with pointers as numbers: only the kernel
/// follows them, with checks.
pub fn event_notify(events: u64, event: u32, data: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_event_notify(events, event, data) }
}

/// `uvm_va_space_mm_register(va_space)`
pub fn mm_register(va_space: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_mm_register(va_space) }
}

/// `uvm_va_space_destroy(va_space)`, with a callback before it returns.
pub fn destroy(va_space: u64, meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    // SAFETY: the function calls `call` with `meanwhile` once, and touches nothing else.
    unsafe { fake_destroy(va_space, call, &mut meanwhile) }
}

/// `uvm_gpu_service_replayable_faults(gpu)`, with a callback before it returns.
pub fn service_faults(meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    // SAFETY: the function calls `call` with `meanwhile` once, and touches nothing else.
    unsafe { fake_handler(0, call, &mut meanwhile) }
}

/// `uvm_tools_broadcast_replay(gpu, push, batch, client)`
pub fn broadcast_replay(gpu: u64, batch: u32) {
    // SAFETY: the function touches nothing.
    unsafe { fake_replay(gpu, 0, batch, 0) }
}

/// `uvm_tools_record_thrashing(va_space, address, bytes, processors)`
pub fn record_thrashing(va_space: u64, address: u64, bytes: u64, processors: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_thrashing(va_space, address, bytes, processors) }
}

/// `uvm_tools_record_throttling_start(va_space, address, processor)`
pub fn record_throttling_start(va_space: u64, address: u64, processor: u32) {
    // SAFETY: the function touches nothing.
    unsafe { fake_throttle(va_space, address, processor) }
}

/// `uvm_tools_record_throttling_end(va_space, address, processor)`
pub fn record_throttling_end(va_space: u64, address: u64, processor: u32) {
    // SAFETY: the function touches nothing.
    unsafe { fake_throttled(va_space, address, processor) }
}

/// `uvm_tools_record_map_remote(block, push, processor, residency, address, bytes, cause)`
pub fn record_map_remote(block: u64, processor: u32, bytes: u64, cause: u32) {
    // SAFETY: the function touches nothing.
    unsafe { fake_map_remote(block, 0, processor, 0, 0x7f00_0020_0000, bytes, cause) }
}

/// `uvm_va_block_evict_chunks(block, gpu, chunk, tracker)`
pub fn evict_chunks(block: u64, gpu: u64) {
    // SAFETY: the function touches nothing.
    unsafe { fake_evict(block, gpu, 0, 0) }
}

/// `uvm_global_set_fatal_error_impl(status)`
pub fn set_fatal_error(status: u32) {
    // SAFETY: the function touches nothing.
    unsafe { fake_fatal_error(status) }
}

/// Call of a process.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// `uvm_api_migrate(parameters, file)`
    Migrate,
    /// `uvm_api_set_preferred_location(parameters, file)`
    SetPreferredLocation,
    /// `uvm_api_discard(parameters, file)`
    Discard,
}

/// Makes a call of this process.
pub fn call_api(request: Call, parameters: u64, file: u64) {
    let function = match request {
        Call::Migrate => return migrate(parameters, file, || {}),
        Call::SetPreferredLocation => fake_set_preferred_location,
        Call::Discard => fake_discard,
    };
    // SAFETY: the functions touch nothing.
    unsafe { function(parameters, file) }
}

/// `uvm_api_migrate(parameters, file)`, with a callback before it returns.
pub fn migrate(parameters: u64, file: u64, meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    // SAFETY: the function calls `call` with `meanwhile` once, and touches nothing else.
    unsafe { fake_migrate(parameters, file, call, &mut meanwhile) }
}

/// Unmanaged allocation that finds no free memory: `uvm_pmm_gpu_pma_evict_pages_wrapper_entry(pmm,
/// ...)`, or `_range_` for a certain range, with a callback before it returns.
pub fn allocate(of_range: bool, meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    let function = if of_range { fake_alloc_range } else { fake_alloc_pages };
    // SAFETY: the functions call `call` with `meanwhile` once, and touch nothing else.
    unsafe { function(0, call, &mut meanwhile) }
}

/// Relevant arguments of `uvm_va_block_make_resident_copy` and `_read_duplicate`.
#[derive(Clone, Copy, Debug)]
pub struct MakeResident {
    /// Address of the block.
    pub block: u64,
    /// Processor id.
    pub destination: u32,
    /// First page.
    pub first: u16,
    /// Page after the last.
    pub outer: u16,
    /// Address of the page mask; 0 for all of the region.
    pub mask: u64,
    /// `uvm_make_resident_cause_t`
    pub cause: u32,
    /// Whether it is an additional copy.
    pub is_duplicate: bool,
    /// Returned `NV_STATUS`.
    pub status: u32,
}

/// Makes a block resident, with a callback before it returns.
pub fn make_resident(request: &MakeResident, meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    let function: Resident = if request.is_duplicate { fake_duplicate } else { fake_resident };
    let region = u32::from(request.first) | u32::from(request.outer) << 16;
    let MakeResident { block, destination, mask, cause, status, .. } = *request;
    // SAFETY: the functions call `call` with `meanwhile` once, and touch nothing else.
    let returned = unsafe {
        function(block, 0, 0, destination, region, mask, 0, cause.into(), call, &mut meanwhile, status.into())
    };
    assert_eq!(returned, status);
}

/// `uvm_va_block_split(block, end, other, range)`, with a callback before it returns a status.
/// `other`: address of the new block's pointer.
pub fn split(block: u64, other: &u64, status: u32, meanwhile: impl FnOnce()) {
    let mut meanwhile: Meanwhile<'_> = Some(Box::new(meanwhile));
    let other = std::ptr::from_ref(other) as u64;
    // SAFETY: the function calls `call` with `meanwhile` once, and touches nothing else.
    let returned = unsafe { fake_split(block, 0, other, 0, call, &mut meanwhile, status.into()) };
    assert_eq!(returned, status);
}

/// Address of each function by the driver's name.
pub fn address(function: &str) -> Option<u64> {
    let function: *const () = match function {
        "uvm_perf_event_notify" => fake_event_notify as *const (),
        "uvm_va_space_mm_register" => fake_mm_register as *const (),
        "uvm_va_space_destroy" => fake_destroy as *const (),
        "uvm_gpu_service_replayable_faults" => fake_handler as *const (),
        "uvm_tools_broadcast_replay" => fake_replay as *const (),
        "uvm_tools_record_thrashing" => fake_thrashing as *const (),
        "uvm_tools_record_throttling_start" => fake_throttle as *const (),
        "uvm_tools_record_throttling_end" => fake_throttled as *const (),
        "uvm_tools_record_map_remote" => fake_map_remote as *const (),
        "uvm_va_block_evict_chunks" => fake_evict as *const (),
        "uvm_global_set_fatal_error_impl" => fake_fatal_error as *const (),
        "uvm_va_block_make_resident_copy" => fake_resident as *const (),
        "uvm_va_block_make_resident_read_duplicate" => fake_duplicate as *const (),
        "uvm_va_block_split" => fake_split as *const (),
        "uvm_pmm_gpu_pma_evict_pages_wrapper_entry" => fake_alloc_pages as *const (),
        "uvm_pmm_gpu_pma_evict_range_wrapper_entry" => fake_alloc_range as *const (),
        "uvm_api_migrate" => fake_migrate as *const (),
        "uvm_api_set_preferred_location" => fake_set_preferred_location as *const (),
        "uvm_api_discard" => fake_discard as *const (),
        _ => return None,
    };
    Some(function as u64)
}
