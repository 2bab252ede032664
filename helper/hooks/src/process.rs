//! End of the process's first thread, which stays as a zombie while other threads live.
//!
//! The kernel clears the thread's id in the memory of the C library when the thread ends. Reading
//! the id takes no system call, which a filter may forbid, and no file descriptor: the program may
//! expect a certain descriptor number next, or be at its limit of descriptors.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::{
    system,
    thread::{self, Thread},
};

/// The first thread; 0 if unknown. Its data stay valid, as its stack is never freed.
static FIRST_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Finds the first thread: the one with which the process began, or the calling one, if it is the
/// first.
pub(crate) fn find_first_thread(initial: Thread) {
    let id = system::process_id();
    let found = [initial, thread::current()].into_iter().find(|thread| thread::id_of(*thread) == Some(id));
    FIRST_THREAD.store(found.unwrap_or(0), Ordering::Relaxed);
}

/// Finds the first thread of a forked child: the parent's first thread, if that forked. Otherwise
/// it is unknown, as the data of any other thread are on a stack that is freed when it ends.
pub(crate) fn find_first_thread_in_child() {
    let first = FIRST_THREAD.load(Ordering::Relaxed);
    if thread::id_of(first) != Some(system::process_id()) {
        FIRST_THREAD.store(0, Ordering::Relaxed);
    }
}

/// Whether the first thread has ended before the process; `None` if unknown.
pub(crate) fn first_thread_has_ended() -> Option<bool> {
    let first = FIRST_THREAD.load(Ordering::Relaxed);
    (first != 0).then(|| thread::id_of(first).is_none())
}

/// Whether the first thread is alive, so that its end can be detected.
pub(crate) fn can_detect_end() -> bool {
    first_thread_has_ended() == Some(false)
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn ended_threads_have_no_id() {
        let (send, receive) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            send.send((crate::thread::current(), system::thread_id())).unwrap();
            let _ = stopped.recv();
        });
        let (other_thread, id) = receive.recv().unwrap();
        assert_eq!(crate::thread::id_of(other_thread), Some(id));
        drop(stop);
        while Path::new(&format!("/proc/self/task/{id}")).exists() {
            thread::sleep(Duration::from_millis(1));
        }
        // Not joined yet: its data still exist.
        assert_eq!(crate::thread::id_of(other_thread), None);
        other.join().unwrap();
    }

    #[test]
    fn first_thread_has_the_id_of_the_process() {
        find_first_thread(crate::thread::current());
        assert_eq!(first_thread_has_ended(), None, "tests run in other threads");
        assert!(!can_detect_end());
        // In a child, the thread that forked is the first one, whichever it was in the parent. This
        // test does not fork.
        FIRST_THREAD.store(crate::thread::current(), Ordering::Relaxed);
        assert!(can_detect_end());
        find_first_thread_in_child();
        assert_eq!(first_thread_has_ended(), None);
    }
}
