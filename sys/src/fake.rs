//! Fake machine, made of files, and waits for expected events.
#![expect(
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::unwrap_used,
    reason = "only tests use it"
)]

mod process;
mod types;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub use process::Process;
use rustix::fs::{FileType, Mode};
pub use types::driver_with;

use crate::{btf::MAGIC, roots::Roots};

/// Deadline of an expected event, on a machine under any load.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Repeats a step until it has a result, for two minutes at most.
pub fn until<T>(what: &str, mut step: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(result) = step() {
            return result;
        }
        assert!(begun.elapsed() < TIMEOUT, "{what} within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Fake machine with minimal contents, removed on drop.
pub struct Machine {
    dir: tempfile::TempDir,
    /// Root folders of the machine.
    pub roots: Roots,
}

impl Machine {
    /// Machine with a first process only.
    #[must_use]
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().join("sys") };
        // Every machine has a first process.
        fs::create_dir_all(roots.proc.join("1")).unwrap();
        fs::create_dir(&roots.sys).unwrap();
        Self { dir, roots }
    }

    /// Adds a file, such as `sys/module/nvidia_uvm/version`.
    #[must_use]
    pub fn with(self, path: &str, text: impl AsRef<[u8]>) -> Self {
        self.write(path, text);
        self
    }

    /// Writes a file.
    pub fn write(&self, path: &str, text: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Creates a symbolic link.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    /// Makes a file that keeps its readers waiting until something is written to it. It replaces an earlier one.
    pub fn hang(&self, path: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    /// Removes a folder and its contents.
    pub fn remove(&self, path: impl AsRef<Path>) {
        fs::remove_dir_all(self.dir.path().join(path)).unwrap();
    }
}

/// Types of a kernel with a `rw_semaphore` of 40 bytes, a `mutex` of 32, a `task_struct` with an
/// anonymous struct around two of its members, and plain structs.
#[must_use]
pub fn small_kernel() -> Vec<u8> {
    let strings = b"\0int\0rw_semaphore\0count\0task_struct\0flags\0group_leader\0start_boottime\0\
        real_parent\0tgid\0comm\0real_cred\0cred\0uid\0file\0f_inode\0private_data\0inode\0i_rdev\0i_mode\0mutex\0owner\0";
    let name = |text: &str| {
        let with_end = [text.as_bytes(), b"\0"].concat();
        let at = strings.windows(with_end.len()).position(|window| window == with_end).unwrap();
        u32::try_from(at).unwrap()
    };
    let mut types: Vec<u32> = Vec::new();
    // 1: int
    types.extend([name("int"), 1 << 24, 4, 0x0100_0020]);
    // 2: struct rw_semaphore { int count; } of 40 bytes
    types.extend([name("rw_semaphore"), 4 << 24 | 1, 40, name("count"), 1, 0]);
    // 3: the anonymous struct, with bit fields: start_boottime at 24
    types.extend([0, 1 << 31 | 4 << 24 | 2, 32, name("flags"), 1, 1 << 24 | 3, name("start_boottime"), 1, 24 * 8]);
    // 4: struct task_struct { int flags; struct { ... }; int group_leader; }
    types.extend([
        name("task_struct"),
        4 << 24 | 7,
        88,
        name("flags"),
        1,
        0,
        0,
        3,
        16 * 8,
        name("real_parent"),
        1,
        8 * 8,
        name("group_leader"),
        1,
        48 * 8,
        name("tgid"),
        1,
        56 * 8,
        name("comm"),
        1,
        60 * 8,
        name("real_cred"),
        1,
        80 * 8,
    ]);
    // struct mutex { int owner; } of 32 bytes
    types.extend([name("mutex"), 4 << 24 | 1, 32, name("owner"), 1, 0]);
    for (structure, members) in
        [("cred", &["uid"][..]), ("file", &["f_inode", "private_data"]), ("inode", &["i_rdev", "i_mode"])]
    {
        let count = u32::try_from(members.len()).unwrap();
        types.extend([name(structure), 4 << 24 | count, 8 * count]);
        for (member, at) in members.iter().zip(0..) {
            types.extend([name(member), 1, at * 8 * 8]);
        }
    }
    file_of(&types, strings)
}

/// Types of a driver such as 550, for [`small_kernel`]. `gpu_id`: offset of the id in `uvm_gpu_t`;
/// `lock_extra`: bytes by which its locks exceed the kernel's.
#[must_use]
pub fn small_driver(gpu_id: u32, lock_extra: u32) -> Vec<u8> {
    let strings =
        b"\0uvm_gpu_t\0id\0uvm_perf_va_space_events_t\0va_space\0uvm_va_block_t\0va_range\0start\0resident\0gpus\0\
        uvm_perf_event_data_t\0fault\0gpu\0batch_id\0uvm_fault_buffer_entry_t\0is_replayable\0";
    let kernel = small_kernel();
    let kernel_strings = u32::from_ne_bytes(kernel[20..24].try_into().unwrap());
    let name = |text: &str| {
        let with_end = [b"\0", text.as_bytes(), b"\0"].concat();
        let at = strings.windows(with_end.len()).position(|window| window == with_end).unwrap();
        kernel_strings + u32::try_from(at).unwrap() + 1
    };
    // The kernel has eight types, of which int is the first: these follow from 9.
    let int = 1;
    let structure = |members: &[(&str, u32, u32)]| {
        let count = u32::try_from(members.len()).unwrap();
        let mut words = vec![0, 4 << 24 | count, 0];
        words.extend(members.iter().flat_map(|(member, of, byte)| [name(member), *of, byte * 8]));
        words
    };
    let alias = |text: &str, of: u32| vec![name(text), 8 << 24, of];
    let mut event = structure(&[("fault", 17, 0)]);
    event[2] = 56 + 8;
    let mut entry = structure(&[("is_replayable", int, 0)]);
    // A bit field of one bit: 56 bytes and 3 bits.
    (entry[1], entry[2], entry[5]) = (1 << 31 | entry[1], 88, 1 << 24 | (56 * 8 + 3));
    let types = [
        structure(&[("id", int, gpu_id)]),
        alias("uvm_gpu_t", 9),
        structure(&[("va_space", int, 184 + lock_extra)]),
        alias("uvm_perf_va_space_events_t", 11),
        structure(&[
            ("va_range", int, 40 + lock_extra),
            ("start", int, 48 + lock_extra),
            ("resident", int, 64 + lock_extra),
            ("gpus", int, 472 + lock_extra),
        ]),
        alias("uvm_va_block_t", 13),
        event,
        alias("uvm_perf_event_data_t", 15),
        // fault: an anonymous struct around gpu, one of whose members is batch_id.
        structure(&[("gpu", 18, 24)]),
        structure(&[("batch_id", int, 8)]),
        entry,
        alias("uvm_fault_buffer_entry_t", 19),
    ];
    file_of(&types.concat(), strings)
}

fn file_of(types: &[u32], strings: &[u8]) -> Vec<u8> {
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
    let mut file = MAGIC.to_ne_bytes().to_vec();
    file.extend([1, 0]);
    for word in [24, 0, length(&types), length(&types), length(strings)] {
        file.extend(word.to_ne_bytes());
    }
    file.extend(types);
    file.extend(strings);
    file
}
