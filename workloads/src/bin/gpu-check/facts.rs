//! Facts that determine how uvmd can observe and act on this machine. Gathering only reads.

use std::{fs, path::Path, process::Command, time::Duration};

use serde::Serialize;
use sys::{Roots, driver, families::Families, kernel, preconditions};

use crate::deadline::{Deadline, run};

/// One fact, with a value of one or several lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Fact {
    pub(crate) section: &'static str,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Kernel options that determine which mechanisms uvmd can use.
const CONFIGURATION: &[&str] = &[
    "CONFIG_KPROBES",
    "CONFIG_KPROBE_EVENTS",
    "CONFIG_UPROBES",
    "CONFIG_UPROBE_EVENTS",
    "CONFIG_MODULES",
    "CONFIG_KCMP",
    "CONFIG_PROC_EVENTS",
    "CONFIG_CGROUP_BPF",
    "CONFIG_BPF_EVENTS",
    "CONFIG_BPF_SYSCALL",
    "CONFIG_BPF_JIT",
    "CONFIG_DEBUG_INFO_BTF",
    "CONFIG_DEBUG_INFO_BTF_MODULES",
    "CONFIG_FUNCTION_TRACER",
    "CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS",
    "CONFIG_HMM_MIRROR",
    "CONFIG_DEVICE_PRIVATE",
    "CONFIG_LTO_CLANG",
    "CONFIG_SECURITY_LOCKDOWN_LSM",
    "CONFIG_MEMCG",
    "CONFIG_NUMA",
    "CONFIG_NODES_SHIFT",
];

/// Functions of the driver that uvmd probes, or may probe in future.
const FUNCTIONS: &[&str] = &[
    "uvm_perf_event_notify",
    "uvm_va_space_mm_register",
    "uvm_va_space_destroy",
    "uvm_parent_gpu_service_replayable_faults",
    "uvm_gpu_service_replayable_faults",
    "uvm_tools_broadcast_replay",
    "uvm_tools_record_thrashing",
    "uvm_tools_record_throttling_start",
    "uvm_tools_record_throttling_end",
    "uvm_tools_record_map_remote",
    "uvm_va_block_evict_chunks",
    "uvm_api_migrate",
    "uvm_api_set_preferred_location",
];

const FILES: &[(&str, &str)] = &[
    ("system", "sys/kernel/osrelease"),
    ("system", "version"),
    ("permissions", "sys/kernel/unprivileged_bpf_disabled"),
    ("permissions", "sys/kernel/yama/ptrace_scope"),
    ("permissions", "sys/kernel/kptr_restrict"),
    ("permissions", "sys/kernel/perf_event_paranoid"),
    ("driver", "driver/nvidia/version"),
];
const SYS_FILES: &[(&str, &str)] = &[
    ("permissions", "kernel/security/lockdown"),
    ("driver", "module/nvidia_uvm/version"),
    ("driver", "module/nvidia_uvm/srcversion"),
    ("driver", "module/nvidia_uvm/refcnt"),
    ("driver", "module/nvidia/version"),
];

/// Gathers all facts, including the output of programs.
pub(crate) fn gather(roots: &Roots, uvmctl: Option<&Path>, deadline: Deadline) -> Vec<Fact> {
    let mut facts = Facts(Vec::new());
    facts.read_files(roots);
    facts.support(roots);
    facts.kernel(roots);
    facts.driver(roots);
    facts.programs(roots, uvmctl, deadline);
    facts.by_section()
}

struct Facts(Vec<Fact>);

impl Facts {
    fn add(&mut self, section: &'static str, name: impl Into<String>, value: impl Into<String>) {
        self.0.push(Fact { section, name: name.into(), value: value.into().trim_end().to_owned() });
    }

    /// Facts by section, in the order in which sections were first added.
    fn by_section(self) -> Vec<Fact> {
        let mut sections: Vec<&str> = Vec::new();
        for fact in &self.0 {
            if !sections.contains(&fact.section) {
                sections.push(fact.section);
            }
        }
        let mut facts = self.0;
        facts.sort_by_key(|fact| sections.iter().position(|section| *section == fact.section));
        facts
    }

    fn read_files(&mut self, roots: &Roots) {
        let in_proc = FILES.iter().map(|(section, path)| (section, format!("/proc/{path}"), roots.proc.join(path)));
        let in_sys = SYS_FILES.iter().map(|(section, path)| (section, format!("/sys/{path}"), roots.sys.join(path)));
        for (section, name, path) in in_proc.chain(in_sys) {
            let value = fs::read_to_string(path).unwrap_or_else(|error| format!("({error})"));
            self.add(section, name, value);
        }
        self.lines(roots, "system", "meminfo", &["MemTotal:", "MemAvailable:"]);
        self.lines(roots, "permissions", "self/status", &["Uid:", "CapEff:", "CapBnd:", "Seccomp:"]);
        let cores =
            std::thread::available_parallelism().map_or_else(|error| error.to_string(), |cores| cores.to_string());
        self.add("system", "cores", cores);
    }

    /// Adds the lines of a file of /proc that begin with one of these prefixes.
    fn lines(&mut self, roots: &Roots, section: &'static str, file: &str, prefixes: &[&str]) {
        let text = fs::read_to_string(roots.proc.join(file)).unwrap_or_default();
        for line in text.lines().filter(|line| prefixes.iter().any(|prefix| line.starts_with(prefix))) {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            self.add(section, name, value.trim());
        }
    }

    /// Adds uvmd's own report on this machine, from the code that uvmd uses.
    fn support(&mut self, roots: &Roots) {
        let module = driver::module(roots);
        let missing: Vec<String> =
            preconditions::missing(roots, module.as_ref()).iter().map(ToString::to_string).collect();
        let missing = if missing.is_empty() { "nothing".to_owned() } else { missing.join("\n") };
        self.add("uvmd's support", "missing for the probes", missing);
        let kernel = kernel::supported(roots)
            .map_or_else(|error| error.to_string(), |kernel| format!("{}: supported", kernel.release));
        self.add("uvmd's support", "kernel", kernel);
        let version = module.and_then(|module| module.version).unwrap_or_else(|| "none loaded".to_owned());
        let family = match Families::known() {
            Ok(families) => families.of(&version).map_or_else(|| "not known".to_owned(), ToString::to_string),
            Err(error) => error.to_string(),
        };
        self.add("uvmd's support", "driver", format!("{version}; layout family: {family}"));
    }

    fn kernel(&mut self, roots: &Roots) {
        for (name, path) in [
            ("kprobes", "bus/event_source/devices/kprobe/type"),
            ("uprobes", "bus/event_source/devices/uprobe/type"),
            ("the kernel's types", "kernel/btf/vmlinux"),
            ("the driver's types", "kernel/btf/nvidia_uvm"),
            ("function tracing", "kernel/tracing/available_filter_functions"),
        ] {
            let is_there = roots.sys.join(path).exists();
            self.add("kernel", name, format!("/sys/{path}: {}", if is_there { "there" } else { "not there" }));
        }
        match fs::read_to_string(roots.proc.join("kallsyms")) {
            Ok(symbols) => {
                for function in FUNCTIONS {
                    self.add("probed functions", *function, symbol(&symbols, function).unwrap_or("absent"));
                }
            }
            Err(error) => self.add("probed functions", "/proc/kallsyms", format!("({error})")),
        }
    }

    fn driver(&mut self, roots: &Roots) {
        let devices = fs::read_to_string(roots.proc.join("devices")).unwrap_or_default();
        for line in devices.lines().filter(|line| line.contains("nvidia")) {
            self.add("driver", "/proc/devices", line.trim());
        }
        for path in entries(Path::new("/dev"), "nvidia") {
            self.add("driver", "device", path);
        }
        let parameters = roots.sys.join("module/nvidia_uvm/parameters");
        for name in entries(&parameters, "uvm_") {
            let value = fs::read_to_string(parameters.join(&name)).unwrap_or_else(|error| format!("({error})"));
            self.add("driver's parameters", name, value);
        }
        for path in entries(&roots.proc.join("driver/nvidia-uvm/gpus"), "") {
            self.add("driver", "/proc/driver/nvidia-uvm/gpus", path);
        }
    }

    fn programs(&mut self, roots: &Roots, uvmctl: Option<&Path>, deadline: Deadline) {
        let release = fs::read_to_string(roots.proc.join("sys/kernel/osrelease")).unwrap_or_default();
        let find = format!("zcat /proc/config.gz 2>/dev/null || cat /boot/config-{} 2>/dev/null", release.trim());
        let config = output_of("sh", &["-c", &find], deadline);
        if config.is_empty() {
            self.add("kernel's configuration", "source", "neither /proc/config.gz nor /boot/config-* is readable");
        } else {
            for name in CONFIGURATION {
                self.add("kernel's configuration", *name, setting(&config, name));
            }
        }
        let gpus = output_of("nvidia-smi", &[], deadline);
        self.add("GPU", "nvidia-smi", gpus);
        let libc = output_of("ldd", &["--version"], deadline);
        self.add("system", "C library", libc.lines().next().unwrap_or_default());
        if let Some(uvmctl) = uvmctl {
            let doctor = output_of(&uvmctl.display().to_string(), &["doctor"], deadline);
            self.add("uvmd's support", "uvmctl doctor", doctor);
        }
    }
}

/// Output of a program, or the reason why there is none.
fn output_of(program: &str, arguments: &[&str], deadline: Deadline) -> String {
    match run(Command::new(program).args(arguments), deadline.step(Duration::from_secs(30))) {
        Ok(ended) if ended.status.is_none() => format!("({program} did not exit in time)"),
        Ok(ended) if ended.stdout.is_empty() => ended.stderr,
        Ok(ended) => ended.stdout,
        Err(error) => format!("({program}: {error})"),
    }
}

/// Line of a function in /proc/kallsyms without the address: type, name, module.
fn symbol<'a>(symbols: &'a str, function: &str) -> Option<&'a str> {
    symbols.lines().find_map(|line| {
        let (_address, rest) = line.split_once(' ')?;
        let name = rest.split_ascii_whitespace().nth(1)?;
        (name == function).then_some(rest)
    })
}

/// Value of a kernel option.
fn setting(config: &str, name: &str) -> String {
    let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix('=')?.to_owned());
    config.lines().find_map(value).unwrap_or_else(|| "n".to_owned())
}

/// Sorted names in a folder with a prefix; none if the folder does not exist.
fn entries(folder: &Path, prefix: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use sys::fake::Machine;

    use super::*;

    fn value<'a>(facts: &'a [Fact], name: &str) -> &'a str {
        &facts.iter().find(|fact| fact.name == name).unwrap_or_else(|| panic!("no fact {name}")).value
    }

    #[test]
    fn a_machine_with_a_driver_is_described() {
        let machine = Machine::new()
            .with("sys/module/nvidia_uvm/version", "580.159.04\n")
            .with("sys/module/nvidia_uvm/initstate", "live\n")
            .with("sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold", "51\n")
            .with("proc/sys/kernel/osrelease", "6.18.44\n")
            .with("proc/devices", "Character devices:\n511 nvidia-uvm\n")
            .with(
                "proc/kallsyms",
                "ffff t uvm_va_space_destroy\t[nvidia_uvm]\nffff t uvm_api_migrate.cold\t[nvidia_uvm]\n",
            );
        let facts = gather(&machine.roots, None, Deadline::after(Duration::from_mins(1)));
        assert_eq!(value(&facts, "/sys/module/nvidia_uvm/version"), "580.159.04");
        assert_eq!(value(&facts, "uvm_perf_prefetch_threshold"), "51");
        assert_eq!(value(&facts, "/proc/devices"), "511 nvidia-uvm");
        assert_eq!(value(&facts, "uvm_va_space_destroy"), "t uvm_va_space_destroy\t[nvidia_uvm]");
        assert_eq!(value(&facts, "uvm_api_migrate"), "absent");
        assert_eq!(value(&facts, "driver"), "580.159.04; layout family: 580-595");
        assert!(value(&facts, "missing for the probes").contains("this kernel has no kprobes"));
    }

    #[test]
    fn an_empty_machine_is_described_by_missing_facts() {
        let machine = Machine::new();
        let facts = gather(&machine.roots, None, Deadline::after(Duration::from_mins(1)));
        assert_eq!(value(&facts, "driver"), "none loaded; layout family: not known");
        assert!(value(&facts, "/proc/kallsyms").starts_with('('));
    }

    #[test]
    fn an_option_that_is_not_set_is_n() {
        let config = "# CONFIG_KPROBES is not set\nCONFIG_KPROBES_ON_FTRACE=y\nCONFIG_NODES_SHIFT=10\n";
        assert_eq!(setting(config, "CONFIG_KPROBES"), "n");
        assert_eq!(setting(config, "CONFIG_NODES_SHIFT"), "10");
    }
}
