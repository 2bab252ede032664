//! Sites of CPU faults.

use serde::{Deserialize, Serialize};

/// Body of `GET /api/v1/processes/{pid}/sites`. Needs read permission.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sites {
    /// Time of the snapshot.
    pub time: String,
    /// Sites with most bytes copied from GPUs, then those with most faults; at most 16. Null where they are not counted, and so are the
    /// figures below.
    pub sites: Option<Vec<Site>>,
    /// Reason why there are no sites, and what would count them; null where they are counted.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// Number of sites.
    pub sites_known: Option<u64>,
    /// CPU faults without a site: beyond the limits of sites, or raised by another process.
    pub unattributed_cpu_faults: Option<u64>,
    /// Bytes copied from GPUs for those.
    pub unattributed_bytes_dtoh: Option<u64>,
    /// Limits of sites, as sentences.
    pub caveats: Vec<String>,
}

/// Instruction that raised CPU faults on managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Site {
    /// Address of the instruction, in hexadecimal, with `0x`; `0x0` for a kernel thread.
    pub address: String,
    /// CPU faults since uvmd counts.
    pub cpu_faults: u64,
    /// Bytes that the driver copied from GPUs for them.
    pub bytes_dtoh: u64,
    /// Place in words.
    pub description: String,
    /// `module`, `anonymous` (memory without a file) or `unmapped`; null until it is looked up, and of a process that exited before.
    pub place: Option<String>,
    /// Path of the file as the process sees it, or the name of a special area.
    pub module: Option<String>,
    /// Offset in the file, in hexadecimal, with `0x`.
    pub module_offset: Option<String>,
    /// Address in the terms of the ELF file, which `addr2line` takes, likewise.
    pub elf_address: Option<String>,
    /// Name of the function in the symbol table of the file.
    pub function: Option<String>,
    /// Bytes from the start of the function to the instruction.
    pub function_offset: Option<u64>,
    /// Reason why there is no function; null where there is one, and without a module.
    pub function_unavailable: Option<String>,
}
