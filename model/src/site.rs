//! Sites: instructions of a process that raise CPU faults on its managed memory.

use std::sync::Arc;

/// Sites of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sites {
    /// Those for which most bytes were copied from GPUs, then those with most faults; at most [`Sites::BUSIEST_MAX`].
    pub busiest: Vec<Site>,
    /// Number of sites.
    pub known: u64,
    /// Sum of those without room in the kernel's map or in uvmd, and of accesses of other processes.
    pub unattributed: SiteCounts,
}

impl Sites {
    /// Maximum of sites of a process in a snapshot.
    pub const BUSIEST_MAX: usize = 16;
}

/// Instruction that raised CPU faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Program counter in user space; 0 in a thread of the kernel, as those of `io_uring`.
    pub pc: u64,
    /// Counts since uvmd counts.
    pub counts: SiteCounts,
    /// Place in the code; `None` until it is looked up, and of a process that exited before that.
    pub place: Option<CodePlace>,
}

/// Counts of one or more sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteCounts {
    /// Bytes that the driver copied from GPUs for the faults.
    pub bytes_dtoh: u64,
    /// CPU faults.
    pub faults: u64,
}

impl SiteCounts {
    /// Sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            bytes_dtoh: self.bytes_dtoh.saturating_add(other.bytes_dtoh),
            faults: self.faults.saturating_add(other.faults),
        }
    }
}

/// Place of an instruction in the code of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePlace {
    /// No memory of the process was there when it was looked up.
    Unmapped,
    /// In memory without a file, as that of a just-in-time compiler.
    Anonymous,
    /// In a file.
    Module(CodeModule),
}

impl CodePlace {
    /// Names of all kinds.
    pub const NAMES: [&'static str; 3] = ["unmapped", "anonymous", "module"];

    /// The name in JSON.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unmapped => "unmapped",
            Self::Anonymous => "anonymous",
            Self::Module(_) => "module",
        }
    }
}

/// Instruction in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeModule {
    /// Path as the process sees it, or the name of a special area, such as `[vdso]`.
    pub path: Arc<str>,
    /// Offset in the file.
    pub offset: u64,
    /// Address in the terms of the ELF file.
    pub elf_address: Option<u64>,
    /// Name of the function, and bytes from its start; otherwise the reason why there is none.
    pub symbol: Result<(String, u64), String>,
}
