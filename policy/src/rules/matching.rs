//! Match of a selector with a process.

use std::{fmt, path::Path};

use model::{Criterion, Selector};

use super::Subject;

/// Wildcard for any characters.
pub(super) const ANY: char = '*';

/// The first criterion of the selector that does not match the process: its field in an override,
/// and the process's value as a sentence. `None` if all match.
pub(super) fn mismatch(selector: &Selector, subject: Subject<'_>) -> Option<(&'static str, String)> {
    selector.criteria().find_map(|criterion| Some((criterion.field(), mismatch_of(criterion, subject)?)))
}

fn mismatch_of(criterion: Criterion<'_>, Subject { process, executable }: Subject<'_>) -> Option<String> {
    let owner = &process.owner;
    let differs = |matches: bool, has: &dyn fmt::Display| (!matches).then(|| format!("it is {has}"));
    let text = |pattern: &str, has: Option<&str>, unknown: &str| match has {
        Some(has) => differs(is_like(pattern, has), &has),
        None => Some(unknown.to_owned()),
    };
    match criterion {
        Criterion::Pid(pid) => differs(pid == process.id.pid, &process.id.pid),
        Criterion::StartTicks(ticks) => (ticks != process.id.start_ticks)
            .then(|| format!("it is a later process with that id, started at tick {}", process.id.start_ticks)),
        Criterion::Container(prefix) => text(
            &format!("{prefix}{ANY}"),
            owner.container.as_ref().map(|container| container.id.as_str()),
            "it is in no known container",
        ),
        Criterion::Pod(prefix) => {
            text(&format!("{prefix}{ANY}"), owner.pod.as_ref().map(|pod| pod.uid.as_str()), "it is in no known pod")
        }
        Criterion::Job(id) => {
            text(id, owner.job.as_ref().map(|job| job.id.as_str()), "it belongs to no known Slurm job")
        }
        Criterion::Cgroup(path) => outside(path, process.cgroup.as_deref()),
        Criterion::Executable(path) if path.contains('/') => {
            text(path, executable.map(Path::to_string_lossy).as_deref(), "the path of its executable is unknown")
        }
        Criterion::Executable(name) => text(name, Some(&process.name), ""),
        Criterion::Uid(uid) => differs(uid == process.uid, &process.uid),
        // Parts of the process's memory: every process matches.
        Criterion::Range(_) | Criterion::AllocationLargerThanBytes(_) => None,
    }
}

/// Cgroup of the process, as a sentence, if it is neither the requested one nor below it.
fn outside(wanted: &str, cgroup: Option<&Path>) -> Option<String> {
    let Some(cgroup) = cgroup else { return Some("its cgroup is unknown".to_owned()) };
    let mut above = cgroup.ancestors();
    let wanted = if wanted == "/" { wanted } else { wanted.trim_end_matches('/') };
    if above.any(|path| is_like(wanted, &path.to_string_lossy())) {
        return None;
    }
    Some(format!("it is in {}", cgroup.display()))
}

pub(super) fn is_pattern(text: &str) -> bool {
    text.contains(ANY)
}

/// Whether a text matches a pattern.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split(ANY);
    let (Some(first), last) = (parts.next(), parts.next_back()) else { return false };
    let Some(last) = last else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    // The earliest position of each part leaves most text for the next ones.
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_star_is_a_wildcard() {
        for (pattern, text) in [
            ("a", "a"),
            ("*", ""),
            ("*", "abc"),
            ("a*", "a"),
            ("a*c", "abbc"),
            ("*b*", "abc"),
            ("a**c", "ac"),
            ("*ab*ab", "abxabab"),
            ("a?", "a?"),
        ] {
            assert!(is_like(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("a", "ab"), ("a*", "ba"), ("*a", "ab"), ("a*b*c", "acb"), ("ab*b", "ab"), ("a?", "ab"), ("", "a")]
        {
            assert!(!is_like(pattern, text), "{pattern} {text}");
        }
    }
}
