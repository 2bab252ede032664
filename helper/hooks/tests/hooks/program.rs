//! A program with the helper in it: its calls go to the hooks, and it reads what they record.

use std::{
    ffi::{CStr, c_void},
    fs,
    mem::transmute_copy,
    ptr::without_provenance_mut,
    slice,
    sync::{
        Mutex, MutexGuard, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use call_ring::{
    Memory, NAME, TOTAL_BYTES,
    call::{Action, Call, Read, Reader},
    operation::apply,
};
use hooks::{Replace, uvmd_helper_start};

use crate::driver;

/// Handle of the stand-in for the driver.
const DRIVER: usize = 1;

static STARTED: OnceLock<Replace> = OnceLock::new();
/// There is one helper in a process: tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Words of the ring, which the helper has mapped.
fn ring() -> &'static [AtomicU64] {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let name = format!("/memfd:{} (deleted)", NAME.to_str().unwrap());
    let line = maps.lines().find(|line| line.ends_with(&name)).unwrap();
    let begin = usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
    // SAFETY: the helper never unmaps the ring, and both sides access its words as atomics.
    unsafe { slice::from_raw_parts(begin as *const AtomicU64, TOTAL_BYTES / 8) }
}

/// Program, for the time of a test.
pub(crate) struct Program {
    ring: &'static [AtomicU64],
    replace: Replace,
    _turn: MutexGuard<'static, ()>,
}

impl Program {
    /// Starts the helper, in the first test of the process. The stand-in is as new.
    pub(crate) fn start() -> Self {
        static IS_FILTER_REQUESTED: AtomicBool = AtomicBool::new(false);
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        driver::CURRENT.store(0x1000, Ordering::Relaxed);
        driver::RESULT.store(0, Ordering::Relaxed);
        driver::GREEN.store(0, Ordering::Relaxed);
        driver::IS_PRIMARY_ACTIVE.store(1, Ordering::Relaxed);
        driver::CAPTURE.store(0, Ordering::Relaxed);
        driver::MANAGED.store(1, Ordering::Relaxed);
        driver::MEMORY_ID.store(0, Ordering::Relaxed);
        driver::DEVICES.store(1, Ordering::Relaxed);
        driver::SIZE_RESULT.store(0, Ordering::Relaxed);
        driver::DEVICE_RESULT.store(0, Ordering::Relaxed);
        let driver = without_provenance_mut(DRIVER);
        // SAFETY: `dlsym` takes null and the handle, and no thread is a valid value.
        let start = || unsafe { uvmd_helper_start(driver::dlsym, driver, 0, &IS_FILTER_REQUESTED) };
        let replace = *STARTED.get_or_init(start);
        let program = Self { ring: ring(), replace, _turn: turn };
        program.calls();
        program
    }

    /// Function of the driver as the program gets it: its hook.
    ///
    /// `F` is the type of a pointer to it. As the driver's functions, it takes any arguments that
    /// fit its type.
    pub(crate) fn function<F: Copy>(&self, name: &CStr) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "F is a function pointer") };
        let real = driver::function(name);
        assert!(!real.is_null(), "the stand-in lacks {name:?}");
        let hook = (self.replace)(real);
        assert_ne!(hook, real, "{name:?} is not hooked");
        // SAFETY: the tests pass the type of cuda.h.
        unsafe { transmute_copy(&hook) }
    }

    /// What the calls since the last time were recorded as.
    pub(crate) fn actions(&self) -> Vec<Action> {
        self.calls().into_iter().map(|call| call.action).collect()
    }

    /// Calls since the last time, in their order.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let memory = Memory::open(self.ring).unwrap();
        let mut calls = Vec::new();
        for lane in memory.lanes() {
            let mut position = None;
            let take = |read| match read {
                Read::Call(call) => calls.push(call),
                other => panic!("{other:?}"),
            };
            Reader::default().read(&lane, &mut position, |at, bytes| memory.copy_to(at, bytes), take).unwrap();
            apply(position.map(|position| lane.consume(position)), self.ring);
        }
        calls.sort_by_key(|call| call.stamp.sequence);
        calls
    }

    /// Calls that were not recorded, or not whole, since the start.
    pub(crate) fn unrecorded(&self) -> u64 {
        Memory::open(self.ring).unwrap().unrecorded()
    }

    /// Allocates managed memory at an address, in the current context.
    pub(crate) fn allocate(&self, address: u64, bytes: usize) {
        let mut allocated = 0;
        driver::CREATED.store(address, Ordering::Relaxed);
        let allocate: extern "C" fn(*mut u64, usize, u32) -> i32 = self.function(c"cuMemAllocManaged");
        assert_eq!((allocate(&raw mut allocated, bytes, 1), allocated), (0, address));
        assert_eq!(self.actions().len(), 1);
    }
}
