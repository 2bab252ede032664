//! The process's first thread: it stays as a zombie while others live.
//!
//! The kernel knows by the number of a thread whether it has ended, when it is asked to lock a word
//! that names the thread as its owner. That opens no file: neither does the helper take a
//! descriptor's number that the program expects to be given next, nor does a limit of descriptors
//! matter, or a program that closes them all.

use crate::system;

/// Number that no thread has: the largest one of a lock's word.
const NOBODY: u32 = (1 << 30) - 1;

/// Whether the first thread has ended, and the process not; `None` if that cannot be known.
pub(crate) fn first_thread_has_ended() -> Option<bool> {
    system::thread_has_ended(system::process_id())
}

/// Whether the end of the first thread, which lives, will be known.
pub(crate) fn sees_ends() -> bool {
    first_thread_has_ended() == Some(false) && system::thread_has_ended(NOBODY) == Some(true)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn ends_of_threads_are_known() {
        assert!(sees_ends());
        assert_eq!(system::thread_has_ended(system::thread_id()), Some(false));
        let (send, receive) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let other = thread::spawn(move || {
            send.send(system::thread_id()).unwrap();
            let _ = ends.recv();
        });
        let id = receive.recv().unwrap();
        assert_eq!(system::thread_has_ended(id), Some(false));
        drop(end);
        other.join().unwrap();
        assert_eq!(system::thread_has_ended(id), Some(true));
    }
}
