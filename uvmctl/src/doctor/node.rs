//! Checks of the kernel and of uvmd's privileges.

use std::{fs, io};

use sys::{
    Roots,
    btf::Btf,
    capabilities::{Capabilities, Capability},
    families::KernelNumbers,
    kernel::{self, Kernel, KernelError},
    preconditions::{Attachment, Missing, attachment, lacking_for_fentry},
    processes::{self, Running},
    reason,
};

use super::Check;
use crate::text;

/// Name of the daemon's process.
const DAEMON: &str = "uvmd";

pub(super) fn checks(roots: &Roots, lacking: &[Missing]) -> Vec<Check> {
    let kernel = kernel::supported(roots);
    let subject = Subject::find(roots);
    let version = match &kernel {
        Ok(kernel) => Check::ok("kernel", format!("Linux {}", text::printable(&kernel.release))),
        Err(error @ KernelError::TooOld(_)) => Check::missing_from_sentence("kernel", &error.to_string()),
        Err(error) => {
            Check::missing("kernel", text::printable(&error.to_string()), "name the path of /proc with --proc")
        }
    };
    vec![
        version,
        bpf(roots),
        kprobes(roots, lacking, &subject),
        Check::precondition("lockdown", lacking, &[Missing::Unlocked], "the kernel lets probes read its memory"),
        kernel_types(roots, lacking),
        rights(&subject),
        locked_memory(kernel.ok().as_ref(), &subject),
        ptrace(roots, &subject),
    ]
}

fn bpf(roots: &Roots) -> Check {
    const NAME: &str = "BPF";
    // Exists on every kernel with the system call.
    if !roots.proc.join("sys/kernel/unprivileged_bpf_disabled").exists() {
        return Check::missing(NAME, "this kernel has no bpf system call", "boot one built with CONFIG_BPF_SYSCALL");
    }
    match fs::read_to_string(roots.proc.join("sys/net/core/bpf_jit_enable")) {
        Ok(enabled) if enabled.trim() == "0" => Check::warning(
            NAME,
            "probes are interpreted, which makes each several times slower",
            "run `sysctl net.core.bpf_jit_enable=1`",
        ),
        // Absent in a container's network namespace.
        _ => Check::ok(NAME, "the kernel has the system call"),
    }
}

fn kprobes(roots: &Roots, lacking: &[Missing], subject: &Subject) -> Check {
    const NAME: &str = "kprobes";
    if attachment(roots) == Ok(Attachment::Fentry) {
        return fentry(NAME, roots, subject);
    }
    // Only root can read debugfs.
    let switch = fs::metadata(roots.sys.join("kernel/debug/kprobes/enabled"));
    if switch.is_err_and(|error| error.kind() != io::ErrorKind::NotFound) && !lacking.contains(&Missing::Kprobes) {
        return Check::unknown(
            NAME,
            "the kernel has them; no permission to see whether they are switched on",
            "run this as root",
        );
    }
    let finding = "can be attached by perf_event_open, without tracefs";
    Check::precondition(NAME, lacking, &[Missing::Kprobes, Missing::KprobesOn], finding)
}

/// Check of what replaces kprobes.
fn fentry(name: &'static str, roots: &Roots, subject: &Subject) -> Check {
    let Ok(types) = fs::read(roots.sys.join("kernel/btf/vmlinux")) else {
        return Check::unknown(
            name,
            "absent; the kernel's types, which fentry needs, cannot be read",
            "run this as root",
        );
    };
    if let Some(function) = Btf::parse(&types).ok().and_then(|types| lacking_for_fentry(&types)) {
        return Check::missing(
            name,
            format!("absent, and fentry needs {function}"),
            "boot Linux 6.10 or later, or a kernel built with CONFIG_KPROBES and CONFIG_KPROBE_EVENTS",
        );
    }
    let may_attach = subject.capabilities().is_none_or(|capabilities| capabilities.has(Capability::SysAdmin));
    if matches!(subject, Subject::Daemon(_)) && !may_attach {
        return Check::missing(name, "absent, and uvmd may not use fentry", "run it as root, or add CAP_SYS_ADMIN");
    }
    Check::ok(name, "absent; fentry replaces them")
}

fn kernel_types(roots: &Roots, lacking: &[Missing]) -> Check {
    const NAME: &str = "kernel types";
    const FILE: &str = "/sys/kernel/btf/vmlinux";
    /// The page size does not affect which types are required.
    const ANY_PAGE_SIZE: u64 = 4096;
    if lacking.contains(&Missing::KernelTypes) {
        return Check::missing_from_sentence(NAME, &Missing::KernelTypes.to_string());
    }
    match fs::read(roots.sys.join("kernel/btf/vmlinux")) {
        Err(error) => Check::unknown(NAME, format!("{FILE}: {}", reason(&error)), "run this as root"),
        Ok(file) => match Btf::parse(&file).and_then(|btf| KernelNumbers::from_btf(&btf, ANY_PAGE_SIZE)) {
            Ok(_) => Check::ok(NAME, format!("{FILE} has all that the probes read")),
            Err(error) => Check::missing(
                NAME,
                format!("{FILE} cannot be used: {error}"),
                "boot a kernel of a distribution, or report this kernel",
            ),
        },
    }
}

/// Subject of the checks of privileges: the running daemon, or else the caller, who may start one.
enum Subject {
    Daemon(Running),
    Caller(Option<Capabilities>),
}

impl Subject {
    fn find(roots: &Roots) -> Self {
        let found = processes::named(roots, DAEMON).unwrap_or_default();
        // Any program may have that name, but uvmd does not run without these capabilities.
        let has_rights = |running: &&Running| running.capabilities.may_probe().is_ok();
        match found.iter().find(has_rights).or(found.first()).copied() {
            Some(running) => Self::Daemon(running),
            None => Self::Caller(Capabilities::of_this_process().ok()),
        }
    }

    const fn capabilities(&self) -> Option<Capabilities> {
        match self {
            Self::Daemon(running) => Some(running.capabilities),
            Self::Caller(capabilities) => *capabilities,
        }
    }
}

fn rights(subject: &Subject) -> Check {
    const NAME: &str = "rights";
    const REMEDY: &str = "run uvmd as root, or with the capabilities CAP_BPF and CAP_PERFMON";
    match subject {
        Subject::Daemon(Running { pid, capabilities, .. }) => match capabilities.may_probe() {
            Ok(()) => Check::ok(NAME, format!("uvmd (process {pid}) may load and attach probes")),
            Err(_) => Check::missing(NAME, format!("uvmd (process {pid}) may not probe the driver"), REMEDY),
        },
        Subject::Caller(None) => Check::unknown(NAME, "/proc/self/status cannot be read", REMEDY),
        Subject::Caller(Some(capabilities)) => match capabilities.may_probe() {
            Ok(()) => Check::ok(NAME, "no visible uvmd runs here; you may start one"),
            Err(_) => Check::unknown(NAME, "no visible uvmd runs here; you may not start one", REMEDY),
        },
    }
}

fn locked_memory(kernel: Option<&Kernel>, subject: &Subject) -> Check {
    const NAME: &str = "locked memory";
    let Some(kernel) = kernel else {
        return Check::unknown(NAME, "depends on the kernel's version", "see the check of the kernel");
    };
    if kernel.charges_maps_to_cgroup() {
        return Check::ok(NAME, "needs no limit raised: maps are charged to uvmd's memory cgroup");
    }
    let may_exceed = subject.capabilities().is_some_and(|capabilities| capabilities.has(Capability::SysResource));
    match subject {
        Subject::Daemon(Running { locked_memory_max_bytes: Some(u64::MAX), .. }) => {
            Check::ok(NAME, "uvmd has no limit")
        }
        Subject::Daemon(Running { locked_memory_max_bytes: Some(bytes), .. }) if !may_exceed => Check::warning(
            NAME,
            format!("uvmd may lock {}, and the probes' maps count against it before Linux 5.11", text::bytes(*bytes)),
            "give it CAP_SYS_RESOURCE, or LimitMEMLOCK=infinity in its unit",
        ),
        _ if may_exceed => Check::ok(NAME, "CAP_SYS_RESOURCE overrides the limit"),
        _ => Check::unknown(NAME, "before Linux 5.11 the probes' maps count against uvmd's limit", "run this as root"),
    }
}

/// Check for `pidfd_getfd`, by which uvmd duplicates a process's descriptor of the driver.
fn ptrace(roots: &Roots, subject: &Subject) -> Check {
    const NAME: &str = "ptrace";
    const SCOPE: &str = "sys/kernel/yama/ptrace_scope";
    let scope = match fs::read_to_string(roots.proc.join(SCOPE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "0".to_owned(),
        Err(error) => return Check::unknown(NAME, format!("/proc/{SCOPE}: {}", reason(&error)), "run this as root"),
        Ok(scope) => scope.trim().to_owned(),
    };
    if scope == "3" {
        return Check::warning(
            NAME,
            "kernel.yama.ptrace_scope is 3: no process may be traced, so uvmd can only observe",
            "set it below 3 in /etc/sysctl.d and reboot: 3 cannot be lowered until then",
        );
    }
    match subject.capabilities() {
        Some(capabilities) if capabilities.has(Capability::SysPtrace) => {
            Check::ok(NAME, format!("uvmd may reach into other processes (kernel.yama.ptrace_scope {scope})"))
        }
        Some(_) if matches!(subject, Subject::Daemon(_)) => Check::warning(
            NAME,
            "uvmd lacks CAP_SYS_PTRACE and can only observe, and not where /proc hides processes (hidepid)",
            "add CAP_SYS_PTRACE if that is not enough",
        ),
        _ => Check::unknown(NAME, "depends on the rights of uvmd", "run this as root, or when uvmd runs"),
    }
}
