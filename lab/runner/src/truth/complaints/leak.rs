//! Messages of the driver's leak checker when the driver is unloaded (`uvm_leak_checker=2`).

/// Messages about allocations that the driver did not free.
#[derive(Debug, Default)]
pub(super) struct Leak(Vec<String>);

impl Leak {
    /// Stores the message and returns true if it is the leak checker's.
    pub(super) fn collect(&mut self, message: &str) -> bool {
        let is_leak_message = ["!!!!", "Memory leak of ", LEAKED].iter().any(|start| text(message).starts_with(start));
        if is_leak_message {
            self.0.push(message.to_owned());
        }
        is_leak_message
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.0)
    }

    /// Leaked bytes, if a known bug of the driver explains all of them. The bug occurs when a
    /// process is killed (-9) while it registers a GPU as its first user: `alloc_parent_gpu` of
    /// `uvm_gpu.c` allocates the GPU's structure, then starts a thread for it. A process with a
    /// fatal signal cannot start one (`kthread_create` returns `EINTR`); so it fails, and neither
    /// it nor `add_gpu`, which calls it, frees the structure.
    ///
    /// A process dies before it can register another GPU, so that there are at most `killed` leaks.
    pub(super) fn of_killed_registrations(&self, killed: u64) -> Option<u64> {
        let bytes_of = |start: &str| {
            let mut found = Vec::new();
            for line in self.0.iter().filter_map(|line| text(line).strip_prefix(start)) {
                let (bytes, rest) = line.split_once(" bytes ")?;
                found.push((bytes.parse::<u64>().ok()?, rest));
            }
            Some(found)
        };
        let leaked = bytes_of(LEAKED)?;
        let sum = leaked.iter().map(|(bytes, _)| bytes).sum::<u64>();
        let total = bytes_of("Memory leak of ")?.iter().map(|(bytes, _)| bytes).sum::<u64>();
        let is_excused =
            |(_, from): &(u64, &str)| from.starts_with("from uvm_gpu.c:") && from.contains(":alloc_parent_gpu (");
        (sum == total && leaked.len() as u64 <= killed && leaked.iter().all(is_excused)).then_some(total)
    }
}

const LEAKED: &str = "    Leaked ";

fn text(message: &str) -> &str {
    message.strip_prefix("nvidia-uvm: ").unwrap_or(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collected(lines: &[&str]) -> Leak {
        let mut leak = Leak::default();
        for line in lines {
            assert!(leak.collect(&format!("nvidia-uvm: {line}")), "{line}");
        }
        leak
    }

    const OF_KILLED: [&str; 5] = [
        "!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
        "Memory leak of 146448 bytes detected.",
        "!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
        "    Leaked 73224 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xffa0000008751008)",
        "    Leaked 73224 bytes from uvm_gpu.c:1001:alloc_parent_gpu (0xffa0000008764008)",
    ];

    #[test]
    fn no_leak_is_nothing_to_excuse() {
        assert_eq!(collected(&[]).of_killed_registrations(0), Some(0));
        assert!(!Leak::default().collect("nvidia-uvm: Unloaded the UVM driver."));
    }

    #[test]
    fn gpus_of_killed_processes_are_excused_one_for_each() {
        assert_eq!(collected(&OF_KILLED).of_killed_registrations(2), Some(146_448));
        assert_eq!(collected(&OF_KILLED).of_killed_registrations(1), None);
    }

    #[test]
    fn nothing_is_excused_if_anything_else_is_lost() {
        let with_other = [
            "Memory leak of 73288 bytes detected.",
            OF_KILLED[3],
            "    Leaked 64 bytes from uvm_va_space.c:1355:uvm_gpu_va_space_create (0xffa0)",
        ];
        assert_eq!(collected(&with_other).of_killed_registrations(9), None);
        assert_eq!(collected(&OF_KILLED[..4]).of_killed_registrations(9), None, "one of them is not named");
        let unnamed = ["Memory leak of 73224 bytes detected. insmod with uvm_leak_checker=2 for detailed information."];
        assert_eq!(collected(&unnamed).of_killed_registrations(9), None);
    }
}
