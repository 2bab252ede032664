//! Models of the gate, whose source is compiled with loom's atomics. loom runs the interleavings of
//! its threads, with the reorderings that the atomics permit.
#![cfg(test)]
#![cfg(loom)]

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex},
};

use gate::{BeginError, Gate};
use loom::sync::atomic::{AtomicU64, Ordering};

#[path = "../src/gate.rs"]
#[expect(dead_code, reason = "models have no clock")]
mod gate;

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
}

mod mapping {
    use super::AtomicU64;

    /// Allocator of words. They are never freed, as those of the helper.
    pub(crate) struct Words;

    impl Words {
        #[expect(clippy::unnecessary_wraps, reason = "as in the helper")]
        pub(crate) fn next(&mut self) -> Option<&'static AtomicU64> {
            Some(Box::leak(Box::new(AtomicU64::new(0))))
        }
    }
}

/// Futex that never times out: loom finds a lost wake-up as a deadlock.
mod system {
    use loom::sync::{Condvar, Mutex};

    use super::{AtomicU64, Ordering};

    loom::lazy_static! {
        static ref WAITING: Mutex<()> = Mutex::new(());
        static ref WOKEN: Condvar = Condvar::new();
    }

    /// Whether any model has waited. Not loom's: it outlives the models.
    pub(crate) static HAS_WAITED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

    pub(crate) enum Sharing {
        Private,
    }

    pub(crate) fn wait(word: &AtomicU64, expected: u32, _: Sharing, _timeout_ns: u64) {
        let waiting = WAITING.lock().unwrap();
        if word.load(Ordering::Relaxed) == u64::from(expected) {
            HAS_WAITED.store(true, Ordering::Relaxed);
            drop(WOKEN.wait(waiting).unwrap());
        }
    }

    pub(crate) fn wake(_: &AtomicU64, _: Sharing) {
        let _waiting = WAITING.lock().unwrap();
        WOKEN.notify_all();
    }

    pub(crate) fn sleep(_ns: u64) {
        loom::thread::yield_now();
    }
}

mod thread {
    use std::cell::Cell;

    pub(crate) use loom::thread::spawn;

    loom::thread_local! {
        static IS_HELPER: Cell<bool> = Cell::new(false);
    }

    /// Makes the calling thread the helper's.
    pub(crate) fn become_helper() {
        IS_HELPER.with(|is_helper| is_helper.set(true));
    }

    #[expect(clippy::unnecessary_wraps, reason = "as in the helper")]
    pub(crate) fn current_id() -> Option<u32> {
        Some(IS_HELPER.with(|is_helper| u32::from(is_helper.get()) + 1))
    }
}

/// Gate, and what is within it by words that order no other access.
struct Driver {
    gate: Gate,
    calls: AtomicU64,
    parts: AtomicU64,
    /// 1 once the gate was shut.
    is_shut_down: AtomicU64,
}

impl Driver {
    fn new() -> Arc<Self> {
        let gate = Gate::new(&mut mapping::Words).unwrap();
        let [calls, parts, is_shut_down] = [0; 3].map(AtomicU64::new);
        Arc::new(Self { gate, calls, parts, is_shut_down })
    }

    /// Makes a call of the program.
    fn call(&self) {
        let _call = self.gate.enter();
        self.calls.fetch_add(1, Ordering::Relaxed);
        assert_eq!(self.parts.load(Ordering::Relaxed), 0, "a part during a call");
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Begins two parts in the helper's thread, with a call from within each; returns their results.
    fn two_parts(&self) -> [&'static str; 2] {
        thread::become_helper();
        self.gate.set_owner();
        [(); 2].map(|()| match self.gate.begin() {
            Ok(_part) => {
                self.parts.store(1, Ordering::Relaxed);
                drop(self.gate.enter());
                assert_eq!(self.calls.load(Ordering::Relaxed), 0, "a call during a part");
                assert_eq!(self.is_shut_down.load(Ordering::Relaxed), 0, "a part after the gate was shut");
                self.parts.store(0, Ordering::Relaxed);
                "done"
            }
            Err(BeginError::Busy) => "busy",
            Err(BeginError::Shut) => "shut",
        })
    }

    /// Shuts the gate, as at the exit of the process.
    fn shut_down(&self) {
        self.gate.shut();
        assert_eq!(self.parts.load(Ordering::Relaxed), 0, "the gate was shut during a part");
        self.is_shut_down.store(1, Ordering::Relaxed);
    }
}

/// Runs two parts of the helper while other threads run, and returns the results in all
/// interleavings with at most three preemptions.
fn results_during(others: [fn(&Driver); 2]) -> BTreeSet<[&'static str; 2]> {
    let results = Arc::new(Mutex::new(BTreeSet::new()));
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    let all = results.clone();
    builder.check(move || {
        let driver = Driver::new();
        let threads = others.map(|other| {
            let driver = driver.clone();
            thread::spawn(move || other(&driver))
        });
        let parts = driver.two_parts();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        all.lock().unwrap().insert(parts);
    });
    assert!(system::HAS_WAITED.swap(false, Ordering::Relaxed), "no call waited for a part");
    mem::take(&mut results.lock().unwrap())
}

#[test]
fn calls_and_parts_exclude_each_other() {
    let results = results_during([Driver::call, Driver::call]);
    assert_eq!(results, BTreeSet::from([["busy", "busy"], ["busy", "done"], ["done", "busy"], ["done", "done"]]));
}

#[test]
fn no_part_begins_after_the_gate_was_shut_which_waits_for_the_part_in_progress() {
    let results = results_during([Driver::call, Driver::shut_down]);
    let before = [["busy", "busy"], ["busy", "done"], ["done", "busy"], ["done", "done"]];
    let shut = [["busy", "shut"], ["done", "shut"], ["shut", "shut"]];
    assert_eq!(results, before.into_iter().chain(shut).collect());
}
