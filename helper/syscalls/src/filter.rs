//! System call filters (seccomp). A filter may kill the process, or run its SIGSYS handler, for a call of
//! the helper's that the program would not make.

use crate::{
    file::{TEXT_BYTES_MAX, read_text},
    text::number_after,
};

/// Number of filters in the status file of a thread.
fn parse_status(status: &[u8]) -> Option<u64> {
    const NONE: u64 = 0;
    const FILTERED: u64 = 2;
    // A truncated status may lack the fields, as in a process with hundreds of groups.
    let whole = Some(status).filter(|status| status.len() < TEXT_BYTES_MAX)?;
    match number_after(b"Seccomp:\t", whole)? {
        NONE => Some(0),
        FILTERED => number_after(b"Seccomp_filters:\t", whole),
        _ => None,
    }
}

/// Number of filters of the calling thread. `None` if unknown: without /proc, or under a filter before
/// Linux 5.9, which does not report the number.
///
/// Opens, reads and closes a file, as the loader of a library does anyway.
#[must_use]
pub fn count() -> Option<u64> {
    let mut text = [0; TEXT_BYTES_MAX];
    parse_status(read_text(c"/proc/thread-self/status", &mut text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_has_the_number_of_filters() {
        let status: &[u8] = b"Name:\tx\nThreads:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation_Store_Bypass:\tx\n";
        assert_eq!(parse_status(status), Some(3));
        assert_eq!(parse_status(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(parse_status(b"Seccomp:\t0\nCpus_allowed:\t3\n"), Some(0));
        assert_eq!(parse_status(&[b'\n'; TEXT_BYTES_MAX]), None);
        assert!(count().is_some());
    }

    #[test]
    fn uncounted_filters_are_unknown() {
        assert_eq!(parse_status(b"Seccomp:\t2\nCpus_allowed:\t3\n"), None);
        assert_eq!(parse_status(b"Seccomp:\t1\nSeccomp_filters:\t0\n"), None);
        assert_eq!(parse_status(b"Name:\tx\n"), None);
    }
}
