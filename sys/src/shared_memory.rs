//! Shared memory that a process made for uvmd to read: a sealed `memfd` under a name, found among the
//! process's mappings. uvmd takes no descriptor from the process, and does not attach to it as a debugger
//! does.
//!
//! The process can change its mappings between the search and the open. The file is therefore opened only if
//! it is of the kernel's own file system for such memory, which no user can mount. An open of another file, or
//! a query of its size, may hang or have an effect.
//!
//! The process can also punch holes in the memory. An access to a hole through a mapping allocates a page at
//! the expense of the accessing process, for as long as the process keeps the memory. Memory with holes is
//! therefore refused before it is mapped, only its begin is mapped, and [`SharedMemory::words`] refuses access
//! to it once there are holes; [`SharedMemory::read_at`] copies from the rest, which takes no memory.
//!
//! The pages are charged to the cgroup in which they were made. A user who owns that cgroup can swap them out
//! and lower its limit, so that an access through a mapping faults without end. What is mapped here is therefore
//! locked in memory, before each use and by the [`guardian`]; `read_at` returns an error for such pages.
//!
//! [`mapping`]: what is mapped; [`guardian`]: the end of accesses that fault without end

mod guardian;
mod mapping;

use std::{
    ffi::CStr,
    fs::File,
    io,
    num::NonZeroUsize,
    ops::Range,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicU64},
};

use mapping::{Mapping, is_sparse};

use rustix::fs::{
    AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, StatxFlags, fcntl_get_seals, memfd_create, open,
    openat, statx,
};
use thiserror::Error;

use crate::{
    Roots,
    mappings::{MAPS_MAX_BYTES, Mappings},
};

/// Seals of such memory: its size is final, and no further memory after its end can be allocated.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Reason why memory of a process is not read.
#[derive(Debug, Error)]
pub enum SharedMemoryError {
    /// The process has exited, or its mappings cannot be read.
    #[error("its mappings cannot be read: {}", crate::reason(.0))]
    Mappings(#[source] io::Error),
    /// The memory cannot be opened.
    #[error("its shared memory cannot be opened, which takes CAP_CHECKPOINT_RESTORE and CAP_DAC_READ_SEARCH: {}", crate::reason(.0))]
    Open(#[source] io::Error),
    /// Another file was mapped in its place before it was opened.
    #[error("another file was mapped in place of its shared memory")]
    Replaced,
    /// It has another size.
    #[error("its shared memory has {bytes} bytes instead of {expected}")]
    Size {
        /// Size.
        bytes: u64,
        /// Size of such memory.
        expected: usize,
    },
    /// It can be resized; if it shrank, an access would end uvmd.
    #[error("its shared memory can be resized")]
    Unsealed,
    /// It lacks pages, which uvmd would pay for.
    #[error("its shared memory has holes")]
    Sparse,
    /// It cannot be locked in memory: its pages were swapped out and their cgroup has no room, or uvmd may lock
    /// no more.
    #[error("its shared memory cannot be locked in memory, which takes CAP_IPC_LOCK or LimitMEMLOCK=: {}", crate::reason(.0))]
    Lock(#[source] io::Error),
    /// It cannot be mapped.
    #[error("its shared memory cannot be mapped: {}", crate::reason(.0))]
    Map(#[source] io::Error),
}

/// Form of a shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Name.
    pub name: &'static CStr,
    /// Size.
    pub bytes: NonZeroUsize,
    /// Bytes from its begin that are mapped here: as many as uvmd may have to pay for.
    pub mapped_bytes: NonZeroUsize,
}

/// Words of shared memory, of which the first ones are mapped here. The other process may change them
/// at any time, but cannot take them away.
#[derive(Debug)]
pub struct SharedMemory {
    mapping: Arc<Mapping>,
    /// Whether another process made it.
    is_foreign: bool,
}

impl SharedMemory {
    /// Makes such memory, as the helper does, with all of its pages, and with all of it mapped.
    ///
    /// # Errors
    /// If it cannot be made.
    #[cfg(any(test, feature = "fake"))]
    pub fn create(name: &CStr, bytes: NonZeroUsize) -> io::Result<Self> {
        Self::with_seals(name, bytes, SEALS)
    }

    /// Punches a hole of whole pages, as the process can.
    ///
    /// # Errors
    /// If the kernel does not.
    #[cfg(any(test, feature = "fake"))]
    pub fn punch_hole(&self, bytes: Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.mapping.file(), flags, bytes.start, bytes.end - bytes.start)?)
    }

    #[cfg(any(test, feature = "fake"))]
    fn with_seals(name: &CStr, bytes: NonZeroUsize, seals: SealFlags) -> io::Result<Self> {
        let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::empty(), 0, bytes.get() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        Ok(Self { mapping: Arc::new(Mapping::new(File::from(memory), bytes)?), is_foreign: false })
    }

    /// Copies bytes of the memory, also of what is not mapped here. Holes are zeros, and stay holes.
    ///
    /// # Errors
    /// If the kernel cannot read them, or the memory ends before.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.mapping.file().read_exact_at(bytes, offset)
    }

    /// Words that are mapped here. Call this again before each use: the process can punch holes at any time,
    /// and an access to a hole punched just then costs this process a page.
    ///
    /// # Errors
    /// If the memory lacks pages, or once lacked some, or cannot be locked, or the kernel does not report it.
    pub fn words(&self) -> Result<&[AtomicU64], SharedMemoryError> {
        self.mapping.check_holes()?;
        if self.is_foreign {
            self.mapping.lock()?;
        }
        Ok(self.mapping.words())
    }

    /// Opens the file of a mapping, if it is still of this device and form.
    fn open(mapping: &Path, form: &Form, device: (u32, u32)) -> Result<Self, SharedMemoryError> {
        let failed = |error: rustix::io::Errno| SharedMemoryError::Open(error.into());
        // An open with `O_PATH` does not reach the file, and this query does not reach its file system.
        let place = openat(CWD, mapping, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let there = statx(&place, c"", flags, StatxFlags::TYPE).map_err(failed)?;
        let is_regular = FileType::from_raw_mode(there.stx_mode.into()) == FileType::RegularFile;
        if !is_regular || (there.stx_dev_major, there.stx_dev_minor) != device {
            return Err(SharedMemoryError::Replaced);
        }
        // Without blocking: the process may have a lease on it.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let memory = open(format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty()).map_err(failed)?;
        // Before the size, which is final with these seals.
        if !fcntl_get_seals(&memory).unwrap_or(SealFlags::empty()).contains(SEALS) {
            return Err(SharedMemoryError::Unsealed);
        }
        let memory = File::from(memory);
        let metadata = memory.metadata().map_err(SharedMemoryError::Open)?;
        let (bytes, expected) = (metadata.len(), form.bytes.get());
        if bytes != expected as u64 {
            return Err(SharedMemoryError::Size { bytes, expected });
        }
        if is_sparse(&metadata) {
            return Err(SharedMemoryError::Sparse);
        }
        let mapping = Mapping::new(memory, form.mapped_bytes.min(form.bytes)).map_err(SharedMemoryError::Map)?;
        let mapping = Arc::new(mapping);
        mapping.lock()?;
        guardian::guard(&mapping).map_err(SharedMemoryError::Map)?;
        Ok(Self { mapping, is_foreign: true })
    }
}

/// Search for shared memories of one process, which reads its mappings once, in slices.
#[derive(Debug)]
pub struct Search<const N: usize> {
    mappings: Mappings<File>,
    /// Folder with a file for each mapping.
    folder: PathBuf,
    device: (u32, u32),
    memories: [(Form, Option<Range<u64>>); N],
}

impl<const N: usize> Search<N> {
    /// Begins a search for memories of these forms in a process, by one of its threads.
    ///
    /// # Errors
    /// If its mappings cannot be read.
    pub fn begin(roots: &Roots, thread: u32, forms: [Form; N]) -> Result<Self, SharedMemoryError> {
        let folder = roots.proc.join(thread.to_string());
        let device = device().map_err(SharedMemoryError::Map)?;
        let maps = File::open(folder.join("maps")).map_err(SharedMemoryError::Mappings)?;
        let mappings = Mappings::new(maps, MAPS_MAX_BYTES);
        Ok(Self { mappings, folder: folder.join("map_files"), device, memories: forms.map(|form| (form, None)) })
    }

    /// Reads the next mappings, about this many bytes of text. Returns whether the search is complete.
    /// This may hang: the process can hold the lock of its memory map.
    ///
    /// # Errors
    /// If they cannot be read, or are too many.
    pub fn advance(&mut self, bytes: u64) -> Result<bool, SharedMemoryError> {
        let Self { mappings, device, memories, .. } = self;
        let is_end = mappings.read(bytes, |mapping| {
            // The first shared mapping of a memory that has it from its begin.
            let Some(name) = mapping.path.strip_prefix("/memfd:") else { return };
            let is_memory = mapping.is_shared && mapping.offset_bytes == 0 && mapping.device == *device;
            for (form, found) in &mut *memories {
                if is_memory && found.is_none() && form.name.to_bytes() == name.as_bytes() {
                    *found = Some(mapping.range.clone());
                }
            }
        });
        Ok(is_end.map_err(SharedMemoryError::Mappings)? || memories.iter().all(|(_, found)| found.is_some()))
    }

    /// Opens the memories found, in the order of the forms; `None` for a form that was not found.
    pub fn open(self) -> [Result<Option<SharedMemory>, SharedMemoryError>; N] {
        self.places().map(|place| place.map(|place| place.open()).transpose())
    }

    /// Places of the memories found, in the order of the forms.
    fn places(self) -> [Option<Place>; N] {
        let Self { folder, device, memories, mappings: _ } = self;
        memories.map(|(form, found)| {
            let Range { start, end } = found?;
            Some(Place { mapping: folder.join(format!("{start:x}-{end:x}")), form, device })
        })
    }
}

/// Place of a shared memory among the mappings of a process: the result of a search, which holds neither a
/// descriptor nor memory of the process.
#[derive(Clone, Debug)]
pub struct Place {
    mapping: PathBuf,
    form: Form,
    device: (u32, u32),
}

impl Place {
    /// Place of a shared memory in a process, by one of its threads; `None` if it has none. Reads all of its
    /// mappings, which may hang, and takes long if there are many.
    ///
    /// # Errors
    /// If they cannot be read, or are too many.
    pub fn find(roots: &Roots, thread: u32, form: Form) -> Result<Option<Self>, SharedMemoryError> {
        let mut search = Search::begin(roots, thread, [form])?;
        while !search.advance(u64::MAX)? {}
        let [place] = search.places();
        Ok(place)
    }

    /// Opens the memory that is there now: of this form, but possibly not the memory that was found.
    ///
    /// # Errors
    /// If there is none, or it cannot be read, or could be removed later.
    pub fn open(&self) -> Result<SharedMemory, SharedMemoryError> {
        SharedMemory::open(&self.mapping, &self.form, self.device)
    }
}

/// Device of the kernel's own file system for such memory. No user can mount it, so that a file of
/// this device never hangs.
fn device() -> io::Result<(u32, u32)> {
    let probe = memfd_create("uvmd-probe", MemfdFlags::CLOEXEC)?;
    let probe = statx(&probe, c"", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    Ok((probe.stx_dev_major, probe.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use std::{
        os::{
            fd::{AsFd, BorrowedFd, OwnedFd},
            unix::fs::MetadataExt,
        },
        process::Command,
        sync::atomic::Ordering,
    };

    use super::*;
    use crate::fake::Machine;

    const BYTES: NonZeroUsize = NonZeroUsize::new(8192).unwrap();

    fn made(name: &CStr, bytes: usize, seals: SealFlags) -> SharedMemory {
        SharedMemory::with_seals(name, NonZeroUsize::new(bytes).unwrap(), seals).unwrap()
    }

    const fn form(name: &'static CStr) -> Form {
        Form { name, bytes: BYTES, mapped_bytes: BYTES }
    }

    fn open(form: Form) -> Result<Option<SharedMemory>, SharedMemoryError> {
        Place::find(&Roots::default(), std::process::id(), form)?.map(|place| place.open()).transpose()
    }

    fn of_this_process(name: &'static CStr) -> Result<Option<SharedMemory>, SharedMemoryError> {
        open(form(name))
    }

    /// Whether this machine lets the test open mappings.
    fn is_permitted() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        assert!(is_root || std::env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
        is_root
    }

    /// Bytes of mappings of this memory that are locked in this process.
    fn locked_bytes(name: &str) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut is_of_memory = false;
        let mut locked = 0;
        for line in smaps.lines() {
            if line.split(' ').next().is_some_and(|first| first.contains('-')) {
                is_of_memory = line.contains(name);
            } else if let Some(kib) = line.strip_prefix("Locked:").filter(|_| is_of_memory) {
                locked += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
            }
        }
        locked
    }

    #[test]
    fn opened_memory_cannot_be_swapped_out() {
        if !is_permitted() {
            return;
        }
        let _own = made(c"uvmd-test-locked", 8192, SEALS);
        assert_eq!(locked_bytes("uvmd-test-locked"), 0);
        let found = of_this_process(c"uvmd-test-locked").unwrap().unwrap();
        assert_eq!(locked_bytes("uvmd-test-locked"), 8192);
        drop(found);
        assert_eq!(locked_bytes("uvmd-test-locked"), 0);
    }

    #[test]
    fn revoked_memory_reads_zeros_at_the_same_address() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-revoked", 8192, SEALS);
        own.words().unwrap()[0].store(7, Ordering::Relaxed);
        let found = of_this_process(c"uvmd-test-revoked").unwrap().unwrap();
        let words = found.words().unwrap();
        assert_eq!(words[0].load(Ordering::Relaxed), 7);
        found.mapping.revoke();
        assert_eq!(words[0].load(Ordering::Relaxed), 0);
        words[0].store(8, Ordering::Relaxed);
        assert_eq!(own.words().unwrap()[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn words_written_on_one_side_are_read_on_the_other() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-words", 8192, SEALS);
        let found = of_this_process(c"uvmd-test-words").unwrap().unwrap();
        let (own, words) = (own.words().unwrap(), found.words().unwrap());
        own[1023].store(7, Ordering::Relaxed);
        assert_eq!((words.len(), words[1023].load(Ordering::Relaxed)), (1024, 7));
        let mut copy = [0; 8];
        found.read_at(8184, &mut copy).unwrap();
        assert_eq!(u64::from_ne_bytes(copy), 7);
        words[0].store(8, Ordering::Relaxed);
        assert_eq!(own[0].load(Ordering::Relaxed), 8);
    }

    #[test]
    fn memory_that_can_be_resized_or_has_another_size_is_refused() {
        if !is_permitted() {
            return;
        }
        for seals in [SealFlags::GROW, SealFlags::SHRINK] {
            let _unsealed = made(c"uvmd-test-unsealed", 8192, seals);
            let refused = of_this_process(c"uvmd-test-unsealed").unwrap_err();
            assert!(matches!(refused, SharedMemoryError::Unsealed), "{refused}");
        }
        let _larger = made(c"uvmd-test-larger", 12288, SEALS);
        let refused = of_this_process(c"uvmd-test-larger").unwrap_err();
        assert!(matches!(refused, SharedMemoryError::Size { bytes: 12288, expected: 8192 }), "{refused}");
    }

    #[test]
    fn process_without_the_memory_has_none() {
        assert!(of_this_process(c"uvmd-test-nothing").unwrap().is_none());
    }

    #[test]
    fn one_search_finds_all_memories_of_a_process() {
        if !is_permitted() {
            return;
        }
        let _own = [c"uvmd-test-first", c"uvmd-test-second"].map(|name| made(name, 8192, SEALS));
        let forms = [form(c"uvmd-test-second"), form(c"uvmd-test-absent"), form(c"uvmd-test-first")];
        let mut search = Search::begin(&Roots::default(), std::process::id(), forms).unwrap();
        while !search.advance(100).unwrap() {}
        assert_eq!(search.open().map(|found| found.unwrap().is_some()), [true, false, true]);
    }

    #[test]
    fn memory_with_holes_is_refused_before_it_takes_any() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-sparse", 8192, SEALS);
        own.punch_hole(0..4096).unwrap();
        let refused = of_this_process(c"uvmd-test-sparse").unwrap_err();
        assert!(matches!(refused, SharedMemoryError::Sparse), "{refused}");
        assert_eq!(own.mapping.file().metadata().unwrap().blocks(), 8, "no page was filled");
    }

    #[test]
    fn copies_of_holes_take_no_memory() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-punched", 8192, SEALS);
        let form = Form { mapped_bytes: NonZeroUsize::new(4096).unwrap(), ..form(c"uvmd-test-punched") };
        let found = open(form).unwrap().unwrap();
        let words = own.words().unwrap();
        assert_eq!(found.words().unwrap().len(), 512);
        words[1023].store(1, Ordering::Relaxed);
        own.punch_hole(4096..8192).unwrap();
        let mut copy = [1; 8192];
        found.read_at(0, &mut copy).unwrap();
        let is_sparse = |memory: &SharedMemory| matches!(memory.words(), Err(SharedMemoryError::Sparse));
        assert!(copy == [0; 8192] && is_sparse(&found));
        words[1023].store(1, Ordering::Relaxed);
        assert!(is_sparse(&found) && !is_sparse(&own), "once is enough");
        assert_eq!(found.read_at(8192, &mut copy).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Opens of a file while this value lives.
    struct Opens(OwnedFd);

    impl Opens {
        fn of(file: &Path) -> Self {
            use rustix::fs::inotify;
            let opens = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            inotify::add_watch(&opens, file, inotify::WatchFlags::OPEN).unwrap();
            Self(opens)
        }

        fn is_empty(&self) -> bool {
            rustix::io::read(&self.0, &mut [0; 256]) == Err(rustix::io::Errno::AGAIN)
        }
    }

    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    fn map_over(memory: &SharedMemory, file: BorrowedFd<'_>) {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        let address = memory.mapping.words().as_ptr().cast_mut().cast();
        // SAFETY: replaces the mapping of a value that is no longer read.
        let mapped = unsafe { libc::mmap(address, 8192, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
        assert_eq!(mapped, address);
    }

    #[test]
    fn file_that_is_mapped_in_place_of_the_memory_is_not_opened() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-replaced", 8192, SEALS);
        let other = tempfile::NamedTempFile::new().unwrap();
        other.as_file().set_len(8192).unwrap();
        let mut search = Search::begin(&Roots::default(), std::process::id(), [form(c"uvmd-test-replaced")]).unwrap();
        while !search.advance(u64::MAX).unwrap() {}
        map_over(&own, other.as_file().as_fd());
        let opens = Opens::of(other.path());
        let [refused] = search.open();
        assert!(matches!(refused, Err(SharedMemoryError::Replaced)), "{refused:?}");
        assert!(opens.is_empty());
    }

    #[test]
    fn pipe_in_place_of_the_memory_delays_nobody() {
        let machine = Machine::new().with("memory", "");
        let pipe = machine.roots.proc.join("pipe");
        std::fs::create_dir_all(&machine.roots.proc).unwrap();
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = SharedMemory::open(&pipe, &form(c"uvmd-test-pipe"), device().unwrap());
        assert!(matches!(refused, Err(SharedMemoryError::Replaced)), "{refused:?}");
    }

    #[test]
    fn file_of_another_file_system_with_the_same_name_is_not_found() {
        let (major, minor) = device().unwrap();
        let line = format!(
            "7f0000000000-7f0000002000 rw-s 00000000 {major:02x}:{minor:02x} 1024 /memfd:uvmd-ring (deleted)\n"
        );
        let found = |line: &str| {
            let machine = Machine::new().with("proc/7/maps", line);
            let mut search = Search::begin(&machine.roots, 7, [form(c"uvmd-ring")]).unwrap();
            while !search.advance(1).unwrap() {}
            let [(_, found)] = search.memories;
            found
        };
        assert_eq!(found(&line), Some(0x7f00_0000_0000..0x7f00_0000_2000));
        assert_eq!(found(&line.replace(&format!(" {major:02x}:"), " ff:")), None);
        assert_eq!(found(&line.replace("rw-s", "rw-p")), None);
        assert_eq!(found(&line.replace(" 00000000", " 00001000")), None);
        assert_eq!(found(&line.replace("uvmd-ring", "uvmd-ring2")), None);
    }
}
