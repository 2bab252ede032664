//! Memory of the node, from /proc, which shows that of the node in containers, too.

use procfs::{Current, Meminfo};

/// Memory of the node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) memory_bytes: u64,
    /// Memory that programs can take without swapping, as the kernel estimates it. Migrations to the
    /// host need it.
    pub(super) available_bytes: u64,
}

impl Host {
    pub(super) fn read() -> Option<Self> {
        Self::of(&Meminfo::current().ok()?)
    }

    fn of(meminfo: &Meminfo) -> Option<Self> {
        Some(Self { memory_bytes: meminfo.mem_total, available_bytes: meminfo.mem_available? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_a_part_of_all_memory() {
        let host = Host::read().unwrap();
        assert!(0 < host.available_bytes && host.available_bytes < host.memory_bytes, "{host:?}");
    }
}
