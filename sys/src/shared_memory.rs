//! Shared memory that a process made for uvmd to read: a sealed `memfd` under a name, found among the
//! process's mappings. uvmd takes no descriptor from the process, and does not attach to it as a debugger
//! does.
//!
//! The process can change its mappings between the search and the open. The file is therefore opened only if
//! it is of the kernel's own file system for such memory, which no user can mount. An open of another file, or
//! a query of its size, may hang or have an effect.
//!
//! The process can make accesses to the memory hang. They are therefore made by an [accessor](crate::accessor) of
//! the process's user, which copies bytes and applies [operations](Operation). It has limits of time: a request
//! may be [pending](SharedMemoryError::Pending), and a memory is refused for good after a
//! [late](SharedMemoryError::Late) one. The file has to belong to the process's user: otherwise, a user could pass
//! memory to a process of another one, whose accessor it would make hang.
//!
//! The process can also punch holes in the memory. A write to a hole through a mapping allocates a page at
//! the expense of the writing process, for as long as the process keeps the memory. Memory with holes is
//! therefore refused, and only its begin can be written.
//!
//! [`users`]: users and their accessors; [`handle`]: one accessor, with its outstanding request; [`hung`]: limits of
//! accessors that do not exit

mod handle;
mod hung;
mod users;

use std::{
    ffi::CStr,
    fs::File,
    io,
    num::NonZeroUsize,
    ops::Range,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use call_ring::Operation;
use rustix::fs::{
    AtFlags, CWD, FileType, MemfdFlags, Mode, OFlags, SealFlags, StatxFlags, fcntl_get_seals, memfd_create, open,
    openat, statx,
};
use thiserror::Error;
use users::Memory;
#[cfg(any(test, feature = "fake"))]
pub use users::accessor_of;
pub use users::set_accessor_program;

#[cfg(any(test, feature = "fake"))]
use crate::accessor::mapping::Mapping;
use crate::{
    Roots,
    accessor::{
        mapping::{WORD_BYTES, is_sparse, taken_bytes},
        wire::{BODY_BYTES_MAX, OPERATIONS_MAX, Request},
    },
    actor::ActorError,
    mappings::{MAPS_MAX_BYTES, Mappings},
    processes,
};

/// Time for which requests are repeated while they are pending: more than an accessor has for one.
const TIMEOUT: Duration = Duration::from_secs(3);
const RETRY_PAUSE: Duration = Duration::from_millis(5);
/// Maximum of memory after the end: a huge page, as `shmem_enabled` can add.
const BEYOND_END_MAX_BYTES: u64 = 2 << 20;
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
    /// Another user made it: its hangs are not at the cost of the process's user.
    #[error("its shared memory belongs to another user")]
    OfAnotherUser,
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
    /// It has more memory after its end than a huge page, which would be freed at uvmd's cost.
    #[error("its shared memory has memory after its end")]
    BeyondEnd,
    /// The reply to a request is still outstanding: try later.
    #[error("its shared memory is not accessible yet")]
    Pending,
    /// A request took too long. The memory is not accessed again.
    #[error("its shared memory was not accessible in time")]
    Late,
    /// Too many accessors hang.
    #[error("too many accessors of shared memory hang, of its user or of all users")]
    Hung,
    /// No accessor can be started.
    #[error("no process can access its shared memory: {0}")]
    NoAccessor(#[source] ActorError),
    /// An access failed.
    #[error("its shared memory cannot be accessed: {}", crate::reason(.0))]
    Access(#[source] io::Error),
}

/// Form of a shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Name.
    pub name: &'static CStr,
    /// Size.
    pub bytes: NonZeroUsize,
    /// Bytes from its begin that may be written: as many as uvmd may have to pay for.
    pub writable_bytes: NonZeroUsize,
}

/// Shared memory of a process, whose words that process may change at any time.
#[derive(Debug)]
pub struct SharedMemory {
    memory: Memory,
    /// Words, of memory that a test made.
    #[cfg(any(test, feature = "fake"))]
    own: Option<Mapping>,
}

impl SharedMemory {
    /// Copies bytes of the memory, in parts.
    ///
    /// # Errors
    /// If the memory lacks pages, or once lacked some; if the memory ends before; or if it is not accessible, at
    /// least now.
    pub fn read_at(&self, mut offset: u64, bytes: &mut [u8]) -> Result<(), SharedMemoryError> {
        for part in bytes.chunks_mut(BODY_BYTES_MAX) {
            let request = Request::Read { memory: self.memory.id(), offset, bytes: part.len() };
            self.memory.request(&request, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Copies the first words. Each is as it was at some moment, and one may be older than another before it.
    ///
    /// # Errors
    /// As [`Self::read_at`].
    pub fn copy_words(&self, count: usize) -> Result<Vec<u64>, SharedMemoryError> {
        let mut bytes = vec![0; count * WORD_BYTES];
        self.read_at(0, &mut bytes)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect())
    }

    /// Applies operations in order until one fails, and then wakes the waiters of a word, if any. Returns whether
    /// none failed. After an error, some may have been applied; a [pending](SharedMemoryError::Pending) request is
    /// applied later.
    ///
    /// # Errors
    /// If the memory lacks pages, or once lacked some; if an operation is on a word that may not be written; or if
    /// it is not accessible, at least now.
    pub fn write(
        &self,
        operations: impl IntoIterator<Item = Operation>,
        wake: Option<usize>,
    ) -> Result<bool, SharedMemoryError> {
        let mut operations = operations.into_iter().peekable();
        loop {
            let part: Vec<Operation> = operations.by_ref().take(OPERATIONS_MAX).collect();
            let (count, is_last) = (part.len(), operations.peek().is_none());
            let request = Request::Write { memory: self.memory.id(), wake: wake.filter(|_| is_last), operations: part };
            if self.memory.request(&request, &mut [])? < count {
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
        }
    }

    /// As [`Self::write`], without a wait: failed operations are not reported.
    ///
    /// # Errors
    /// If an earlier request is pending, or the memory is not accessible.
    pub fn post(&self, operations: Vec<Operation>, wake: Option<usize>) -> Result<(), SharedMemoryError> {
        self.memory.post(&Request::Write { memory: self.memory.id(), wake, operations })
    }

    /// Repeats requests while one is pending, until it is late at most.
    ///
    /// # Errors
    /// As those of the requests; pending only if the node is too busy to start an accessor.
    pub fn with_retries<T>(
        &self,
        mut request: impl FnMut(&Self) -> Result<T, SharedMemoryError>,
    ) -> Result<T, SharedMemoryError> {
        let begun = Instant::now();
        loop {
            match request(self) {
                Err(SharedMemoryError::Pending) if begun.elapsed() < TIMEOUT => thread::sleep(RETRY_PAUSE),
                result => return result,
            }
        }
    }

    fn of(uid: u32, file: File, writable_bytes: usize) -> Result<Self, SharedMemoryError> {
        let metadata = file.metadata().map_err(SharedMemoryError::Open)?;
        let memory = Memory::new(uid, file, writable_bytes, (metadata.dev(), metadata.ino()))?;
        #[cfg(any(test, feature = "fake"))]
        return Ok(Self { memory, own: None });
        #[cfg(not(any(test, feature = "fake")))]
        Ok(Self { memory })
    }

    /// Opens the file of a mapping, if it is still of this device and form.
    fn open(mapping: &Path, form: &Form, device: (u32, u32), uid: u32) -> Result<Self, SharedMemoryError> {
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
        if metadata.uid() != uid {
            return Err(SharedMemoryError::OfAnotherUser);
        }
        let (bytes, expected) = (metadata.len(), form.bytes.get());
        if bytes != expected as u64 {
            return Err(SharedMemoryError::Size { bytes, expected });
        }
        if is_sparse(&metadata) {
            return Err(SharedMemoryError::Sparse);
        }
        // The seals forbid more later.
        if taken_bytes(&metadata) > bytes.saturating_add(BEYOND_END_MAX_BYTES) {
            return Err(SharedMemoryError::BeyondEnd);
        }
        Self::of(uid, memory, form.writable_bytes.min(form.bytes).get())
    }
}

/// Memory that a test makes as the helper does.
#[cfg(any(test, feature = "fake"))]
impl SharedMemory {
    /// Makes such memory, with all of its pages, all of which may be written.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(name: &CStr, bytes: NonZeroUsize) -> io::Result<Self> {
        Self::with_seals(name, bytes, SEALS)
    }

    fn with_seals(name: &CStr, bytes: NonZeroUsize, seals: SealFlags) -> io::Result<Self> {
        let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::fallocate(&memory, rustix::fs::FallocateFlags::empty(), 0, bytes.get() as u64)?;
        rustix::fs::fcntl_add_seals(&memory, seals)?;
        let memory = File::from(memory);
        let own = Mapping::new(&memory, bytes)?;
        let uid = rustix::process::getuid().as_raw();
        let memory = Self::of(uid, memory, bytes.get()).map_err(io::Error::other)?;
        Ok(Self { own: Some(own), ..memory })
    }

    /// Words of the memory.
    #[must_use]
    pub fn words(&self) -> &[std::sync::atomic::AtomicU64] {
        self.own.as_ref().map_or(&[], Mapping::words)
    }

    /// Punches a hole of whole pages, as the process can.
    ///
    /// # Errors
    /// If the kernel does not.
    pub fn punch_hole(&self, bytes: Range<u64>) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(self.memory.file(), flags, bytes.start, bytes.end - bytes.start)?)
    }
}

/// Search for shared memories of one process, which reads its mappings once, in slices.
#[derive(Debug)]
pub struct Search<const N: usize> {
    mappings: Mappings<File>,
    /// Folder with a file for each mapping.
    folder: PathBuf,
    device: (u32, u32),
    /// User of the process, if it can be read.
    uid: Option<u32>,
    memories: [(Form, Option<Range<u64>>); N],
}

impl<const N: usize> Search<N> {
    /// Begins a search for memories of these forms in a process, by one of its threads.
    ///
    /// # Errors
    /// If its mappings cannot be read.
    pub fn begin(roots: &Roots, thread: u32, forms: [Form; N]) -> Result<Self, SharedMemoryError> {
        let folder = roots.proc.join(thread.to_string());
        let device = device().map_err(SharedMemoryError::Open)?;
        let uid = processes::user(roots, thread);
        let maps = File::open(folder.join("maps")).map_err(SharedMemoryError::Mappings)?;
        let mappings = Mappings::new(maps, MAPS_MAX_BYTES);
        Ok(Self { mappings, folder: folder.join("map_files"), device, uid, memories: forms.map(|form| (form, None)) })
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
        let Self { folder, device, uid, memories, mappings: _ } = self;
        memories.map(|(form, found)| {
            let Range { start, end } = found?;
            Some(Place { mapping: folder.join(format!("{start:x}-{end:x}")), form, device, uid })
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
    uid: Option<u32>,
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
    /// If there is none, or it cannot be read, or could be removed later; or if it belongs to another user than the
    /// process, or that one could not be read.
    pub fn open(&self) -> Result<SharedMemory, SharedMemoryError> {
        let no_user = || SharedMemoryError::Mappings(io::ErrorKind::NotFound.into());
        SharedMemory::open(&self.mapping, &self.form, self.device, self.uid.ok_or_else(no_user)?)
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
        Form { name, bytes: BYTES, writable_bytes: BYTES }
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

    #[test]
    fn words_written_on_one_side_are_read_on_the_other() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-words", 8192, SEALS);
        let found = of_this_process(c"uvmd-test-words").unwrap().unwrap();
        let own = own.words();
        own[1023].store(7, Ordering::Relaxed);
        let mut copy = [0; 8];
        found.read_at(8184, &mut copy).unwrap();
        assert_eq!(u64::from_ne_bytes(copy), 7);
        assert_eq!(found.copy_words(1024).unwrap()[1023], 7);
        assert!(found.write([Operation::Store { at: 0, value: 8 }], None).unwrap());
        assert_eq!(own[0].load(Ordering::Relaxed), 8);
        found.post(vec![Operation::Store { at: 0, value: 9 }], None).unwrap();
        assert_eq!(found.copy_words(1).unwrap(), [9]);
    }

    #[test]
    fn operations_are_applied_in_order_until_one_fails() {
        let own = made(c"uvmd-test-order", 8192, SEALS);
        let exchange = |from, to| Operation::CompareExchange { at: 0, from, to };
        let store = |value| Operation::Store { at: 1, value };
        assert!(own.write([exchange(0, 1), store(5), exchange(1, 2)], None).unwrap());
        assert!(!own.write([store(6), exchange(1, 3), store(7)], None).unwrap());
        assert_eq!(own.copy_words(3).unwrap(), [2, 6, 0]);
        // More than one request holds.
        let many = (0..10_000).map(|value| Operation::CompareExchange { at: 2, from: value, to: value + 1 });
        assert!(own.write(many, None).unwrap());
        assert_eq!(own.copy_words(3).unwrap()[2], 10_000);
    }

    #[test]
    fn words_that_may_not_be_written_are_refused_and_nothing_is_written() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-beyond", 8192, SEALS);
        let form = Form { writable_bytes: NonZeroUsize::new(4096).unwrap(), ..form(c"uvmd-test-beyond") };
        let found = open(form).unwrap().unwrap();
        let store = |at| Operation::Store { at, value: 7 };
        for (operations, wake) in
            [(vec![store(0), store(512)], None), (vec![store(0)], Some(512)), (vec![store(usize::MAX)], None)]
        {
            let refused = found.write(operations, wake).unwrap_err();
            assert!(matches!(&refused, SharedMemoryError::Access(error) if error.raw_os_error() == Some(libc::EINVAL)));
        }
        assert!(own.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(found.write([store(511)], Some(511)).unwrap());
    }

    #[test]
    fn memory_with_more_than_a_huge_page_after_its_end_is_refused() {
        use rustix::fs::{FallocateFlags, fallocate, fcntl_add_seals};
        if !is_permitted() {
            return;
        }
        for (name, bytes_after, is_refused) in [
            (c"uvmd-test-after", BEYOND_END_MAX_BYTES, false),
            (c"uvmd-test-far-after", BEYOND_END_MAX_BYTES + 4096, true),
        ] {
            let memory = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            fallocate(&memory, FallocateFlags::empty(), 0, 8192).unwrap();
            fallocate(&memory, FallocateFlags::KEEP_SIZE, 8192, bytes_after).unwrap();
            fcntl_add_seals(&memory, SEALS).unwrap();
            let _mapped = Mapping::new(&File::from(memory), BYTES).unwrap();
            let opened = of_this_process(name);
            assert_eq!(matches!(opened, Err(SharedMemoryError::BeyondEnd)), is_refused, "{opened:?}");
        }
    }

    #[test]
    fn memory_of_another_user_is_refused() {
        if !is_permitted() {
            return;
        }
        let memory = made(c"uvmd-test-another-user", 8192, SEALS);
        assert!(of_this_process(c"uvmd-test-another-user").unwrap().is_some());
        std::os::unix::fs::fchown(memory.memory.file(), Some(12345), None).unwrap();
        let refused = of_this_process(c"uvmd-test-another-user").unwrap_err();
        assert!(matches!(refused, SharedMemoryError::OfAnotherUser), "{refused}");
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
        assert_eq!(own.memory.file().metadata().unwrap().blocks(), 8, "no page was filled");
    }

    #[test]
    fn memory_that_had_holes_is_not_accessed_again() {
        if !is_permitted() {
            return;
        }
        let own = made(c"uvmd-test-punched", 8192, SEALS);
        let form = Form { writable_bytes: NonZeroUsize::new(4096).unwrap(), ..form(c"uvmd-test-punched") };
        let found = open(form).unwrap().unwrap();
        own.words()[1023].store(1, Ordering::Relaxed);
        own.punch_hole(4096..8192).unwrap();
        let is_sparse = |memory: &SharedMemory| {
            let store = Operation::Store { at: 0, value: 1 };
            [memory.copy_words(1).map(drop), memory.write([store], None).map(drop)]
                .map(|result| matches!(result, Err(SharedMemoryError::Sparse)))
        };
        assert_eq!(is_sparse(&found), [true; 2]);
        own.words()[1023].store(1, Ordering::Relaxed);
        assert_eq!((is_sparse(&found), is_sparse(&own)), ([true; 2], [false; 2]), "once is enough");
        let beyond = open(form).unwrap().unwrap().read_at(8192, &mut [0; 1]).unwrap_err();
        assert!(matches!(beyond, SharedMemoryError::Access(_)));
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
        let address = memory.words().as_ptr().cast_mut().cast();
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
        let refused = SharedMemory::open(&pipe, &form(c"uvmd-test-pipe"), device().unwrap(), 0);
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
