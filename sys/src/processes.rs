//! Processes found by name.

use procfs::{
    ProcResult,
    process::{LimitValue, all_processes_with_root},
};

use crate::{capabilities::Capabilities, roots::Roots};

/// What a process may do and use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its id.
    pub pid: u32,
    /// What it is allowed to do.
    pub capabilities: Capabilities,
    /// Bytes of memory that it may lock, `u64::MAX` without limit; `None` where it may not be known.
    pub locked_memory_max_bytes: Option<u64>,
}

/// Those that have this name (comm), as far as /proc shows them.
///
/// # Errors
/// If /proc cannot be listed.
pub fn named(roots: &Roots, name: &str) -> ProcResult<Vec<Running>> {
    let running = |process: ProcResult<procfs::process::Process>| {
        let process = process.ok()?;
        let status = process.status().ok().filter(|status| status.name == name)?;
        // Only the process's own user may read its limits.
        let limit = process.limits().ok().map(|limits| limits.max_locked_memory.soft_limit);
        Some(Running {
            pid: u32::try_from(status.pid).ok()?,
            capabilities: Capabilities::from_bits(status.capeff),
            locked_memory_max_bytes: limit.map(|limit| match limit {
                LimitValue::Value(bytes) => bytes,
                LimitValue::Unlimited => u64::MAX,
            }),
        })
    };
    Ok(all_processes_with_root(&roots.proc)?.filter_map(running).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found_by_its_name() {
        let status = procfs::process::Process::myself().unwrap().status().unwrap();
        let found = named(&Roots::default(), &status.name).unwrap();
        let own = found.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert_eq!(own.capabilities, Capabilities::of_this_process().unwrap());
        assert_eq!(named(&Roots::default(), "no such name").unwrap(), []);
    }
}
