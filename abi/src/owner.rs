//! Owner of entries of maps, to whom they are charged.

/// The process and the user that an entry is charged to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Owner {
    /// The process.
    pub tgid: u32,
    /// The user.
    pub uid: u32,
}
