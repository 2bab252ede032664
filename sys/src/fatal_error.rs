//! The driver's global fatal error, by an open of its device.
//!
//! nvidia-uvm keeps the first error that it cannot recover from until it is reloaded, and refuses
//! each later open of its devices with it. An open of `/dev/nvidia-uvm-tools` does nothing else, so
//! its result is the driver's own word, which no program can forge. A line of the kernel's log
//! exists from 565 on alone, and may have been overwritten since.

use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{OFlags, makedev},
    io::Errno,
};

use crate::{
    cpu_budget::Allowance,
    driver,
    process_users::Folder,
    readers::{Charges, Readers, Sleeps, Target},
    roots::Roots,
};

/// Nothing is charged to a user: uvmd opens the device for itself.
static READERS: Readers = Readers::new(Charges {
    sleeps: Sleeps::OfCaller,
    cpu_free: Duration::MAX,
    allowance: Allowance { part: 1, burst: Duration::ZERO, credit_part: None },
});

const FOLDER: &str = "/dev";
const DEVICE: &str = "/dev/nvidia-uvm-tools";
/// Minor number of that device.
const MINOR: u32 = 1;

/// Whether the driver accepts new programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acceptance {
    /// The device was opened.
    Accepted,
    /// The driver refused the open, as it does after a global fatal error.
    Refused,
    /// No device of this driver, or no permission to open it.
    #[default]
    Unknown,
}

/// Opens the device of the loaded driver, and closes it at once.
#[must_use]
pub fn acceptance(roots: &Roots) -> Acceptance {
    acceptance_of_device(Path::new(DEVICE), driver::uvm_device(roots))
}

/// [`acceptance`] with a timeout, as users can lock the folder of the devices.
#[must_use]
pub fn acceptance_with_timeout(roots: &Roots) -> Acceptance {
    let own = roots.clone();
    let opened = target(roots).and_then(|target| READERS.read(&target, move || Ok(acceptance(&own))));
    opened.unwrap_or_default()
}

/// The folder of /sys stands for that of the devices, whose times change with its devices.
fn target(roots: &Roots) -> io::Result<Target> {
    Ok(Target { pid: 0, folder: Folder::of(&roots.sys)?.id, path: FOLDER.into(), uid: 0 })
}

/// `driver`: device of minor 0, as [`driver::uvm_device`] has it.
fn acceptance_of_device(path: &Path, driver: Option<u32>) -> Acceptance {
    /// Bits of the minor number in the kernel's encoding.
    const MINOR_BITS: u32 = 20;
    // A node left by an earlier loading of the driver may be another driver's device by now.
    let is_of_driver =
        |driver: u32| fs::metadata(path).is_ok_and(|metadata| metadata.rdev() == makedev(driver >> MINOR_BITS, MINOR));
    if !driver.is_some_and(is_of_driver) {
        return Acceptance::Unknown;
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    acceptance_of_open(&opened.map(drop))
}

/// The driver's statuses become few error numbers. Those that the kernel itself has for an open, as
/// without permission, are no answer of the driver.
fn acceptance_of_open(opened: &io::Result<()>) -> Acceptance {
    match opened {
        Ok(()) => Acceptance::Accepted,
        Err(error) => match Errno::from_io_error(error) {
            Some(Errno::IO | Errno::INVAL | Errno::TIMEDOUT) => Acceptance::Refused,
            _ => Acceptance::Unknown,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_the_driver_is_distinguished_from_one_of_the_kernel() {
        let of = |errno: Errno| acceptance_of_open(&Err(errno.into()));
        // NV_ERR_RC_ERROR and NV_ERR_ECC_ERROR; NV_ERR_INVALID_STATE and those without a number.
        assert_eq!([Errno::IO, Errno::INVAL].map(of), [Acceptance::Refused; 2]);
        let of_the_kernel =
            [Errno::PERM, Errno::ACCESS, Errno::NOENT, Errno::NXIO, Errno::NODEV, Errno::MFILE, Errno::NOMEM];
        assert_eq!(of_the_kernel.map(of), [Acceptance::Unknown; 7]);
        assert_eq!(acceptance_of_open(&Ok(())), Acceptance::Accepted);
    }

    #[test]
    fn device_of_another_driver_is_not_opened() {
        // The null device, 1:3, opens for everybody.
        assert_eq!(acceptance_of_device(Path::new("/dev/null"), Some(1 << 20)), Acceptance::Unknown);
        assert_eq!(acceptance_of_device(Path::new("/dev/null"), None), Acceptance::Unknown);
    }
}
