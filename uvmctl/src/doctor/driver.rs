//! Checks of the loaded nvidia-uvm.

use std::{fs, io};

use model::FatalError;
use sys::{
    Roots,
    btf::Btf,
    driver::Module,
    driver_types,
    families::{Families, Family},
    fatal_error::{self, Acceptance},
    parameters,
    preconditions::Missing,
    reason, symbols,
};

use super::Check;
use crate::text;

const NOT_LOADED: &str = "the version is available once the driver is loaded";

pub(super) fn checks(roots: &Roots, module: Option<&Module>, lacking: &[Missing]) -> Vec<Check> {
    let mut checks = vec![version(roots, module, lacking)];
    if module.is_some() {
        checks.extend([
            types(roots),
            functions(roots),
            gpus(roots),
            new_programs(fatal_error::acceptance(roots)),
            ordinary_memory(roots),
            parameters(roots),
        ]);
    }
    checks
}

fn version(roots: &Roots, module: Option<&Module>, lacking: &[Missing]) -> Check {
    const NAME: &str = "driver";
    let Some(module) = module else {
        return Check::precondition(NAME, lacking, &[Missing::Driver], NOT_LOADED);
    };
    let families = match Families::known() {
        Ok(families) => families,
        Err(error) => return Check::missing(NAME, error.to_string(), "report this: the table is built in"),
    };
    let Some(version) = &module.version else {
        return Check::missing(
            NAME,
            "nvidia-uvm reports no version, so the layout of its structures is unknown",
            "load the driver of a release",
        );
    };
    let shown = text::printable(version);
    if let Some(family) = families.of(version) {
        return Check::ok(NAME, format!("nvidia-uvm {shown}, layout {family}"));
    }
    match family_of_types(roots, &families) {
        Ok(family) => Check::ok(NAME, format!("nvidia-uvm {shown}, layout {family} (version not in the table)")),
        Err(reason) => Check::missing(
            NAME,
            format!("nvidia-uvm {shown} is not supported: version not in the table, and {reason}"),
            format!("update uvmd, build the driver with BTF, or use a driver of {families}"),
        ),
    }
}

/// Family by the driver's types.
fn family_of_types(roots: &Roots, families: &Families) -> Result<Family, String> {
    let read = |name: &str| {
        let file = fs::read(roots.sys.join("kernel/btf").join(name));
        file.map_err(|error| format!("/sys/kernel/btf/{name}: {}", reason(&error)))
    };
    let (kernel, driver) = (read("vmlinux")?, read("nvidia_uvm")?);
    let kernel = Btf::parse(&kernel).map_err(|error| error.to_string())?;
    let types = Btf::parse_module(&kernel, &driver).map_err(|error| error.to_string())?;
    driver_types::derived_family(families, &types)
        .map_err(|unfit| format!("the driver's types cannot be used: {unfit}"))
}

fn types(roots: &Roots) -> Check {
    let has_types = roots.sys.join("kernel/btf/nvidia_uvm").exists();
    let finding = if has_types {
        "the driver exposes its types in /sys/kernel/btf/nvidia_uvm"
    } else {
        "the driver exposes no types, as is common; the layout follows from its version"
    };
    Check::ok("driver types", finding)
}

fn functions(roots: &Roots) -> Check {
    const NAME: &str = "functions";
    let lacking = match symbols::lacking(roots) {
        Ok(lacking) => lacking,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Check::missing(
                NAME,
                "the kernel lists no functions of the driver in /proc/kallsyms",
                "boot a kernel built with CONFIG_KALLSYMS",
            );
        }
        Err(error) => {
            return Check::unknown(NAME, format!("/proc/kallsyms: {}", reason(&error)), "run this as root");
        }
    };
    if lacking.is_empty() {
        return Check::ok(NAME, "the driver has all functions that uvmd must probe");
    }
    Check::missing(
        NAME,
        format!("the driver has no {}, which uvmd must probe", lacking.join(", ")),
        "use a driver whose build does not remove these functions",
    )
}

fn gpus(roots: &Roots) -> Check {
    const NAME: &str = "GPUs";
    const FOLDER: &str = "driver/nvidia/gpus";
    // Reading the entries queries the GPU, which may be asleep or hung; their names suffice.
    let names = fs::read_dir(roots.proc.join(FOLDER)).map(|entries| {
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<_> = names.map(|name| text::printable(&name).into_owned()).collect();
        names.sort();
        names
    });
    match names {
        Ok(names) if !names.is_empty() => Check::ok(NAME, format!("{}: {}", names.len(), names.join(", "))),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Check::unknown(NAME, format!("/proc/{FOLDER}: {}", reason(&error)), "run this as root")
        }
        _ => Check::warning(
            NAME,
            format!("nvidia.ko shows none in /proc/{FOLDER}"),
            "GPUs are counted all the same, by UUID; look at `dmesg` if there should be some",
        ),
    }
}

/// Whether the driver refuses new programs. `nvidia-smi` does not show that, as it does not use
/// nvidia-uvm.
fn new_programs(acceptance: Acceptance) -> Check {
    const NAME: &str = "new programs";
    match acceptance {
        Acceptance::Accepted => Check::ok(NAME, "the driver accepts them"),
        Acceptance::Refused => {
            let advice = format!("{}; `dmesg | grep NVRM` may show the cause", FatalError::ADVICE);
            Check::warning(NAME, FatalError::FINDING, advice)
        }
        Acceptance::Unknown => Check::unknown(
            NAME,
            "/dev/nvidia-uvm-tools of the driver is missing or may not be opened",
            "if it is missing, run `nvidia-modprobe -c 0 -u`; if it may not be opened, run `uvmctl doctor` as root",
        ),
    }
}

/// Whether GPUs use memory that is not managed, such as malloc's: by HMM, or by ATS where the
/// processor and the GPU share page tables. The driver prefers ATS.
fn ordinary_memory(roots: &Roots) -> Check {
    const NAME: &str = "HMM, ATS";
    let value = |name| parameters::value(roots, name);
    let ats = match value("uvm_ats_mode").as_deref() {
        Some("0") => "ATS is off (uvm_ats_mode=0)",
        _ => "ATS is on where the platform has it (`nvidia-smi -q`: Addressing Mode)",
    };
    let hmm = match value("uvm_disable_hmm").as_deref() {
        // The driver before 530 has none.
        None => "this driver has no HMM",
        Some("N") if value("uvm_enable_va_space_mm").as_deref() == Some("0") => "HMM is off (uvm_enable_va_space_mm=0)",
        Some("N") if symbols::has_hmm(roots).is_ok_and(|has_hmm| !has_hmm) => {
            "HMM is off (the driver was built without it, as for a kernel without CONFIG_DEVICE_PRIVATE)"
        }
        Some("N") => {
            "HMM is on, unless ATS is: of ordinary memory, faults, copies and moves are counted, and nothing else"
        }
        Some(_) => "HMM is off (uvm_disable_hmm=Y)",
    };
    Check::ok(NAME, format!("{hmm}; {ats}"))
}

fn parameters(roots: &Roots) -> Check {
    const NAME: &str = "parameters";
    const TESTS: &str = "uvm_enable_builtin_tests";
    let values = parameters::read(roots);
    if values.is_empty() {
        return Check::unknown(NAME, "the driver exposes no known parameters", "look at `modinfo nvidia-uvm`");
    }
    let chosen = parameters::chosen(&values);
    let shown: Vec<_> = chosen
        .iter()
        .map(|(parameter, value)| {
            let default = parameter.default.unwrap_or("?");
            format!("{}={} (default {default})", parameter.name, text::printable(value))
        })
        .collect();
    if chosen.iter().any(|(parameter, _)| parameter.name == TESTS) {
        return Check::warning(
            NAME,
            shown.join(", "),
            format!("load nvidia-uvm without {TESTS}: any user may then break other users' memory"),
        );
    }
    if shown.is_empty() {
        return Check::ok(NAME, format!("all {} that matter are at their defaults", values.len()));
    }
    Check::ok(NAME, shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    #[test]
    fn driver_that_refuses_new_programs_is_a_warning_with_the_remedy() {
        let refused = new_programs(Acceptance::Refused);
        assert_eq!(refused.verdict, Verdict::Warning);
        assert_eq!(refused.finding, "nvidia-uvm has a global fatal error");
        assert!(refused.advice.unwrap().contains("modprobe -r nvidia_uvm && modprobe nvidia_uvm"));
        assert_eq!(new_programs(Acceptance::Accepted).verdict, Verdict::Ok);
        assert_eq!(new_programs(Acceptance::Unknown).verdict, Verdict::Unknown);
    }
}
