//! Filters of system calls, which may end the process for one that the program does not make.

use crate::{
    system::{self, TEXT_BYTES_MAX},
    text::number_behind,
};

/// Filters of a thread, of its status. Before Linux 5.9: 2 if there is any.
fn of_status(status: &[u8]) -> Option<u64> {
    // One that is cut, as for hundreds of groups, may lack them.
    let whole = Some(status).filter(|status| status.len() < TEXT_BYTES_MAX)?;
    let mode = number_behind(b"Seccomp:\t", whole)?;
    if mode == 0 { Some(0) } else { number_behind(b"Seccomp_filters:\t", whole).or(Some(mode)) }
}

/// Filters of the calling thread; `None` if they are not known.
pub(crate) fn count() -> Option<u64> {
    let mut text = [0; TEXT_BYTES_MAX];
    of_status(system::read_text(c"/proc/thread-self/status", &mut text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_status() {
        let status: &[u8] = b"Name:\tx\nThreads:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation_Store_Bypass:\tx\n";
        assert_eq!(of_status(status), Some(3));
        assert_eq!(of_status(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(of_status(b"Seccomp:\t2\nCpus_allowed:\t3\n"), Some(2));
        assert_eq!(of_status(b"Name:\tx\n"), None);
        assert_eq!(of_status(&[b'\n'; TEXT_BYTES_MAX]), None);
        assert!(count().is_some());
    }
}
