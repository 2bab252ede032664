//! Order of streams and events.

use std::{
    ffi::c_void,
    ptr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use cudarc::driver::sys::{CUresult, CUstream};

use crate::support::{Context, call, device_memory, event, host, managed, ok, stream, words};

/// Gate that holds a stream until it is opened.
#[derive(Default)]
struct Gate(AtomicBool);

impl Gate {
    fn hold(&'static self, stream: CUstream) {
        extern "C" fn wait(gate: *mut c_void) {
            // SAFETY: a gate that lives for the rest of the process.
            let gate = unsafe { &*gate.cast::<Gate>() };
            while !gate.0.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        ok!(cuLaunchHostFunc(stream, Some(wait), ptr::from_ref(self).cast_mut().cast()));
    }

    fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn new() -> &'static Self {
        Box::leak(Box::default())
    }
}

#[test]
fn streams_wait_for_values_that_others_write() {
    let _context = Context::new();
    let (waits, writes) = (stream(1), stream(1));
    let (flags, seen) = (managed(64), managed(4));
    let [geq, equal, and] = [0, 1, 2];
    ok!(cuStreamWaitValue32_v2(waits, flags, 5, geq));
    ok!(cuStreamWaitValue64_v2(waits, flags + 8, 1 << 40, equal));
    ok!(cuStreamWaitValue32_v2(waits, flags + 16, 6, and));
    ok!(cuMemsetD32Async(seen, 9, 1, waits));
    assert_eq!(call!(cuStreamQuery(waits)), CUresult::CUDA_ERROR_NOT_READY);
    ok!(cuStreamWriteValue32_v2(writes, flags, 7, 0));
    ok!(cuStreamWriteValue64_v2(writes, flags + 8, 1 << 40, 0));
    ok!(cuStreamSynchronize(writes));
    assert_eq!(words(flags, 4), [7, 0, 0, 256]);
    assert_eq!((call!(cuStreamQuery(waits)), words(seen, 1)[0]), (CUresult::CUDA_ERROR_NOT_READY, 0));
    // The last one is the program's own.
    words(flags, 5)[4] = 4;
    ok!(cuStreamSynchronize(waits));
    assert_eq!(words(seen, 1), [9]);
    // One call for several: a wait for the value that its first writes.
    let mut batch = [[2, flags, 40, 0, 0, 0], [1, flags, 40, 1, 0, 0], [5, flags + 8, 41 << 32, 0, 0, 0u64]];
    ok!(cuStreamBatchMemOp_v2(waits, 3, host(&mut batch).cast(), 0));
    ok!(cuStreamSynchronize(waits));
    assert_eq!(words(flags, 4), [40, 0, 0, 41]);
    for (address, flag) in [(flags + 2, 0), (0x1234, 0), (flags, 9)] {
        let result = call!(cuStreamWaitValue32_v2(waits, address, 1, flag));
        assert_eq!(result, CUresult::CUDA_ERROR_INVALID_VALUE, "{address:#x}, {flag}");
    }
}

#[test]
fn calls_run_ahead_of_a_stream() {
    let _context = Context::new();
    let (stream, address, gate) = (stream(1), managed(4096), Gate::new());
    gate.hold(stream);
    ok!(cuMemsetD32Async(address, 7, 1024, stream));
    assert_eq!(call!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!(words(address, 1), [0]);
    gate.open();
    ok!(cuStreamSynchronize(stream));
    ok!(cuStreamQuery(stream));
    assert_eq!(words(address, 1024), [7; 1024]);
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_these_for_it() {
    let _context = Context::new();
    let (blocking, free, gate) = (stream(0), stream(1), Gate::new());
    let address = managed(4096);
    gate.hold(blocking);
    ok!(cuMemsetD32Async(address, 1, 1, ptr::null_mut()));
    ok!(cuMemsetD32Async(address + 4, 1, 1, free));
    ok!(cuStreamSynchronize(free));
    assert_eq!(words(address, 2), [0, 1]);
    let other = stream(0);
    ok!(cuMemsetD32Async(address + 8, 1, 1, other));
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(call!(cuStreamQuery(other)), CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!(call!(cuStreamQuery(ptr::null_mut())), CUresult::CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(ptr::null_mut()));
    ok!(cuStreamSynchronize(other));
    assert_eq!(words(address, 3), [1, 1, 1]);
}

#[test]
fn a_default_stream_of_the_thread_does_not_wait_for_others_that_are_free() {
    let _context = Context::new();
    let (gate, held) = (Gate::new(), stream(0));
    gate.hold(held);
    let own = ptr::without_provenance_mut(2);
    let address = managed(64);
    ok!(cuMemsetD32Async(address, 9, 1, own));
    ok!(cuStreamSynchronize(own));
    assert_eq!(words(address, 1), [9]);
    gate.open();
}

#[test]
fn events_order_streams() {
    let _context = Context::new();
    let (first, second, gate, event) = (stream(1), stream(1), Gate::new(), event());
    let address = managed(64);
    ok!(cuEventQuery(event));
    gate.hold(first);
    ok!(cuMemsetD32Async(address, 1, 1, first));
    ok!(cuEventRecord(event, first));
    ok!(cuStreamWaitEvent(second, event, 0));
    ok!(cuMemcpyDtoDAsync_v2(address + 4, address, 4, second));
    assert_eq!(call!(cuEventQuery(event)), CUresult::CUDA_ERROR_NOT_READY);
    assert_eq!(call!(cuStreamQuery(second)), CUresult::CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(second));
    ok!(cuEventSynchronize(event));
    assert_eq!(words(address, 2), [1, 1]);
}

#[test]
fn events_have_times() {
    let _context = Context::new();
    let (begin, end, stream, gate) = (event(), event(), stream(1), Gate::new());
    let mut milliseconds = 0.0;
    let unrecorded = call!(cuEventElapsedTime(&raw mut milliseconds, begin, end));
    assert_eq!(unrecorded, CUresult::CUDA_ERROR_INVALID_HANDLE);
    ok!(cuEventRecord(begin, stream));
    gate.hold(stream);
    ok!(cuEventRecord(end, stream));
    assert_eq!(call!(cuEventElapsedTime(&raw mut milliseconds, begin, end)), CUresult::CUDA_ERROR_NOT_READY);
    std::thread::sleep(Duration::from_millis(5));
    gate.open();
    ok!(cuEventSynchronize(end));
    ok!(cuEventElapsedTime(&raw mut milliseconds, begin, end));
    assert!(milliseconds >= 5.0, "{milliseconds}");
}

#[test]
fn functions_of_the_program_are_called_in_order() {
    static CALLED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    extern "C" fn note(number: *mut c_void) {
        CALLED.lock().unwrap().push(number.addr());
    }
    extern "C" fn note_state(_stream: CUstream, state: CUresult, number: *mut c_void) {
        assert_eq!(state, CUresult::CUDA_SUCCESS);
        CALLED.lock().unwrap().push(number.addr());
    }
    let _context = Context::new();
    let stream = stream(0);
    ok!(cuLaunchHostFunc(stream, Some(note), ptr::without_provenance_mut(1)));
    ok!(cuStreamAddCallback(stream, Some(note_state), ptr::without_provenance_mut(2), 0));
    ok!(cuLaunchHostFunc(ptr::null_mut(), Some(note), ptr::without_provenance_mut(3)));
    ok!(cuCtxSynchronize());
    assert_eq!(*CALLED.lock().unwrap(), [1, 2, 3]);
}

#[test]
fn a_free_waits_for_all_streams() {
    static DONE: AtomicU32 = AtomicU32::new(0);
    extern "C" fn slow(_: *mut c_void) {
        std::thread::sleep(Duration::from_millis(30));
        DONE.store(1, Ordering::Release);
    }
    let _context = Context::new();
    let address = device_memory(64);
    ok!(cuLaunchHostFunc(stream(1), Some(slow), ptr::null_mut()));
    ok!(cuMemFree_v2(address));
    assert_eq!(DONE.load(Ordering::Acquire), 1);
}

#[test]
fn a_prefetch_goes_on_beside_another_stream() {
    let _context = Context::new();
    let (busy, free, gate, address) = (stream(1), stream(1), Gate::new(), managed(1 << 20));
    gate.hold(busy);
    ok!(cuMemPrefetchAsync(address, 1 << 20, 0, free));
    ok!(cuStreamSynchronize(free));
    ok!(cuMemPrefetchAsync(address, 1 << 20, -1, busy));
    assert_eq!(call!(cuStreamQuery(busy)), CUresult::CUDA_ERROR_NOT_READY);
    gate.open();
    ok!(cuStreamSynchronize(busy));
}

#[test]
fn a_destroyed_stream_finishes_its_work() {
    let _context = Context::new();
    let (stream, gate, address) = (stream(1), Gate::new(), managed(64));
    gate.hold(stream);
    ok!(cuMemsetD32Async(address, 5, 1, stream));
    ok!(cuStreamDestroy_v2(stream));
    assert_eq!(call!(cuStreamQuery(stream)), CUresult::CUDA_ERROR_INVALID_HANDLE);
    gate.open();
    for _ in 0..1000 {
        if words(address, 1) == [5] {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("the work was lost");
}
