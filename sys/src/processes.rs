//! Processes as /proc shows them: those of a name, and one by its id.

use std::{fs, io, iter};

use procfs::{
    FromRead, ProcResult,
    process::{LimitValue, Stat, all_processes_with_root},
};

use crate::{capabilities::Capabilities, roots::Roots};

/// Whoever has more processes above it is none of this world.
const DEPTH_MAX: usize = 256;

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

/// When the process that has this id began, in clock ticks since the boot; `None` if there is none.
///
/// # Errors
/// If that cannot be told: then there may well be one.
pub fn began(roots: &Roots, pid: u32) -> io::Result<Option<u64>> {
    Ok(stat(roots, pid)?.map(|stat| stat.starttime))
}

/// Those above this process, its parent first, as far as they can be seen.
pub fn ancestors(roots: &Roots, pid: u32) -> impl Iterator<Item = u32> + '_ {
    let parent = |pid: &u32| {
        let stat = stat(roots, *pid).ok()??;
        u32::try_from(stat.ppid).ok().filter(|parent| *parent != 0)
    };
    iter::successors(Some(pid), parent).skip(1).take(DEPTH_MAX)
}

fn stat(roots: &Roots, pid: u32) -> io::Result<Option<Stat>> {
    let path = roots.proc.join(pid.to_string()).join("stat");
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    Stat::from_read(text.as_slice()).map(Some).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;
    use crate::fake::Machine;

    #[test]
    fn this_process_is_found_by_its_name() {
        let status = procfs::process::Process::myself().unwrap().status().unwrap();
        let found = named(&Roots::default(), &status.name).unwrap();
        let own = found.iter().find(|process| process.pid == id()).unwrap();
        assert_eq!(own.capabilities, Capabilities::of_this_process().unwrap());
        assert_eq!(named(&Roots::default(), "no such name").unwrap(), []);
    }

    #[test]
    fn only_a_process_that_is_not_there_has_ended() {
        let roots = Roots::default();
        let own = procfs::process::Process::myself().unwrap().stat().unwrap();
        assert_eq!(began(&roots, id()).unwrap(), Some(own.starttime));
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(began(&roots, child.id()).unwrap(), None);
        // What cannot be read, as when too many files are open, and what means nothing.
        let machine = Machine::new().with("proc/7/stat/x", "").with("proc/8/stat", "8 (a) R");
        assert!(began(&machine.roots, 7).is_err() && began(&machine.roots, 8).is_err());
        assert_eq!(began(&machine.roots, 9).unwrap(), None);
    }

    #[test]
    fn the_parent_comes_first_among_the_ancestors() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let roots = Roots::default();
        let found: Vec<u32> = ancestors(&roots, child.id()).take(2).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [id(), std::os::unix::process::parent_id()]);
    }
}
