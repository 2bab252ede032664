//! Part of a layout that depends on the kernel only.

use crate::btf::{Btf, BtfError};

/// Upper bound of the size of a kernel's lock, which has some 200 bytes in debug builds.
const LOCK_MAX_BYTES: u32 = 4096;

/// Constants of the kernel, independent of the driver.
#[derive(Clone, Copy, Debug)]
pub struct KernelNumbers {
    pub(super) rw_semaphore_size: u32,
    pub(super) mutex_size: u32,
    pub(super) task_group_leader: u32,
    pub(super) task_real_parent: u32,
    pub(super) task_start_boottime: u32,
    pub(super) task_tgid: u32,
    pub(super) task_comm: u32,
    pub(super) task_credentials: u32,
    pub(super) credentials_uid: u32,
    pub(super) file_inode: u32,
    pub(super) file_private_data: u32,
    pub(super) inode_device: u32,
    pub(super) inode_mode: u32,
    pub(super) page_size: u64,
}

impl KernelNumbers {
    /// Reads the constants from the kernel's types and its page size.
    ///
    /// # Errors
    /// First unexpected type.
    pub fn from_btf(btf: &Btf<'_>, page_size: u64) -> Result<Self, BtfError> {
        let lock = |name| match btf.size_of(name)? {
            size @ ..=LOCK_MAX_BYTES => Ok(size),
            size => Err(BtfError::TooLarge(name, size)),
        };
        Ok(Self {
            rw_semaphore_size: lock("rw_semaphore")?,
            mutex_size: lock("mutex")?,
            task_group_leader: btf.offset_of("task_struct", "group_leader")?,
            task_real_parent: btf.offset_of("task_struct", "real_parent")?,
            task_start_boottime: btf.offset_of("task_struct", "start_boottime")?,
            task_tgid: btf.offset_of("task_struct", "tgid")?,
            task_comm: btf.offset_of("task_struct", "comm")?,
            task_credentials: btf.offset_of("task_struct", "real_cred")?,
            credentials_uid: btf.offset_of("cred", "uid")?,
            file_inode: btf.offset_of("file", "f_inode")?,
            file_private_data: btf.offset_of("file", "private_data")?,
            inode_device: btf.offset_of("inode", "i_rdev")?,
            inode_mode: btf.offset_of("inode", "i_mode")?,
            page_size,
        })
    }

    /// Maximum copy of a block: 2 MiB; with pages larger than 4 KiB, ordinary memory is copied in
    /// units of 512 pages.
    pub(super) const fn block_max_bytes(&self) -> u32 {
        match self.page_size {
            0x1_0000 => 512 * 0x1_0000,
            _ => 2 << 20,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::small_kernel;

    #[test]
    fn impossible_lock_size_is_rejected_by_name() {
        let mut file = small_kernel();
        // Size of the second type, after the header and an integer of 16 bytes.
        let at = 24 + 16 + 8;
        assert_eq!(file[at..at + 4], 40_u32.to_ne_bytes());
        file[at..at + 4].copy_from_slice(&u32::MAX.to_ne_bytes());
        let refused = KernelNumbers::from_btf(&Btf::parse(&file).unwrap(), 4096).unwrap_err();
        assert_eq!(refused, BtfError::TooLarge("rw_semaphore", u32::MAX));
    }
}
