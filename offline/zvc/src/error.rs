use thiserror::Error;

/// Why data could not be packed or unpacked. What was written to a caller's buffer before is unspecified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Error {
    /// The container ends before its header says, or before its header does.
    #[error("truncated: {needed_bytes} bytes are needed, there are {have_bytes}")]
    Truncated {
        /// Bytes that the header or the container takes.
        needed_bytes: u64,
        /// Bytes that there are.
        have_bytes: u64,
    },
    /// The container goes on where its header says that it ends.
    #[error("{surplus_bytes} bytes follow the container")]
    Surplus {
        /// Bytes after the end.
        surplus_bytes: u64,
    },
    /// It begins otherwise than a container of this version.
    #[error("not a container of this codec: it begins with {found:02x?}")]
    Magic {
        /// Its first bytes.
        found: [u8; 4],
    },
    /// The header contradicts itself or says what this version does not know.
    #[error("bad header: {0}")]
    Header(&'static str),
    /// A unit's mask names words beyond the unit or beyond the payload, or a page's last bytes are not the end of a word.
    #[error("page {page} is corrupted")]
    Page {
        /// Which page of 4 KiB.
        page: u64,
    },
    /// A page begins or ends elsewhere than the index says.
    #[error("page {page} does not lie where the index says")]
    Index {
        /// Which page of 4 KiB.
        page: u64,
    },
    /// More payload than all pages take.
    #[error("{surplus_bytes} bytes of payload belong to no page")]
    Payload {
        /// Bytes after the last page.
        surplus_bytes: u64,
    },
    /// The bytes are not those that were packed.
    #[error("checksum {computed:016x}, the header says {stored:016x}")]
    Checksum {
        /// In the header.
        stored: u64,
        /// Of what is there.
        computed: u64,
    },
    /// A single page was asked for of a container that has no index.
    #[error("no index: pages cannot be found one by one")]
    NoIndex,
    /// A page was asked for that there is not.
    #[error("page {page} of {pages}")]
    NoSuchPage {
        /// The page asked for, from 0.
        page: u64,
        /// How many there are.
        pages: u64,
    },
    /// The caller's buffer has another size than what goes into it.
    #[error("the buffer has {have_bytes} bytes, {needed_bytes} are needed")]
    Buffer {
        /// What goes into it, at most.
        needed_bytes: u64,
        /// What it has.
        have_bytes: u64,
    },
    /// The index counts words in 32 bits, or this machine addresses less.
    #[error("{raw_bytes} bytes are too many for one container")]
    TooLarge {
        /// What was to be packed or unpacked.
        raw_bytes: u64,
    },
}
