//! Cgroup namespace of this process.
//!
//! In another namespace than the node's, `/proc/PID/cgroup` has paths relative to its root: that of a container
//! of version 2 begins at the container. Paths of cgroups then lack the names of pods, jobs and units.

use std::{fs, io, os::fd::AsFd, path::Path};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Roots;

/// Initial cgroup namespace, as in /proc/self/ns/cgroup (`PROC_CGROUP_INIT_INO` of the kernel).
pub const INITIAL: &str = "cgroup:[4026531835]";

/// Whether this process is in another cgroup namespace than the node's. A missing file is no evidence for it: a
/// kernel may have no such namespaces.
#[must_use]
pub fn is_foreign(roots: &Roots) -> bool {
    fs::read_link(roots.proc.join("self/ns/cgroup")).is_ok_and(|namespace| namespace != Path::new(INITIAL))
}

/// Enters the node's cgroup namespace, if this thread is in another one. Threads that it starts later are in it,
/// too. Containers of version 2 have a namespace of their own unless they are privileged.
///
/// # Errors
/// If this process may not (without `CAP_SYS_ADMIN`), or does not see the node's first process.
pub fn enter_initial() -> io::Result<()> {
    if !is_foreign(&Roots::default()) {
        return Ok(());
    }
    let of_node = fs::File::open("/proc/1/ns/cgroup")?;
    if fs::read_link("/proc/1/ns/cgroup")? != Path::new(INITIAL) {
        return Err(io::Error::other("process 1 is not the node's first process"));
    }
    Ok(move_into_link_name_space(of_node.as_fd(), Some(LinkNameSpaceType::ControlGroup))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn another_namespace_than_the_initial_one_is_foreign() {
        let machine = Machine::new();
        assert!(!is_foreign(&machine.roots), "a kernel without such namespaces");
        machine.link("proc/self/ns/cgroup", "cgroup:[4026532999]");
        assert!(is_foreign(&machine.roots));
        fs::remove_file(machine.roots.proc.join("self/ns/cgroup")).unwrap();
        machine.link("proc/self/ns/cgroup", INITIAL);
        assert!(!is_foreign(&machine.roots));
    }
}
