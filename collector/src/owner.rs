//! Owner of a process, by the names of its cgroups.
//!
//! The names come from /proc, and users choose the names of cgroups that they create. They are
//! therefore evaluated from the root on, and only as far as the node's own managers created them;
//! the outermost match wins:
//! * A pod is recognised at the kubelet's places: below slices and plain folders, not below a
//!   service, a user's manager or a container. With Docker in a pod, all belongs to the pod; the
//!   pods of a kind node belong to its container.
//! * A Slurm job is one below Slurm's scope (cgroup version 2) or folder (version 1).
//! * A container has an id of 64 hexadecimal digits, at any place; cgroups that it creates inside
//!   are ignored.
//! * A systemd unit is the first service or scope on the path. Below a user's manager it is the
//!   unit therein, prefixed by the manager's name, as users may choose any names:
//!   `user@1000.service/train.service`. A login's scope counts as its user's slice.

use model::{Container, Job, Owner, Pod};

/// Longer than any expected name; the kernel allows 255 bytes per cgroup.
const UNIT_MAX_BYTES: usize = 255;
const JOB_MAX_BYTES: usize = 32;

/// Owner by a process's paths: one in version 2, and one per hierarchy in version 1. Not every
/// manager uses all hierarchies, so the most specific path counts, the first of equals.
pub(crate) fn of_paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> Owner {
    let tells =
        |owner: &Owner| (owner.pod.is_some(), owner.job.is_some(), owner.container.is_some(), owner.unit.is_some());
    let more = |best: Owner, next: Owner| if tells(&next) > tells(&best) { next } else { best };
    paths.into_iter().map(of_path).fold(Owner::default(), more)
}

/// Manager of the cgroups at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// The node's own managers.
    Node,
    /// Slurm, for its jobs and their steps.
    Slurm,
    /// The systemd of a user.
    UserManager,
    /// A user that the cgroup was delegated to.
    Anyone,
}

fn of_path(path: &str) -> Owner {
    let mut owner = Owner::default();
    let (mut maker, mut parent) = (Maker::Node, "");
    // Suffix of the kernel for a removed cgroup.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    // `..` appears in a cgroup namespace that is not the node's.
    for name in path.split('/').filter(|name| !matches!(*name, "" | "..")) {
        if let Some((pod, container)) = container(name, parent) {
            owner.container = Some(container);
            if maker == Maker::Node || owner.unit.as_deref().is_some_and(runs_containers) {
                owner.pod = owner.pod.or(pod);
            }
            enter_unit(&mut owner, maker, name, parent);
            break;
        }
        match maker {
            Maker::Node => {
                owner.pod = owner.pod.take().or_else(|| pod(name, parent));
                if name == "slurm" || name.starts_with("slurm_") {
                    maker = Maker::Slurm;
                } else if name.starts_with("lxc.payload") || name == "lxc" {
                    maker = Maker::Anyone;
                } else if enter_unit(&mut owner, maker, name, parent) {
                    maker = if name == "slurmstepd.scope" || name.ends_with("_slurmstepd.scope") {
                        Maker::Slurm
                    } else if is_user_manager(name) {
                        Maker::UserManager
                    } else {
                        Maker::Anyone
                    };
                }
            }
            Maker::Slurm => match &mut owner.job {
                None => owner.job = job(name).map(|id| Job { id, step: None }),
                Some(job) if job.step.is_none() => job.step = step(name),
                Some(_) => {}
            },
            Maker::UserManager => {
                if enter_unit(&mut owner, maker, name, parent) {
                    maker = Maker::Anyone;
                }
            }
            Maker::Anyone => {}
        }
        parent = name;
    }
    owner
}

/// Records a unit whose cgroup is entered, if it is one. Returns whether it was.
fn enter_unit(owner: &mut Owner, maker: Maker, name: &str, parent: &str) -> bool {
    let Some(name) = unit(name) else { return false };
    let name = if is_session(name, parent) { parent } else { name };
    match (maker, &mut owner.unit) {
        (Maker::Node, unit) => *unit = Some(name.to_owned()),
        (Maker::UserManager, Some(manager)) => *manager = format!("{manager}/{name}"),
        _ => {}
    }
    true
}

/// Name of a service or scope. (systemd puts `_` before a name that collides with a file of the
/// kernel.)
fn unit(name: &str) -> Option<&str> {
    let name = name.strip_prefix('_').unwrap_or(name);
    let stem = name.strip_suffix(".service").or_else(|| name.strip_suffix(".scope"))?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    (!stem.is_empty() && name.len() <= UNIT_MAX_BYTES && name.chars().all(is_plain)).then_some(name)
}

/// Whether it is a user's login, `user-1000.slice/session-3.scope`: each has another scope, so all
/// count as the user's slice.
fn is_session(unit: &str, parent: &str) -> bool {
    let is_between = |name: &str, prefix, suffix| {
        name.strip_prefix(prefix).and_then(|rest: &str| rest.strip_suffix(suffix)).is_some()
    };
    is_between(unit, "session-", ".scope") && is_between(parent, "user-", ".slice")
}

fn is_user_manager(unit: &str) -> bool {
    unit.starts_with("user@") && unit.ends_with(".service")
}

/// Whether the service creates containers for the kubelet below itself, as it does if runtime and
/// kubelet disagree about names.
fn runs_containers(unit: &str) -> bool {
    ["containerd", "k3s", "rke2", "snap.microk8s."].iter().any(|name| unit.starts_with(name))
}

/// Pod of `..kubepods..-pod1234_ab.slice` with systemd's names, `kubepods/burstable/pod1234-ab`
/// without.
fn pod(name: &str, parent: &str) -> Option<Pod> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => slice.contains("kubepods").then(|| slice.rsplit_once("-pod"))??.1,
        None => matches!(parent, "kubepods" | "burstable" | "besteffort").then(|| name.strip_prefix("pod"))??,
    };
    pod_uid(uid).map(|uid| Pod { uid })
}

/// UID of a pod: a UUID; or a hash of 32 digits, which the kubelet assigns to static pods. systemd
/// reads dashes as folders, so its names have `_` instead.
fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-").to_ascii_lowercase();
    let parts: Vec<_> = uid.split('-').map(str::len).collect();
    let is_hex = uid.chars().all(|c| c == '-' || c.is_ascii_hexdigit());
    (is_hex && matches!(parts[..], [8, 4, 4, 4, 12] | [32])).then_some(uid)
}

/// Container, and its pod if one name has both: `kubepods-pod1234.slice:cri-containerd:<id>`, as
/// from a runtime unaware that the kubelet uses systemd's names.
fn container(name: &str, parent: &str) -> Option<(Option<Pod>, Container)> {
    let mut parts = name.rsplitn(3, ':');
    if let (Some(id), Some(prefix), Some(slice)) = (parts.next(), parts.next(), parts.next()) {
        return Some((pod(slice, ""), Container { runtime: runtime(prefix), id: container_id(id)? }));
    }
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let (prefix, id) = name.rsplit_once('-').unwrap_or((if parent == "docker" { parent } else { "" }, name));
    let id = container_id(id)?;
    match runtime(prefix) {
        // The monitor of a container of CRI-O or Podman has the same id, and is not in it.
        None if prefix.ends_with("conmon") => None,
        runtime => Some((None, Container { runtime, id })),
    }
}

fn runtime(prefix: &str) -> Option<&'static str> {
    match prefix {
        "cri-containerd" | "nerdctl" => Some("containerd"),
        "crio" => Some("cri-o"),
        "docker" => Some("docker"),
        "libpod" | "libpod-payload" => Some("podman"),
        _ => None,
    }
}

fn container_id(text: &str) -> Option<String> {
    (text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))).then(|| text.to_owned())
}

/// Job of `job_` and a number; or from 26.05 on an SLUID, a job number that no cluster reuses: `s`
/// and 13 base-32 digits.
fn job(name: &str) -> Option<String> {
    let is_sluid = name.len() == 14 && name.starts_with('s') && name.chars().skip(1).all(is_digit_or_capital);
    let id = name.strip_prefix("job_").or(is_sluid.then_some(name))?;
    (1..=JOB_MAX_BYTES)
        .contains(&id.len())
        .then_some(id)?
        .chars()
        .all(|c| c.is_ascii_alphanumeric())
        .then(|| id.to_owned())
}

const fn is_digit_or_capital(c: char) -> bool {
    c.is_ascii_digit() || c.is_ascii_uppercase()
}

/// Step of `step_0`, `step_batch`, `step_extern`, and `step_0+1` for a job of several parts.
fn step(name: &str) -> Option<String> {
    let step = name.strip_prefix("step_")?;
    let is_plain = (1..=JOB_MAX_BYTES).contains(&step.len())
        && step.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '_'));
    is_plain.then(|| step.to_owned())
}

#[cfg(test)]
mod tests;
