//! Global memory as the interpreter sees it.
//!
//! A global address of the window plus the window's offset is an address of this process, so that
//! an access is a load or store of the CPU. Before it, the interpreter looks into the permissions
//! of the address's granule: where they suffice, nothing is called. Where they do not, it calls
//! [`Memory::miss`], and the warp may park until [`Memory::settle`] has resolved what parked warps
//! missed.

/// Bytes that one permission covers.
pub const GRANULE_BYTES: u64 = 4 << 10;

/// Granule may be read.
pub const READ: u8 = 1 << 0;
/// Granule may be written.
pub const WRITE: u8 = 1 << 1;
/// Granule may be accessed by atomics.
pub const ATOMIC: u8 = 1 << 2;

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Atomic read, modify and write.
    Atomic,
}

impl Access {
    /// Permission that it needs.
    #[must_use]
    pub const fn permission(self) -> u8 {
        match self {
            Self::Read => READ,
            Self::Write => WRITE,
            Self::Atomic => ATOMIC,
        }
    }
}

/// Range of global addresses, and where it lies in this process.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// First global address; a multiple of [`GRANULE_BYTES`].
    pub base: u64,
    /// Length; a multiple of [`GRANULE_BYTES`].
    pub bytes: u64,
    /// Added to a global address, wrapping, it gives the address in this process.
    pub offset: u64,
    /// Permissions of the granules, one byte each; other threads may change them at any time.
    pub permissions: *const std::sync::atomic::AtomicU8,
}

/// Answer to a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Miss {
    /// Perform the access now.
    Go,
    /// Park the warp. Its instruction is executed again after [`Memory::settle`].
    Park,
    /// Perform the access of each lane by [`Memory::load`], [`Memory::store`] or
    /// [`Memory::update`].
    Remote,
}

/// An access that ends the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no access to address {address:#x}")]
pub struct MemoryFault {
    /// Global address.
    pub address: u64,
}

/// One warp's access that lacks a permission.
#[derive(Clone, Copy, Debug)]
pub struct WarpAccess<'a> {
    /// Kind.
    pub access: Access,
    /// Global addresses of the active lanes.
    pub addresses: &'a [u64],
    /// Bytes that each lane accesses: 1 to 16.
    pub lane_bytes: u32,
    /// Times that this warp has parked at this instruction without performing it.
    pub parked: u32,
}

/// Global memory.
///
/// # Safety
/// For each granule whose permissions allow an access, and after [`Miss::Go`], the addresses of the
/// access plus the window's offset are memory of this process that can be accessed in that way.
/// Other threads and processes may access it at the same time.
#[expect(unsafe_code, reason = "the interpreter dereferences the addresses that an implementation permits")]
pub unsafe trait Memory {
    /// Window of all global addresses. Does not change while a kernel runs.
    fn window(&self) -> Window;

    /// Resolves an access that lacks a permission, also one outside of the window.
    ///
    /// # Errors
    /// The access ends the kernel.
    fn miss(&mut self, access: &WarpAccess<'_>) -> Result<Miss, MemoryFault>;

    /// Resolves what parked warps missed; called when no warp can go on.
    ///
    /// # Errors
    /// An access of a parked warp ends the kernel.
    fn settle(&mut self) -> Result<(), MemoryFault>;

    /// Loads the bytes of one lane, after [`Miss::Remote`].
    ///
    /// # Errors
    /// The access ends the kernel.
    fn load(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), MemoryFault>;

    /// Stores the bytes of one lane, after [`Miss::Remote`].
    ///
    /// # Errors
    /// The access ends the kernel.
    fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryFault>;

    /// Updates 4 or 8 bytes atomically, after [`Miss::Remote`]: stores `change(old)` and returns
    /// `old`.
    ///
    /// # Errors
    /// The access ends the kernel.
    fn update(&mut self, address: u64, bytes: u32, change: &mut dyn FnMut(u64) -> u64) -> Result<u64, MemoryFault>;

    /// Writes what a kernel prints by `vprintf`.
    fn print(&mut self, text: &str);
}
