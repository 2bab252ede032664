//! Owner of map entries, who is charged for them.

/// Process and user charged for an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// Process.
    pub tgid: u32,
    /// User.
    pub uid: u32,
}
