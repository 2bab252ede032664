//! Filters of system calls (seccomp) that processes have installed, or began with.

use std::{fs, io};

use crate::roots::Roots;

/// Number of filters of the calling thread; `None` if it is unknown, as of a filter before Linux 5.9.
///
/// # Errors
/// If the status of the thread is not readable.
pub fn own(roots: &Roots) -> io::Result<Option<u64>> {
    Ok(number(&fs::read(roots.proc.join("thread-self/status"))?))
}

/// Number of filters in the status of a thread. The only text of the process's choice there is its name,
/// which has no line feed.
fn number(status: &[u8]) -> Option<u64> {
    let value = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(line).ok()?.trim_ascii().parse().ok()
    };
    match value(b"Seccomp:")? {
        0 => Some(0),
        2 => value(b"Seccomp_filters:"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_status() {
        assert_eq!(number(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation_Store_Bypass:\tx\n"), Some(3));
        assert_eq!(number(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(number(b"Seccomp:\t0\nCpus_allowed:\t3\n"), Some(0));
        assert!(own(&Roots::default()).unwrap().is_some());
    }

    #[test]
    fn filters_that_are_not_counted_are_unknown() {
        assert_eq!(number(b"Seccomp:\t2\nCpus_allowed:\t3\n"), None);
        assert_eq!(number(b"Seccomp:\t1\nSeccomp_filters:\t0\n"), None);
        assert_eq!(number(b"Name:\tx\n"), None);
    }
}
