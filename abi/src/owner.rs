//! Whom entries of maps are charged to.

/// The process and the user that an entry is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// The process.
    pub tgid: u32,
    /// The user.
    pub uid: u32,
}
