//! Sites of CPU faults.

use api::explain;
use model::{Capabilities, CodePlace, Process, Quantity, Snapshot};

use super::{address, time};

/// Limits of sites.
const CAVEATS: [&str; 5] = [
    "Accesses to memory that is on the host already raise no fault: their number is unknown.",
    "The driver copies more than the page of a fault: its bytes count for the access that came first.",
    "An access of the kernel in a system call counts for the instruction after the call, which is mostly in the C library.",
    "Callers of the function are unknown.",
    "An address is looked up once: other code there later, as of another library, has the name of the earlier one.",
];

pub(crate) fn sites(snapshot: &Snapshot, process: &Process) -> api::Sites {
    let model::Sites { busiest, known, unattributed } = &process.sites;
    let is_counted = Capabilities::of(snapshot).has(Quantity::CpuFaultSites);
    api::Sites {
        time: time(snapshot.taken),
        sites: is_counted.then(|| busiest.iter().map(site).collect()),
        unavailable: Quantity::CpuFaultSites.unavailable(snapshot),
        sites_known: is_counted.then_some(*known),
        unattributed_cpu_faults: is_counted.then_some(unattributed.faults),
        unattributed_bytes_dtoh: is_counted.then_some(unattributed.bytes_dtoh),
        caveats: CAVEATS.map(str::to_owned).into(),
    }
}

fn site(site: &model::Site) -> api::Site {
    let module = match &site.place {
        Some(CodePlace::Module(module)) => Some(module),
        Some(CodePlace::Unmapped | CodePlace::Anonymous) | None => None,
    };
    let symbol = module.and_then(|module| module.symbol.as_ref().ok());
    api::Site {
        address: address(site.pc),
        cpu_faults: site.counts.faults,
        bytes_dtoh: site.counts.bytes_dtoh,
        description: explain::site::place(site),
        place: site.place.as_ref().map(|place| place.name().to_owned()),
        module: module.map(|module| module.path.to_string()),
        module_offset: module.map(|module| address(module.offset)),
        elf_address: module.and_then(|module| module.elf_address).map(address),
        function: symbol.map(|(name, _)| name.clone()),
        function_offset: symbol.map(|(_, offset)| *offset),
        function_unavailable: module.and_then(|module| module.symbol.as_ref().err().cloned()),
    }
}
