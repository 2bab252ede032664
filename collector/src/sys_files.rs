//! Files of /sys for the probes: preconditions, types, and the driver's parameters. They are read by threads with
//! timeout, as users can lock its folders.

use std::{collections::BTreeMap, fs, io};

use sys::{
    Roots,
    driver::Module,
    parameters,
    preconditions::{self, Attachment, Missing},
    sysfs::{self, Unread},
};

/// Files that aya reads while it attaches probes. Once a name was looked up, the next look-up takes no lock.
const READ_BY_AYA: [&str; 4] = [
    "bus/event_source/devices/kprobe/type",
    "bus/event_source/devices/kprobe/format/retprobe",
    "devices/system/cpu/online",
    "devices/system/cpu/possible",
];

/// Facts in /sys about this kernel and one loading of the driver.
pub(crate) struct SysFiles {
    pub(crate) missing: Vec<Missing>,
    /// Only if nothing is missing.
    pub(crate) of_driver: Option<DriverFiles>,
}

/// Types and parameters.
pub(crate) struct DriverFiles {
    pub(crate) attachment: Attachment,
    /// BTF of the kernel.
    pub(crate) kernel_types: io::Result<Vec<u8>>,
    /// BTF of the driver, if the kernel exposes it.
    pub(crate) driver_types: Option<Vec<u8>>,
    pub(crate) parameters: BTreeMap<String, String>,
}

impl SysFiles {
    /// # Errors
    /// If /sys does not answer.
    pub(crate) fn read(roots: &Roots, module: Option<&Module>) -> Result<Self, Unread> {
        let module = module.cloned();
        sysfs::read(roots, move |roots| {
            let missing = preconditions::missing(roots, module.as_ref());
            let attachment = preconditions::attachment(roots).ok().filter(|_| missing.is_empty());
            let of_driver = attachment.map(|attachment| DriverFiles::read(roots, attachment));
            Self { missing, of_driver }
        })
    }
}

impl DriverFiles {
    fn read(roots: &Roots, attachment: Attachment) -> Self {
        for name in READ_BY_AYA {
            // Whether it can be read is aya's to say.
            let _ = fs::read(roots.sys.join(name));
        }
        Self {
            attachment,
            kernel_types: fs::read(roots.sys.join("kernel/btf/vmlinux")),
            driver_types: fs::read(roots.sys.join("kernel/btf/nvidia_uvm")).ok(),
            parameters: parameters::read(roots),
        }
    }
}
