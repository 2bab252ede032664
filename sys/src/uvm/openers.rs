//! Processes that have the driver open, found in /proc.

use std::{fs, io};

use super::{
    UvmError,
    descriptors::{Descriptor, Search, folder},
};
use crate::{Roots, driver, pidfd::compare_files, processes};

/// Ids of all processes.
///
/// # Errors
/// If /proc cannot be read.
pub fn processes(roots: &Roots) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(&roots.proc)?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

/// Device of the driver, by which its open files are found.
#[derive(Clone, Copy, Debug)]
pub struct Device(u32);

impl Device {
    /// Device of the loaded driver, if it has one.
    #[must_use]
    pub fn of_driver(roots: &Roots) -> Option<Self> {
        driver::uvm_device(roots).map(Self)
    }

    /// Whether a process has it open. This costs at most the inspection of 65,536 open files.
    ///
    /// # Errors
    /// If the open files cannot be listed, or are too many.
    pub fn is_open_in(self, roots: &Roots, pid: u32) -> Result<bool, UvmError> {
        let Self(device) = self;
        let mut search = Search::of_device(roots, pid, device);
        Ok(!search.candidates(&folder(roots, pid, pid))?.is_empty())
    }
}

/// Whether a process still has a file open that another process has as `file`: looked for at `hint`
/// first, where it was. The result is the current place.
///
/// # Errors
/// If it is unknown: its open files cannot be listed or compared.
pub fn place_of(roots: &Roots, pid: u32, file: Descriptor, hint: Descriptor) -> Result<Option<Descriptor>, UvmError> {
    let is_it = |place: &Descriptor| compare_files(*place, file).is_ok_and(std::cmp::Ordering::is_eq);
    if is_it(&hint) {
        return Ok(Some(hint));
    }
    let unreadable = |source| UvmError::Unreadable { pid, source };
    // Without this comparison, none of the others would tell anything.
    compare_files(file, file).map_err(unreadable)?;
    let thread = processes::live_thread(roots, pid).map_err(unreadable)?.unwrap_or(pid);
    let places = Search::new(roots, pid).candidates(&folder(roots, pid, thread))?;
    Ok(places.into_iter().map(|fd| (thread, fd)).find(is_it))
}
