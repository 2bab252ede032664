//! Driver calls by the helper itself.

#![expect(unsafe_code, reason = "calls the driver")]

use core::ffi::c_void;

use crate::{
    cuda::{CuResult, Handle, Location},
    parameters::Parameter,
    real::{Real, driver_functions},
};

driver_functions! {
    fn cuCtxFromGreenCtx(context: *mut Handle, green: Handle);
    fn cuCtxGetCurrent(context: *mut Handle);
    fn cuCtxGetDevice(device: *mut i32);
    fn cuCtxGetDevice_v2(device: *mut i32, context: Handle);
    fn cuCtxSetCurrent(context: Handle);
    fn cuDeviceGetAttribute(value: *mut i32, attribute: u32, device: i32);
    fn cuDeviceGet(device: *mut i32, ordinal: i32);
    fn cuDeviceGetCount(count: *mut i32);
    fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32);
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, is_active: *mut i32);
    fn cuEventCreate(event: *mut Handle, flags: u32);
    fn cuEventDestroy_v2(event: Handle);
    fn cuEventRecord(event: Handle, stream: Handle);
    fn cuFuncGetName(name: *mut *const u8, function: Handle);
    fn cuKernelGetName(name: *mut *const u8, kernel: Handle);
    fn cuFuncGetParamInfo(function: Handle, at: usize, offset_bytes: *mut usize, bytes: *mut usize);
    fn cuKernelGetParamInfo(kernel: Handle, at: usize, offset_bytes: *mut usize, bytes: *mut usize);
    fn cuLibraryGetGlobal(address: *mut u64, bytes: *mut usize, library: Handle, name: *const u8);
    fn cuLibraryGetManaged(address: *mut u64, bytes: *mut usize, library: Handle, name: *const u8);
    fn cuMemAdvise(address: u64, bytes: usize, advice: u32, device: i32);
    fn cuMemAdvise_v2(address: u64, bytes: usize, advice: u32, to: Location);
    fn cuMemPrefetchAsync(address: u64, bytes: usize, device: i32, stream: Handle);
    fn cuMemPrefetchAsync_v2(address: u64, bytes: usize, to: Location, flags: u32, stream: Handle);
    fn cuModuleGetGlobal_v2(address: *mut u64, bytes: *mut usize, module: Handle, name: *const u8);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: u32, address: u64);
    fn cuStreamCreate(stream: *mut Handle, flags: u32);
    fn cuStreamDestroy_v2(stream: Handle);
    fn cuStreamGetCaptureInfo(stream: Handle, status: *mut u32, id: *mut u64);
    fn cuStreamQuery(stream: Handle);
    fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32);
    fn cuThreadExchangeStreamCaptureMode(mode: *mut u32);
}

/// Output of a call, if it succeeded.
fn output<T>(result: Option<CuResult>, value: T) -> Option<T> {
    result.filter(|result| result.is_ok()).map(|_| value)
}

/// Context of the calling thread; 0 without one.
pub(crate) fn current_context() -> Handle {
    let mut context = 0;
    output(cuCtxGetCurrent(&raw mut context), ()).map_or(0, |()| context)
}

/// CUDA device of the calling thread's context.
pub(crate) fn current_device() -> u64 {
    let mut device = 0;
    let result = cuCtxGetDevice(&raw mut device);
    output(result, device).and_then(|device| u64::try_from(device).ok()).unwrap_or(0)
}

/// Context of a green context.
pub(crate) fn context_of_green(green: Handle) -> Option<Handle> {
    let mut context = 0;
    let result = cuCtxFromGreenCtx(&raw mut context, green);
    output(result, ()).map(|()| context).filter(|context| *context != 0)
}

/// Device of a context; `None` before CUDA 13.0.
pub(crate) fn device_of(context: Handle) -> Option<i32> {
    let mut device = 0;
    let result = cuCtxGetDevice_v2(&raw mut device, context);
    output(result, ()).map(|()| device)
}

/// Whether the primary context of a device exists.
pub(crate) fn is_primary_context_active(device: i32) -> bool {
    let (mut flags, mut is_active) = (0, 0);
    let result = cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut is_active);
    output(result, is_active).is_none_or(|is_active| is_active != 0)
}

/// Name of a function, or of a kernel that is launched as one; null before CUDA 12.3.
pub(crate) fn function_name(function: Handle) -> *const u8 {
    let mut name = core::ptr::null();
    let result = cuFuncGetName(&raw mut name, function);
    if output(result, ()).is_some() {
        return name;
    }
    let mut name = core::ptr::null();
    let result = cuKernelGetName(&raw mut name, function);
    output(result, name).unwrap_or(core::ptr::null())
}

/// Parameter of a function, or of a kernel that is launched as one; `None` after the last one, and
/// before CUDA 12.4.
pub(crate) fn parameter(function: Handle, at: usize) -> Option<Parameter> {
    let (mut offset_bytes, mut bytes) = (0, 0);
    let mut result = cuFuncGetParamInfo(function, at, &raw mut offset_bytes, &raw mut bytes);
    if output(result, ()).is_none() {
        result = cuKernelGetParamInfo(function, at, &raw mut offset_bytes, &raw mut bytes);
    }
    output(result, ()).and_then(|()| Parameter::new(offset_bytes, bytes))
}

/// Whether drivers report parameters at all.
pub(crate) fn reports_parameters() -> bool {
    !reals::cuFuncGetParamInfo.address().is_null()
}

/// Whether memory is managed.
pub(crate) fn is_managed(address: u64) -> bool {
    const IS_MANAGED: u32 = 8;
    let mut is_managed = 0_u32;
    let result = cuPointerGetAttribute((&raw mut is_managed).cast(), IS_MANAGED, address);
    output(result, ()).is_some() && is_managed != 0
}

/// Number of the allocation at an address, unique in the process; 0 if the driver reports none.
pub(crate) fn memory_id(address: u64) -> u64 {
    const BUFFER_ID: u32 = 7;
    let mut id = 0_u64;
    let result = cuPointerGetAttribute((&raw mut id).cast(), BUFFER_ID, address);
    output(result, ()).map_or(0, |()| id)
}

/// Function that the program has looked up a variable with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LookUp {
    Module,
    Library,
    LibraryManaged,
}

/// Size of a variable that the program has just looked up by a name.
pub(crate) fn variable_bytes(look_up: LookUp, module: Handle, name: *const u8) -> Option<usize> {
    let (address, mut bytes) = (core::ptr::null_mut(), 0);
    let result = match look_up {
        LookUp::Module => cuModuleGetGlobal_v2(address, &raw mut bytes, module, name),
        LookUp::Library => cuLibraryGetGlobal(address, &raw mut bytes, module, name),
        LookUp::LibraryManaged => cuLibraryGetManaged(address, &raw mut bytes, module, name),
    };
    output(result, ()).map(|()| bytes)
}

/// Whether memory that is not managed is the host's.
pub(crate) fn is_on_host(address: u64) -> bool {
    const MEMORY_TYPE: u32 = 2;
    const HOST: u32 = 1;
    let mut kind = 0_u32;
    let result = cuPointerGetAttribute((&raw mut kind).cast(), MEMORY_TYPE, address);
    output(result, ()).is_some() && kind == HOST
}

/// Whether a stream is being captured, and the capture's id; `None` if the driver does not report
/// it, as for the legacy default stream while another stream is captured.
fn capture_info(stream: Handle) -> Option<(bool, u64)> {
    let (mut status, mut id) = (0_u32, 0);
    let result = cuStreamGetCaptureInfo(stream, &raw mut status, &raw mut id);
    output(result, ()).map(|()| (status != 0, id))
}

/// Id of the capture that a stream is part of.
pub(crate) fn capture_id(stream: Handle) -> Option<u64> {
    capture_info(stream).filter(|(is_captured, _)| *is_captured).map(|(_, id)| id)
}

/// Whether a stream is known not to be captured.
pub(crate) fn is_not_captured(stream: Handle) -> bool {
    capture_info(stream).is_some_and(|(is_captured, _)| !is_captured)
}

/// Sets this thread's capture mode to relaxed. In other modes, its calls could invalidate captures
/// of other threads, even on streams of its own.
pub(crate) fn relax_capture_mode() {
    const RELAXED: u32 = 2;
    let mut mode = RELAXED;
    cuThreadExchangeStreamCaptureMode(&raw mut mode);
}

/// The device, if the program has only one.
pub(crate) fn only_device() -> Option<i32> {
    let (mut count, mut device) = (0, 0);
    output(cuDeviceGetCount(&raw mut count), ()).filter(|()| count == 1)?;
    output(cuDeviceGet(&raw mut device, 0), ()).map(|()| device)
}

/// Device by its UUID, or a MIG instance by the UUID of its GPU.
pub(crate) fn device_by_uuid(uuid: [u8; 16]) -> Option<i32> {
    let mut count = 0;
    output(cuDeviceGetCount(&raw mut count), ())?;
    (0..count).find_map(|ordinal| {
        let (mut device, mut own, mut whole) = (0, [0; 16], [0; 16]);
        output(cuDeviceGet(&raw mut device, ordinal), ())?;
        let own = output(cuDeviceGetUuid_v2(&raw mut own, device), ()).map(|()| own);
        let whole = output(cuDeviceGetUuid(&raw mut whole, device), ()).map(|()| whole);
        (own == Some(uuid) || whole == Some(uuid)).then_some(device)
    })
}

/// Context of an allocation, as reported by the driver. `None` if the memory no longer exists;
/// `known` if the driver reports no context, as for memory of pools.
pub(crate) fn context_of(address: u64, known: Handle) -> Option<Handle> {
    const CONTEXT: u32 = 1;
    const INVALID_VALUE: CuResult = CuResult(1);
    let mut context: Handle = 0;
    let reported = match cuPointerGetAttribute((&raw mut context).cast(), CONTEXT, address) {
        Some(result) if result.is_ok() => context,
        Some(INVALID_VALUE) => return None,
        _ => 0,
    };
    [reported, known].into_iter().find(|context| *context != 0)
}

/// Makes a context current to the calling thread; returns its device.
pub(crate) fn enter_context(context: Handle) -> Option<i32> {
    output(cuCtxSetCurrent(context), ())?;
    let mut device = 0;
    output(cuCtxGetDevice(&raw mut device), ()).map(|()| device)
}

/// Leaves the calling thread without a context.
pub(crate) fn leave_context() {
    cuCtxSetCurrent(0);
}

/// Creates a stream in the calling thread's context that does not synchronise with default streams.
///
/// # Errors
/// The driver's error; `None` if it lacks the function.
pub(crate) fn create_stream() -> Result<Handle, Option<CuResult>> {
    const NON_BLOCKING: u32 = 1;
    let mut stream = 0;
    let result = cuStreamCreate(&raw mut stream, NON_BLOCKING);
    output(result, ()).map(|()| stream).ok_or(result)
}

/// Destroys a stream; its work still completes.
pub(crate) fn destroy_stream(stream: Handle) {
    cuStreamDestroy_v2(stream);
}

/// Whether the driver has the functions that plans need in addition to streams.
pub(crate) fn supports_plans() -> bool {
    let exists = |function: &Real| !function.address().is_null();
    [&reals::cuEventCreate, &reals::cuEventRecord, &reals::cuStreamWaitEvent, &reals::cuStreamGetCaptureInfo]
        .into_iter()
        .all(exists)
        && [&reals::cuMemPrefetchAsync, &reals::cuMemPrefetchAsync_v2].into_iter().any(exists)
}

/// Whether a device prefetches managed memory: it must permit concurrent access by the host.
pub(crate) fn supports_prefetch(device: i32) -> bool {
    const CONCURRENT_MANAGED_ACCESS: u32 = 89;
    let mut value = 0;
    let result = cuDeviceGetAttribute(&raw mut value, CONCURRENT_MANAGED_ACCESS, device);
    output(result, value).is_some_and(|value| value != 0)
}

/// Creates an event without timing in the calling thread's context.
///
/// # Errors
/// The driver's error; `None` if it lacks the function.
pub(crate) fn create_event() -> Result<Handle, Option<CuResult>> {
    const DISABLE_TIMING: u32 = 2;
    let mut event = 0;
    let result = cuEventCreate(&raw mut event, DISABLE_TIMING);
    output(result, ()).map(|()| event).ok_or(result)
}

/// Destroys an event. Waits for it stay in effect.
pub(crate) fn destroy_event(event: Handle) {
    cuEventDestroy_v2(event);
}

/// Records an event after a stream's present work. `None` if the driver lacks the function.
pub(crate) fn record_event(event: Handle, stream: Handle) -> Option<CuResult> {
    cuEventRecord(event, stream)
}

/// Makes a stream's further work wait for an event's last recording. `None` if the driver lacks the
/// function.
pub(crate) fn wait_for_event(stream: Handle, event: Handle) -> Option<CuResult> {
    cuStreamWaitEvent(stream, event, 0)
}

/// Result of a stream's work; [`CuResult::NOT_READY`] while it is in progress.
pub(crate) fn query_stream(stream: Handle) -> Option<CuResult> {
    cuStreamQuery(stream)
}

/// Prefetches managed memory to a device, or to the host with -1. `None` if the driver lacks the
/// function.
pub(crate) fn prefetch(address: u64, bytes: usize, to: i32, stream: Handle) -> Option<CuResult> {
    cuMemPrefetchAsync(address, bytes, to, stream)
        .or_else(|| cuMemPrefetchAsync_v2(address, bytes, Location::from_device(to), 0, stream))
}

/// Gives advice on managed memory. `None` if the driver lacks the function.
pub(crate) fn advise(address: u64, bytes: usize, advice: u32, to: i32) -> Option<CuResult> {
    cuMemAdvise(address, bytes, advice, to)
        .or_else(|| cuMemAdvise_v2(address, bytes, advice, Location::from_device(to)))
}
