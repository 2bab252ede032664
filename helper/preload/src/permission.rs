//! Permission under system call filters (seccomp). A filter may kill the process, or run the
//! program's SIGSYS handler, for a call by the helper, and the calls that it permits cannot be
//! queried. So the second stage is loaded and started only without filters, or if the process has
//! inherited all of them, and their number is within the limit of the operator.

use core::{
    ffi::CStr,
    sync::atomic::{AtomicU64, Ordering},
};

use syscalls::{filter, text};

use crate::{libc, sandbox, startup};

/// Environment variable: number of inherited filters that the operator has checked, such as the one
/// that a container runtime installs.
const VARIABLE: &CStr = c"UVMD_HELPER_FILTERS";

/// Limit of the operator on the number of inherited filters, read at load.
static ADMITTED: AtomicU64 = AtomicU64::new(0);

/// Limit of the operator on the number of inherited filters; 0 if the variable is missing or not a
/// number.
fn admitted_filters() -> u64 {
    let value = libc::environment(VARIABLE).map(CStr::to_bytes).unwrap_or_default();
    if value.iter().all(u8::is_ascii_digit) { text::number(value).unwrap_or(0) } else { 0 }
}

/// Whether the second stage may be loaded together with this library. In a new process, the current
/// filters are recorded as inherited ones.
pub(crate) fn is_granted_at_load(is_process_new: bool) -> bool {
    if sandbox::IS_FILTER_REQUESTED.load(Ordering::Relaxed) {
        return false;
    }
    let (filters, admitted) = (filter::count(), admitted_filters());
    ADMITTED.store(admitted, Ordering::Relaxed);
    if is_process_new {
        startup::set_filters(filters);
    }
    permits(filters, startup::filters(), admitted)
}

/// Whether this thread may start the second stage.
pub(crate) fn is_granted() -> bool {
    !sandbox::IS_FILTER_REQUESTED.load(Ordering::Relaxed)
        && permits(filter::count(), startup::filters(), ADMITTED.load(Ordering::Relaxed))
}

/// Whether the current number of filters, compared with the inherited number and the limit, permits
/// the second stage. With a filter that the program has installed, it never does: the operator
/// vouches only for inherited ones.
fn permits(now: Option<u64>, at_load: Option<u64>, admitted: u64) -> bool {
    now == Some(0) || (now.is_some() && now == at_load && now <= Some(admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_admission_is_needed_without_filters() {
        assert!(permits(Some(0), None, 0) && permits(Some(0), Some(0), 1));
    }

    #[test]
    fn inherited_filters_are_admitted_by_number() {
        assert!(permits(Some(1), Some(1), 1) && permits(Some(1), Some(1), 2));
        assert!(!permits(Some(1), Some(1), 0) && !permits(Some(2), Some(2), 1));
    }

    #[test]
    fn filters_of_the_program_are_never_admitted() {
        assert!(!permits(Some(1), Some(0), 1) && !permits(Some(2), Some(1), 2));
    }

    #[test]
    fn unknown_filters_are_not_admitted() {
        assert!(!permits(None, None, 9) && !permits(None, Some(1), 9));
        assert!(!permits(Some(1), None, 9));
    }
}
