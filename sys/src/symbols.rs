//! Which of the driver's functions the kernel knows by name: those that can be probed.
//!
//! Names are shown to everyone; only addresses are hidden (`kernel.kptr_restrict`), and nobody here needs them.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufRead, BufReader},
};

use abi::Probe;

use crate::roots::Roots;

/// Those functions that probes are made for and this driver lacks: renamed, inlined or never there in its version.
///
/// # Errors
/// If the kernel does not list its functions.
pub fn lacking(roots: &Roots) -> io::Result<Vec<&'static str>> {
    let mut wanted: BTreeSet<_> = Probe::ALL.iter().map(|probe| function(*probe)).collect();
    let mut symbols = BufReader::new(File::open(roots.proc.join("kallsyms"))?);
    let mut line = String::new();
    let mut is_any = false;
    // ADDRESS TYPE NAME\t[MODULE], some 200,000 of them.
    while symbols.read_line(&mut line)? > 0 {
        if let Some(symbol) = line.trim_end().strip_suffix("[nvidia_uvm]") {
            is_any = true;
            if let Some(name) = symbol.split_ascii_whitespace().nth(2) {
                wanted.remove(name);
            }
        }
        line.clear();
    }
    if is_any { Ok(wanted.into_iter().collect()) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Whether nothing at all can be counted without it: faults, migrations and whose they are.
#[must_use]
pub fn is_needed(function: &str) -> bool {
    [Probe::Notify, Probe::Register, Probe::DestroyEntry].iter().any(|probe| probe.name() == function)
}

/// The function that a probe is on, be it on its entry or on its return.
fn function(probe: Probe) -> &'static str {
    probe.name().split(' ').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    const OTHERS: &str = "0000000000000000 T uvm_perf_event_notify\n0000000000000000 t nv_probe\t[nvidia]\n";

    #[test]
    fn only_the_drivers_own_functions_count() {
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
    fn nothing_is_lacking_where_every_function_is_listed() {
        let list = Probe::ALL.iter().map(|probe| format!("0 t {}\t[nvidia_uvm]\n", function(*probe)));
        let machine = Machine::new().with("proc/kallsyms", list.collect::<Vec<_>>().concat());
        assert_eq!(lacking(&machine.roots).unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn what_is_needed_is_among_the_probed() {
        let functions: Vec<_> = Probe::ALL.iter().map(|probe| function(*probe)).collect();
        assert_eq!(functions.iter().filter(|function| is_needed(function)).collect::<BTreeSet<_>>().len(), 3);
    }
}
