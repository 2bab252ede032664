//! Functions of the driver that the kernel lists by name: those that can be probed.
//!
//! All users can read the names; only addresses are hidden (`kernel.kptr_restrict`), which are not
//! needed here.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader},
};

use abi::Probe;

use crate::roots::Roots;

/// Functions without which nothing can be counted: faults, migrations and their processes. Others
/// depend on the driver's version, and the collector reports the effect of a missing one.
pub const NEEDED: [Probe; 3] = [Probe::Notify, Probe::Register, Probe::DestroyEntry];

/// Needed functions that this driver lacks: renamed or inlined in its build.
///
/// # Errors
/// If the kernel does not list its functions.
pub fn lacking(roots: &Roots) -> io::Result<Vec<&'static str>> {
    let mut missing: BTreeSet<_> = NEEDED.iter().map(|probe| probe.name()).collect();
    of_driver(roots, |name| {
        missing.remove(name);
    })?;
    Ok(missing.into_iter().collect())
}

/// Whether the driver was built with HMM, which takes a kernel with `CONFIG_DEVICE_PRIVATE`.
///
/// # Errors
/// If the kernel does not list its functions.
pub fn has_hmm(roots: &Roots) -> io::Result<bool> {
    let mut has_hmm = false;
    of_driver(roots, |name| has_hmm |= name.starts_with("uvm_hmm_"))?;
    Ok(has_hmm)
}

/// Visits the names of the driver's functions.
fn of_driver(roots: &Roots, mut visit: impl FnMut(&str)) -> io::Result<()> {
    let mut symbols = BufReader::new(File::open(roots.proc.join("kallsyms"))?);
    let mut line = String::new();
    let mut is_any = false;
    // ADDRESS TYPE NAME\t[MODULE], some 200,000 lines.
    while symbols.read_line(&mut line)? > 0 {
        if let Some(symbol) = line.trim_end().strip_suffix("[nvidia_uvm]") {
            is_any = true;
            if let Some(name) = symbol.split_ascii_whitespace().nth(2) {
                visit(name);
            }
        }
        line.clear();
    }
    if is_any { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    const OTHERS: &str = "0000000000000000 T uvm_perf_event_notify\n0000000000000000 t nv_probe\t[nvidia]\n";

    #[test]
    fn functions_of_other_modules_are_ignored() {
        let machine = Machine::new().with("proc/kallsyms", OTHERS);
        assert_eq!(lacking(&machine.roots).unwrap_err().kind(), io::ErrorKind::NotFound);
        machine.write(
            "proc/kallsyms",
            format!(
                "{OTHERS}ffff t uvm_va_space_destroy\t[nvidia_uvm]\nffff t uvm_perf_event_notify.cold\t[nvidia_uvm]\n"
            ),
        );
        let lacking = lacking(&machine.roots).unwrap();
        assert!(
            lacking.contains(&"uvm_perf_event_notify") && !lacking.contains(&"uvm_va_space_destroy"),
            "{lacking:?}"
        );
    }

    #[test]
    fn driver_with_functions_of_hmm_was_built_with_it() {
        let machine = Machine::new().with("proc/kallsyms", "0 t uvm_va_space_cpu_fault_hmm\t[nvidia_uvm]\n");
        assert!(!has_hmm(&machine.roots).unwrap());
        machine.write("proc/kallsyms", "0 t uvm_hmm_va_space_initialize\t[nvidia_uvm]\n");
        assert!(has_hmm(&machine.roots).unwrap());
    }

    #[test]
    fn no_function_is_missing_where_all_are_listed() {
        let list = NEEDED.iter().map(|probe| format!("0 t {}\t[nvidia_uvm]\n", probe.name()));
        let machine = Machine::new().with("proc/kallsyms", list.collect::<Vec<_>>().concat());
        assert_eq!(lacking(&machine.roots).unwrap(), Vec::<&str>::new());
    }
}
