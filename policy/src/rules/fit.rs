//! Whether an override is for a process.

use std::path::Path;

use model::Selector;

use super::Subject;

/// Stands for any characters.
const ANY: char = '*';

/// The first thing that does not fit, as it is called in an override, and what the process is instead; `None` where all fits.
pub(super) fn difference(
    selector: &Selector,
    Subject { process, executable }: Subject<'_>,
) -> Option<(&'static str, String)> {
    // What of its memory is meant says nothing about which process is.
    let Selector {
        pid,
        start_ticks,
        executable: name,
        uid,
        cgroup,
        container,
        pod,
        job,
        range: _,
        allocation_larger_than_bytes: _,
    } = selector;
    let owner = &process.owner;
    let differs = |wanted: &Option<String>, has: Option<&str>, nothing: &str| match (wanted, has) {
        (None, _) => None,
        (Some(pattern), Some(has)) if is_like(pattern, has) => None,
        (Some(_), has) => Some(has.map_or_else(|| nothing.to_owned(), |has| format!("it is {has}"))),
    };
    let pid = pid.filter(|pid| *pid != process.id.pid).map(|_| format!("it is {}", process.id.pid));
    let another = start_ticks
        .filter(|ticks| *ticks != process.id.start_ticks)
        .map(|_| format!("it is a later process with that id, started at tick {}", process.id.start_ticks));
    let uid = uid.filter(|uid| *uid != process.uid).map(|_| format!("it is {}", process.uid));
    let container_id = owner.container.as_ref().map(|container| container.id.as_str());
    let container = container.as_ref().map(|beginning| format!("{beginning}{ANY}"));
    let pod_uid = owner.pod.as_ref().map(|pod| pod.uid.as_str());
    let job_id = owner.job.as_ref().map(|job| job.id.as_str());
    let by_path = name.as_ref().is_some_and(|name| name.contains('/'));
    let own_name = if by_path { executable.map(Path::to_string_lossy) } else { Some(process.name.as_str().into()) };
    [
        ("match.pid", pid),
        ("match.start_ticks", another),
        ("match.container", differs(&container, container_id, "it is in no container that is known")),
        ("match.pod", differs(pod, pod_uid, "it is in no pod that is known")),
        ("match.job", differs(job, job_id, "it is of no Slurm job that is known")),
        ("match.cgroup", cgroup.as_ref().and_then(|wanted| outside(wanted, process.cgroup.as_deref()))),
        ("match.executable", differs(name, own_name.as_deref(), "the path of its executable is not known")),
        ("match.uid", uid),
    ]
    .into_iter()
    .find_map(|(key, is)| Some((key, is?)))
}

/// Where the process is, if that is neither the cgroup meant nor below it.
fn outside(wanted: &str, cgroup: Option<&Path>) -> Option<String> {
    let Some(cgroup) = cgroup else { return Some("its cgroup is not known".to_owned()) };
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

/// Whether a text is what a pattern says.
fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split(ANY);
    let (Some(first), last) = (parts.next(), parts.next_back()) else { return false };
    let Some(last) = last else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    // The earliest place for each part leaves most room for what follows it.
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_nothing_else_is_special() {
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
