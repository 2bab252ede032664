use thiserror::Error;

/// Reason why data could not be packed or unpacked. The contents of the caller's buffer are
/// unspecified then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// The container is shorter than its header states, or than a header.
    #[error("truncated: {needed_bytes} bytes are needed, there are {have_bytes}")]
    Truncated {
        /// Bytes of the header or the container.
        needed_bytes: u64,
        /// Bytes of the input.
        have_bytes: u64,
    },
    /// The input continues after the end of the container.
    #[error("{surplus_bytes} bytes follow the container")]
    Surplus {
        /// Bytes after the end.
        surplus_bytes: u64,
    },
    /// The input has another magic number than containers of this version.
    #[error("not a container of this codec: it begins with {found:02x?}")]
    Magic {
        /// First bytes of the input.
        found: [u8; 4],
    },
    /// The header is inconsistent, or has values that this version does not know.
    #[error("bad header: {0}")]
    Header(&'static str),
    /// A unit's mask names words beyond the unit or beyond the payload, or a page's last bytes are
    /// not the end of a word.
    #[error("page {page} is corrupted")]
    Page {
        /// Number of the page of 4 KiB.
        page: u64,
    },
    /// A page begins or ends elsewhere than the index states.
    #[error("page {page} does not lie where the index says")]
    Index {
        /// Number of the page of 4 KiB.
        page: u64,
    },
    /// The payload is longer than all pages.
    #[error("{surplus_bytes} bytes of payload belong to no page")]
    Payload {
        /// Bytes after the last page.
        surplus_bytes: u64,
    },
    /// The bytes differ from those that were packed.
    #[error("checksum {computed:016x}, the header says {stored:016x}")]
    Checksum {
        /// Checksum in the header.
        stored: u64,
        /// Checksum of the input.
        computed: u64,
    },
    /// A single page of a container without an index was requested.
    #[error("no index: pages cannot be found one by one")]
    NoIndex,
    /// The requested page does not exist.
    #[error("page {page} of {pages}")]
    NoSuchPage {
        /// Number of the requested page, from 0.
        page: u64,
        /// Number of pages.
        pages: u64,
    },
    /// The caller's buffer has the wrong size.
    #[error("the buffer has {have_bytes} bytes, {needed_bytes} are needed")]
    Buffer {
        /// Bytes that it needs, at most.
        needed_bytes: u64,
        /// Bytes that it has.
        have_bytes: u64,
    },
    /// The size exceeds the index, which counts words in 32 bits, or the address space of this
    /// machine.
    #[error("{raw_bytes} bytes are too many for one container")]
    TooLarge {
        /// Bytes to pack or unpack.
        raw_bytes: u64,
    },
}
