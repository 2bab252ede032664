//! Memory of the node, from `/proc/meminfo`. In a container, too, that is the node's.

use std::fs;

use crate::roots::Roots;

/// Memory of the node at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostMemory {
    /// Size (`MemTotal`).
    pub total_bytes: u64,
    /// Memory that programs can take without swapping, as the kernel estimates it (`MemAvailable`).
    pub available_bytes: u64,
}

impl HostMemory {
    /// Reads it; `None` if it cannot be read.
    #[must_use]
    pub fn read(roots: &Roots) -> Option<Self> {
        let text = fs::read_to_string(roots.proc.join("meminfo")).ok()?;
        let bytes = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            value.trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
        };
        Some(Self { total_bytes: bytes("MemTotal")?, available_bytes: bytes("MemAvailable")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn sizes_are_read_in_bytes_and_invalid_ones_are_unknown() {
        let read = |text: &str| HostMemory::read(&Machine::new().with("proc/meminfo", text).roots);
        let memory = HostMemory { total_bytes: 16 << 10, available_bytes: 4 << 10 };
        assert_eq!(read("MemTotal:             16 kB\nMemFree: 1 kB\nMemAvailable:   4 kB\n"), Some(memory));
        for invalid in ["", "MemTotal: 16 kB\n", "MemTotal: 16 kB\nMemAvailable: kB\n"] {
            assert_eq!(read(invalid), None, "{invalid:?}");
        }
        assert_eq!(read(&format!("MemTotal: 16 kB\nMemAvailable: {} kB\n", u64::MAX)), None);
    }

    #[test]
    fn available_memory_of_this_machine_is_a_part_of_all() {
        let memory = HostMemory::read(&Roots::default()).unwrap();
        assert!(0 < memory.available_bytes && memory.available_bytes < memory.total_bytes, "{memory:?}");
    }
}
