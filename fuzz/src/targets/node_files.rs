//! `sys`, `actuator`, `collector`: files of /proc and /sys about another user's process, and about
//! the driver.
//!
//! Input: files, each after a line `%% NAME` with one of [`FILES`]. The results are bounded,
//! ordered, and safe for a label or a terminal.

use std::{cell::OnceCell, fs, num::NonZeroUsize, path::Path};

use call_ring::{NAME, PLAN_NAME};
use collector::fuzzing;
use sys::{
    Roots, driver, kernel, parameters, preconditions, processes,
    shared_memory::{Form, Search},
    symbols,
    uvm::mapped,
};

const PID: u32 = 42;
/// Files of an input; others are not written.
const FILES: [&str; 22] = [
    "proc/42/maps",
    "proc/42/cgroup",
    "proc/42/stat",
    "proc/42/status",
    "proc/42/limits",
    "proc/42/cmdline",
    "proc/42/task/42/stat",
    "proc/42/task/43/stat",
    "proc/42/task/43/maps",
    "proc/meminfo",
    "proc/devices",
    "proc/kallsyms",
    "proc/sys/kernel/osrelease",
    "proc/sys/kernel/random/boot_id",
    "sys/module/nvidia_uvm/version",
    "sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold",
    "sys/kernel/security/lockdown",
    "sys/fs/cgroup/a/memory.max",
    "sys/fs/cgroup/a/memory.high",
    "sys/fs/cgroup/a/memory.current",
    "sys/fs/cgroup/a/memory.stat",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
];
/// Limits of `collector`: a command line as shown, and a unit's name with its manager's.
const COMMAND_LINE_MAX_BYTES: usize = 4096;
const UNIT_MAX_BYTES: usize = 2 * 255 + 1;
const RANGES_MAX: usize = 8;

thread_local! {
    /// Machine of each thread, for all inputs.
    static MACHINE: OnceCell<tempfile::TempDir> = const { OnceCell::new() };
}

pub(super) fn run(input: &[u8]) {
    MACHINE.with(|machine| {
        let folder = machine.get_or_init(|| tempfile::tempdir().expect("a folder can be made"));
        let written = write(folder.path(), input);
        check(&Roots { proc: folder.path().join("proc"), sys: folder.path().join("sys") });
        for name in written {
            fs::remove_file(folder.path().join(name)).expect("it is there");
        }
    });
}

/// Writes the files of an input, and returns their names.
fn write(folder: &Path, input: &[u8]) -> Vec<&'static str> {
    let mut written = Vec::new();
    let mut rest = input;
    while let Some(text) = rest.strip_prefix(b"%% ") {
        let (name, text) = super::split_once(text, b"\n");
        let (content, behind) = super::split_once(text.unwrap_or_default(), b"\n%% ");
        let is_whole = !name.ends_with(b"/stat") || is_stat(content);
        let known = FILES.into_iter().find(|known| known.as_bytes() == name);
        if let Some(known) = known.filter(|_| is_whole) {
            let path = folder.join(known);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder can be made");
            fs::write(path, content).expect("a file can be written");
            written.push(known);
        }
        // The line break before a name does not belong to the preceding file.
        rest = behind.map_or(&[], |behind| &input[input.len() - behind.len() - 3..]);
    }
    written.sort_unstable();
    written.dedup();
    written
}

/// Whether the kernel could have written it: a name of any content in parentheses, between a number
/// and a state of the kernel. The crate procfs relies on that, and panics otherwise.
fn is_stat(text: &[u8]) -> bool {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let Some(name) = text[digits..].strip_prefix(b" (") else { return false };
    let state = name.iter().rposition(|byte| *byte == b')').and_then(|end| name[end + 1..].strip_prefix(b" "));
    digits > 0 && state.is_some_and(|state| state.first().is_some_and(u8::is_ascii_alphabetic))
}

/// Which memories of a helper a search of the maps finds, in slices of this many bytes. Their
/// files are not opened.
fn found(roots: &Roots, slice_bytes: u64) -> Option<[bool; 2]> {
    const PAGE: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
    let form = |name| Form { name, bytes: PAGE, writable_bytes: PAGE };
    let mut search = Search::begin(roots, PID, [NAME, PLAN_NAME].map(form)).ok()?;
    while !search.advance(slice_bytes).ok()? {}
    Some(search.open().map(|memory| memory.is_err()))
}

fn check(roots: &Roots) {
    if let Ok(mapped) = mapped::of(roots, PID) {
        assert!(mapped.iter().all(|range| range.start < range.end));
        assert!(mapped.is_sorted_by(|one, next| one.end <= next.start), "{mapped:?}");
        let bytes: u64 = mapped.iter().map(|range| range.end - range.start).sum();
        if let Some((told, ranges)) = fuzzing::managed(roots, PID, RANGES_MAX) {
            assert_eq!(told, bytes);
            assert!(ranges.len() <= RANGES_MAX && ranges.is_sorted_by(|one, next| one.1 <= next.0), "{ranges:?}");
        }
    }
    assert_eq!(found(roots, 1), found(roots, u64::MAX));
    if let Some((_, _, owner)) = fuzzing::identity(roots, PID) {
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        assert!(owner.unit.is_none_or(|unit| unit.len() <= UNIT_MAX_BYTES && is_plain(&unit)));
        assert!(owner.pod.is_none_or(|pod| pod.uid.len() <= 36 && is_plain(&pod.uid)));
        assert!(owner.container.is_none_or(|container| container.id.len() == 64 && is_plain(&container.id)));
        assert!(owner.job.is_none_or(|job| job.id.len() <= 32 && is_plain(&job.id)));
    }
    if let Some(line) = fs::read(roots.proc.join("42/cmdline")).ok().and_then(|text| fuzzing::command_line(&text)) {
        assert!(line.len() <= COMMAND_LINE_MAX_BYTES && !line.contains(char::is_control), "{line:?}");
    }
    let start_time = processes::start_ticks(roots, PID);
    if start_time.is_ok_and(|start| start.is_some()) {
        let _ = (actuator::headroom::of_cgroups(roots, PID), sys::host_memory::HostMemory::read(roots));
    }
    let _ = (processes::live_thread(roots, PID), processes::named(roots, "app"));
    assert!(processes::ancestors(roots, PID).count() <= 256);
    let module = driver::module(roots);
    let lines = module.iter().filter_map(|module| module.version.as_deref()).map(str::to_owned);
    for line in lines.chain(parameters::read(roots).into_values()) {
        assert!(!line.contains('\n'), "{line:?}");
    }
    let _ = (driver::uvm_device(roots), kernel::boot_id(roots), symbols::lacking(roots));
    if let Ok(kernel) = kernel::supported(roots) {
        assert!(!kernel.release.trim().is_empty());
    }
    drop(preconditions::missing(roots, module.as_ref()));
}
