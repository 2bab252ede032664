//! Selectors on the command line.

use std::error::Error;

use clap::Args;
use model::{
    Criterion, MemoryRange, Selector,
    text::{parse_address, parse_bytes},
};

use crate::completion;

/// Selector of processes. All given options must match; `*` stands for any characters.
#[derive(Clone, Debug, Args)]
#[group(id = "selection", multiple = true)]
pub(crate) struct Selection {
    /// Every process there is
    #[arg(long, conflicts_with_all = ["pid", "executable", "uid", "cgroup", "container", "pod", "job"])]
    pub(super) all: bool,

    /// The process with this id
    #[arg(long, add = completion::processes())]
    pid: Option<u32>,

    /// Processes of this short name, or whose executable has this path if there is a / in it
    #[arg(long, value_name = "NAME|PATH")]
    executable: Option<String>,

    /// Processes of this user, by number
    #[arg(long)]
    uid: Option<u32>,

    /// Processes in this cgroup, or below it
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,

    /// Processes in this container, by its id or the beginning of it
    #[arg(long, value_name = "ID")]
    container: Option<String>,

    /// Processes in this pod, by its UID or the beginning of it
    #[arg(long, value_name = "UID")]
    pod: Option<String>,

    /// Processes of this Slurm job
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Only memory in this range, such as 0x7f2a40000000-0x7f2b40000000
    #[arg(long, value_name = "BEGIN-END", value_parser = range)]
    range: Option<MemoryRange>,

    /// Only allocations larger than this, such as 64MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    larger_than: Option<u64>,
}

/// Name of an override, derived from its selector alone.
pub(crate) fn name(selector: &Selector) -> String {
    const MAX: usize = 64;
    let part = |criterion: Criterion<'_>| {
        let key = match criterion {
            Criterion::AllocationLargerThanBytes(_) => "larger",
            other => other.field().trim_start_matches("match."),
        };
        format!("{key}-{criterion}")
    };
    let parts: Vec<String> = selector.criteria().map(part).collect();
    if parts.is_empty() {
        return "all".to_owned();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-') { c } else { '_' };
    let name: String = parts.join("_").chars().map(plain).collect();
    // A hash of all parts distinguishes names that lost characters.
    let all_parts = parts.join("\n");
    if name.len() <= MAX && !all_parts.contains('_') && name.matches('_').count() + 1 == parts.len() {
        return name;
    }
    let suffix = format!("_{:08x}", hash(&all_parts));
    let prefix: String = name.chars().take(MAX - suffix.len()).collect();
    prefix + &suffix
}

impl From<Selection> for Selector {
    fn from(selection: Selection) -> Self {
        let Selection { all: _, pid, executable, uid, cgroup, container, pod, job, range, larger_than } = selection;
        Self {
            pid,
            start_ticks: None,
            executable,
            uid,
            cgroup,
            container,
            pod,
            job,
            range,
            allocation_larger_than_bytes: larger_than,
        }
    }
}

/// FNV-1a hash, stable over versions and platforms.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn range(text: &str) -> Result<MemoryRange, Box<dyn Error + Send + Sync>> {
    let (begin, end) = text.split_once('-').ok_or("expected BEGIN-END, such as 0x7f2a40000000-0x7f2b40000000")?;
    Ok(MemoryRange { begin: parse_address(begin)?, end: parse_address(end)? })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        selection: Selection,
    }

    fn name(arguments: &[&str]) -> String {
        super::name(&Line::try_parse_from(["x"].iter().chain(arguments)).unwrap().selection.into())
    }

    #[test]
    fn names_are_derived_from_selectors() {
        assert_eq!(name(&["--pid", "7"]), "pid-7");
        assert_eq!(name(&["--pod", "7c1f", "--uid", "3"]), "pod-7c1f_uid-3");
        assert_eq!(name(&["--all"]), "all");
        assert_eq!(name(&["--all", "--larger-than", "64MiB"]), "larger-67108864");
    }

    #[test]
    fn different_selectors_have_different_names() {
        let names = [
            name(&["--executable", "/usr/bin/a"]),
            name(&["--executable", "/usr/bin_a"]),
            name(&["--executable", "/usr/bin*a"]),
            name(&["--cgroup", &format!("/{}", "x".repeat(99))]),
            name(&["--cgroup", &format!("/{}y", "x".repeat(99))]),
        ];
        for (at, one) in names.iter().enumerate() {
            assert!(one.len() <= 64 && one.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)), "{one}");
            assert!(names.iter().skip(at + 1).all(|other| other != one), "{names:?}");
        }
    }

    #[test]
    fn all_conflicts_with_other_selectors_and_a_range_needs_an_end() {
        assert!(Line::try_parse_from(["x", "--all", "--pid", "7"]).is_err());
        assert!(Line::try_parse_from(["x", "--range", "0x1000"]).is_err());
    }
}
