//! Managed memory of a process: its mappings of the driver's device, from /proc/PID/maps, a read of
//! which may hang.
//!
//! The file belongs to a thread, and is empty once the thread has released its memory, as a first
//! thread does that exits before the others. If the process's own file is empty, that of any other
//! thread serves as well.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
    path::Path,
};

use crate::{
    Roots,
    mappings::{self, MAPS_MAX_BYTES},
    processes::{is_gone, other_threads, task_folder},
};

/// End of the device's path, which is longer for a process with another root.
const DEVICE: &str = "dev/nvidia-uvm";

/// Mappings of managed memory, in the order of addresses. The driver accepts only those whose
/// address equals their offset. Empty for a process that has no memory any more.
///
/// # Errors
/// If the process has exited, its maps cannot be read, or there are too many of them.
pub fn of(roots: &Roots, pid: u32) -> io::Result<Vec<Range<u64>>> {
    if let Some(spans) = read(File::open(roots.proc.join(pid.to_string()).join("maps"))?, MAPS_MAX_BYTES)? {
        return Ok(spans);
    }
    for thread in other_threads(roots, pid)? {
        let spans =
            File::open(task_folder(roots, pid, thread).join("maps")).and_then(|maps| read(maps, MAPS_MAX_BYTES));
        match spans {
            Ok(Some(spans)) => return Ok(spans),
            Ok(None) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Vec::new())
}

/// Managed mappings of a maps file; `None` if it is empty.
fn read(maps: impl Read, max_bytes: u64) -> io::Result<Option<Vec<Range<u64>>>> {
    let mut spans = Vec::<Range<u64>>::new();
    let has_lines = mappings::for_each(maps, max_bytes, |mapping| {
        // The kernel sorts them; duplicates in a damaged file are dropped.
        let is_new = spans.last().is_none_or(|last| last.end <= mapping.range.start);
        if is_new && Path::new(mapping.path).ends_with(DEVICE) {
            spans.push(mapping.range);
        }
    })?;
    Ok(has_lines.then_some(spans))
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::fake::Machine;

    #[test]
    fn mappings_are_read_from_a_live_thread() {
        let maps = "7f0000600000-7f0000601000 rw-s 0 00:06 1 /dev/nvidia-uvm\n";
        let machine = Machine::new().with("proc/7/maps", "").with("proc/7/task/7/maps", "");
        assert_eq!(of(&machine.roots, 7).unwrap(), [], "it has no memory any more");
        machine.write("proc/7/task/9/maps", maps);
        assert_eq!(of(&machine.roots, 7).unwrap(), from_ref(&(0x7f00_0060_0000..0x7f00_0060_1000)));
        machine.write("proc/7/task/8/maps/unreadable", "");
        assert!(of(&machine.roots, 7).is_err(), "what cannot be read may be mapped");
    }

    #[test]
    fn only_device_mappings_are_listed() {
        let maps = "55d0c0000000-55d0c0001000 r--p 00000000 08:01 42   /usr/bin/python3\n\
            7f0000000000-7f0000400000 rw-s 7f0000000000 00:06 123  /dev/nvidia-uvm\n\
            7f0000400000-7f0000500000 rw-s 00000000 00:06 124      /dev/nvidia0\n\
            7f0000600000-7f0000601000 rw-s 7f0000600000 00:06 123  /srv/root/dev/nvidia-uvm\n\
            7f0000700000-7f0000701000 rw-s 00000000 00:06 125      /dev/nvidia-uvm-tools\n\
            7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0        [stack]\n";
        let spans = [0x7f00_0000_0000..0x7f00_0040_0000, 0x7f00_0060_0000..0x7f00_0060_1000];
        assert_eq!(read(maps.as_bytes(), 4096).unwrap().unwrap(), spans);
    }

    #[test]
    fn truncated_maps_count_readable_lines() {
        let maps = "7f0000000000-7f00\nnonsense\n\n7f0000600000-7f0000601000 rw-s 0 00:06 1 /dev/nvidia-uvm\n\
            7f0000600000-7f0000602000 rw-s 0 00:06 1 /dev/nvidia-uvm\n9-8 rw-s 0 00:06 1 /dev/nvidia-uvm\nfffffffffffffffff-0 rw-s 0 0 1 /dev/nvidia-uvm\n7f00006";
        assert_eq!(read(maps.as_bytes(), 4096).unwrap().unwrap(), from_ref(&(0x7f00_0060_0000..0x7f00_0060_1000)));
    }

    #[test]
    fn excess_mappings_are_unknown() {
        assert!(read(io::repeat(b'\n'), 4096).is_err());
        assert!(read(io::repeat(b'x'), 4096).is_err());
    }

    #[test]
    fn exited_process_has_no_mappings() {
        assert_eq!(of(&Roots::default(), std::process::id()).unwrap(), []);
        assert_eq!(of(&Roots::default(), u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// File whose read fails, as that of an exiting process does.
    struct Exits(&'static [u8]);

    impl Read for Exits {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Err(io::Error::from_raw_os_error(3)); // ESRCH
            }
            self.0.read(buffer)
        }
    }

    #[test]
    fn process_that_exits_during_a_read_has_no_mappings() {
        let maps = Exits(b"7f0000600000-7f0000601000 rw-s 0 00:06 1 /dev/nvidia-uvm\n7f00");
        assert_eq!(read(maps, 4096).unwrap_err().raw_os_error(), Some(3));
    }
}
