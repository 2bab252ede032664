//! Reads of /sys that users can make hang. Its folders are shared by all users, and any user who may read one
//! can hold its lock without end, so that others cannot look up a name in it for the first time.

use std::{io, time::Duration};

use thiserror::Error;

use crate::{
    Roots,
    cpu_budget::Allowance,
    process_users::Folder,
    readers::{Charges, Readers, Sleeps, Target},
};

/// Nothing is charged to a user: uvmd reads /sys for itself.
static READERS: Readers = Readers::new(Charges {
    sleeps: Sleeps::OfCaller,
    cpu_free: Duration::MAX,
    allowance: Allowance { part: 1, burst: Duration::ZERO, credit_part: None },
});

/// Reason why /sys was not read.
#[derive(Debug, Error)]
pub enum Unread {
    /// A read has not returned.
    #[error("reads of /sys hang, as when a program holds the lock of one of its folders: end that program")]
    Hung,
    /// There is no /sys, or no thread that could read it.
    #[error("/sys cannot be read: {0}")]
    NotMade(#[source] io::Error),
}

/// Result of a read of /sys. One that hangs refuses all later ones.
///
/// # Errors
/// See [`Unread`].
pub fn read<T: Send + 'static>(roots: &Roots, read: impl FnOnce(&Roots) -> T + Send + 'static) -> Result<T, Unread> {
    let own = roots.clone();
    let answer = target(roots).and_then(|target| READERS.read(&target, move || Ok(read(&own))));
    answer.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Unread::Hung,
        _ => Unread::NotMade(error),
    })
}

fn target(roots: &Roots) -> io::Result<Target> {
    Ok(Target { pid: 0, folder: Folder::of(&roots.sys)?.id, path: roots.sys.clone(), uid: 0 })
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::fake::Machine;

    #[test]
    fn read_that_hangs_refuses_later_ones_until_it_returns() {
        let (machine, other) = (Machine::new(), Machine::new());
        let (release, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let waits = move |_: &Roots| wait.lock().unwrap().recv();
        assert!(matches!(read(&machine.roots, waits), Err(Unread::Hung)));
        assert!(matches!(read(&machine.roots, |_| 7), Err(Unread::Hung)));
        assert_eq!(read(&other.roots, |_| 7).ok(), Some(7));
        drop(release);
        while read(&machine.roots, |_| 7).is_err() {
            std::thread::yield_now();
        }
    }
}
