//! Functions of the library by name, from `functions.txt`, and stubs for those that are not done.

use cudarc::driver::sys::CUresult;

/// Function that the library exports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// Name of the symbol.
    pub(crate) name: &'static str,
    /// Version of CUDA that has it first, as 1000 · major + 10 · minor.
    pub(crate) since: u32,
    /// Its code.
    pub(crate) function: *const (),
}

// SAFETY: the pointer is that of a function.
#[expect(unsafe_code, reason = "a pointer to code is the same for all threads")]
unsafe impl Sync for Row {}

/// All functions.
pub(crate) fn all() -> &'static [Row] {
    generated::rows()
}

/// Function that answers to a name of `cuGetProcAddress` in a version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Its code.
    Function(*const ()),
    /// Only later versions have it.
    TooNew,
    /// There is none.
    None,
}

/// Finds the newest form of a function that a version has. Forms are `NAME`, `NAME_v2`, … with the
/// suffix of per-thread default streams, if these are asked for and the function has such a form.
pub(crate) fn find(name: &str, version: u32, per_thread: bool) -> Found {
    let is_form = |symbol: &str, suffix: &str| {
        symbol.strip_suffix(suffix).and_then(|symbol| symbol.strip_prefix(name)).is_some_and(|rest| {
            rest.is_empty()
                || rest.strip_prefix("_v").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        })
    };
    let suffixes: &[&str] = if per_thread { &["_ptsz", "_ptds", ""] } else { &[""] };
    let mut found = Found::None;
    for suffix in suffixes {
        let forms = all().iter().filter(|row| is_form(row.name, suffix));
        match forms.clone().filter(|row| row.since <= version).max_by_key(|row| (row.since, row.name)) {
            Some(row) => return Found::Function(row.function),
            None if forms.count() > 0 => found = Found::TooNew,
            None => {}
        }
    }
    found
}

fn absent(name: &str, result: CUresult) -> CUresult {
    if crate::settings::debug() {
        crate::errors::complain(&format!("{name} is not there: {result:?}"));
    }
    result
}

mod generated {
    #![expect(unsafe_code, reason = "symbols are exported by name")]
    use super::{CUresult, Row, absent};

    include!(concat!(env!("OUT_DIR"), "/functions.rs"));

    pub(super) fn rows() -> &'static [Row] {
        ROWS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(name: &str) -> Found {
        Found::Function(all().iter().find(|row| row.name == name).unwrap().function)
    }

    #[test]
    fn a_version_has_the_newest_form_that_it_knows() {
        assert_eq!(find("cuMemAlloc", 3020, false), pointer("cuMemAlloc_v2"));
        assert_eq!(find("cuMemPrefetchAsync", 12010, false), pointer("cuMemPrefetchAsync"));
        assert_eq!(find("cuMemPrefetchAsync", 12020, false), pointer("cuMemPrefetchAsync_v2"));
        assert_eq!(find("cuCtxCreate", 12090, false), pointer("cuCtxCreate_v4"));
        assert_eq!(find("cuCtxCreate", 12000, false), pointer("cuCtxCreate_v3"));
        assert_eq!(find("cuGetProcAddress", 12000, false), pointer("cuGetProcAddress_v2"));
        assert_eq!(find("cuLaunchKernel", 12000, false), pointer("cuLaunchKernel"));
        assert_eq!(find("cuLaunchKernel", 12000, true), pointer("cuLaunchKernel_ptsz"));
        assert_eq!(find("cuMemcpyHtoD", 12000, true), pointer("cuMemcpyHtoD_v2_ptds"));
        assert_eq!(find("cuMemcpyDtoH_v2", 12000, false), pointer("cuMemcpyDtoH_v2"));
        assert_eq!(find("cuLaunchKernelEx", 11000, false), Found::TooNew);
        assert_eq!(find("cuNothing", 12090, false), Found::None);
    }
}
