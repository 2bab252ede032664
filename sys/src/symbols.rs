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
    let mut symbols = BufReader::new(File::open(roots.proc.join("kallsyms"))?);
    let mut line = String::new();
    let mut is_any = false;
    // ADDRESS TYPE NAME\t[MODULE], some 200,000 lines.
    while symbols.read_line(&mut line)? > 0 {
        if let Some(symbol) = line.trim_end().strip_suffix("[nvidia_uvm]") {
            is_any = true;
            if let Some(name) = symbol.split_ascii_whitespace().nth(2) {
                missing.remove(name);
            }
        }
        line.clear();
    }
    if is_any { Ok(missing.into_iter().collect()) } else { Err(io::ErrorKind::NotFound.into()) }
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
    fn no_function_is_missing_where_all_are_listed() {
        let list = NEEDED.iter().map(|probe| format!("0 t {}\t[nvidia_uvm]\n", probe.name()));
        let machine = Machine::new().with("proc/kallsyms", list.collect::<Vec<_>>().concat());
        assert_eq!(lacking(&machine.roots).unwrap(), Vec::<&str>::new());
    }
}
