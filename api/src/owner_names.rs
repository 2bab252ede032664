//! File of pod names, by the UIDs in cgroups: `uvmd-fleet` writes it, and uvmd reads it.
//!
//! uvmd takes the file as a claim: [`OwnerNames::check`] bounds numbers and lengths, and permits only
//! the characters of Kubernetes' names.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use model::{NamesSource, PodNames};
use serde::{Deserialize, Serialize};

/// Version of the format. A reader refuses any other.
pub const FORMAT: u32 = 1;
/// Maximum bytes of the file.
pub const BYTES_MAX: u64 = 8 << 20;
/// Maximum number of pods. A kubelet admits some hundred; names of deleted pods stay for the retention.
pub const PODS_MAX: usize = 8192;
/// Maximum of containers of a pod, restarted ones included.
pub const CONTAINERS_MAX: usize = 64;
/// Maximum of labels of a pod.
pub const LABELS_MAX: usize = 16;
/// Maximum bytes of the name of a pod; a namespace and a container have 63.
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerNames {
    /// [`FORMAT`].
    pub format: u32,
    /// Generation of the names: grows with each change, also across restarts if the file remains.
    pub generation: u64,
    /// Time at which the file was written, as RFC 3339.
    pub written_at: String,
    /// Time of the last contact with the API server; null before the first.
    pub contacted_at: Option<String>,
    /// Pods of the node, and deleted ones within the retention.
    pub pods: Vec<Pod>,
}

/// Names of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pod {
    /// UID in the pod's cgroup: that of the object, or the hash of a static pod's configuration.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Controller, as `Deployment/llm`; null without one.
    #[serde(default)]
    pub workload: Option<String>,
    /// Names of the containers, by id.
    #[serde(default)]
    pub containers: BTreeMap<String, String>,
    /// Name of the only container; null where there are several.
    #[serde(default)]
    pub only_container: Option<String>,
    /// Labels that are allowed.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Time of the deletion; null while the pod exists.
    #[serde(default)]
    pub deleted_at: Option<String>,
}

/// Reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another version of the format.
    #[error("format {0}, and this version of uvmd reads {FORMAT}: use uvmd and uvmd-fleet of one release")]
    Format(u32),
    /// Too many of something.
    #[error("{count} {what}, at most {max}")]
    TooMany {
        /// Plural of it.
        what: &'static str,
        /// Number in the file.
        count: usize,
        /// Maximum.
        max: usize,
    },
    /// A malformed value.
    #[error("pods[{index}].{field}: not {expected}")]
    Malformed {
        /// Position of the pod.
        index: usize,
        /// Field.
        field: &'static str,
        /// Valid values.
        expected: &'static str,
    },
    /// Two pods with one UID.
    #[error("pods[{index}].uid: an earlier pod has it, too")]
    Duplicate {
        /// Position of the second.
        index: usize,
    },
}

impl OwnerNames {
    /// Names, if all of them are valid. `contacted_at` is that of the file, parsed.
    ///
    /// # Errors
    /// First violation.
    pub fn check(self, contacted_at: Option<SystemTime>) -> Result<model::OwnerNames, Refusal> {
        if self.format != FORMAT {
            return Err(Refusal::Format(self.format));
        }
        at_most("pods", self.pods.len(), PODS_MAX)?;
        let mut pods = HashMap::with_capacity(self.pods.len());
        for (index, pod) in self.pods.into_iter().enumerate() {
            let (uid, names) = pod.check(index)?;
            if pods.insert(uid, Arc::new(names)).is_some() {
                return Err(Refusal::Duplicate { index });
            }
        }
        Ok(model::OwnerNames { pods, source: Some(NamesSource { is_current: true, contacted_at }) })
    }
}

impl Pod {
    /// The pod without its malformed parts, and their fields. Its identity stays as it is.
    #[must_use]
    pub fn without_malformed(self) -> (Self, Vec<&'static str>) {
        let Self { uid, namespace, name, workload, containers, only_container, labels, deleted_at } = self;
        let counts = (containers.len(), labels.len());
        let (had_workload, had_container) = (workload.is_some(), only_container.is_some());
        let pod = Self {
            uid,
            namespace,
            name,
            workload: workload.filter(|workload| is_workload(workload)),
            containers: containers
                .into_iter()
                .filter(|(id, name)| is_container_id(id) && is_label_name(name))
                .collect(),
            only_container: only_container.filter(|name| is_label_name(name)),
            labels: labels.into_iter().filter(|(key, value)| is_label(key, value)).collect(),
            deleted_at,
        };
        let dropped = [
            ("workload", had_workload && pod.workload.is_none()),
            ("containers", counts.0 != pod.containers.len()),
            ("only_container", had_container && pod.only_container.is_none()),
            ("labels", counts.1 != pod.labels.len()),
        ];
        let fields = dropped.into_iter().filter(|(_, is_dropped)| *is_dropped).map(|(field, _)| field).collect();
        (pod, fields)
    }

    /// Its UID and its names, if they are valid. `index` is its position.
    ///
    /// # Errors
    /// First violation.
    pub fn check(self, index: usize) -> Result<(String, PodNames), Refusal> {
        let Self { uid, namespace, name, workload, containers, only_container, labels, deleted_at: _ } = self;
        let is = |field, valid: bool, expected| {
            if valid { Ok(()) } else { Err(Refusal::Malformed { index, field, expected }) }
        };
        is("uid", is_uid(&uid), "a UID: a UUID or 32 digits, in lower case")?;
        is("namespace", is_label_name(&namespace), "the name of a namespace")?;
        is("name", is_name(&name), "the name of a pod")?;
        is("workload", workload.as_deref().is_none_or(is_workload), "KIND/NAME")?;
        at_most("containers of a pod", containers.len(), CONTAINERS_MAX)?;
        at_most("labels of a pod", labels.len(), LABELS_MAX)?;
        let is_container = |(id, name): (&String, &String)| is_container_id(id) && is_label_name(name);
        is("containers", containers.iter().all(is_container), "names by ids of 64 hexadecimal digits")?;
        is("only_container", only_container.as_deref().is_none_or(is_label_name), "the name of a container")?;
        is("labels", labels.iter().all(|(key, value)| is_label(key, value)), "labels of Kubernetes")?;
        Ok((uid, PodNames { namespace, name, workload, containers, only_container, labels }))
    }
}

const fn at_most(what: &'static str, count: usize, max: usize) -> Result<(), Refusal> {
    if count > max { Err(Refusal::TooMany { what, count, max }) } else { Ok(()) }
}

/// Whether it is a UID as the cgroup of a pod has it.
#[must_use]
pub fn is_uid(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || matches!(c, 'a'..='f');
    let lengths = |part: &str| if part.chars().all(is_digit) { part.len() } else { 0 };
    matches!(text.len(), 32 | 36)
        && matches!(text.split('-').map(lengths).collect::<Vec<_>>()[..], [8, 4, 4, 4, 12] | [32])
}

/// Whether it is the id of a container.
#[must_use]
pub fn is_container_id(text: &str) -> bool {
    text.len() == 64 && text.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'))
}

/// Whether it is a label of RFC 1123, as namespaces and containers have for names.
fn is_label_name(text: &str) -> bool {
    text.len() <= LABEL_BYTES_MAX && is_name(text) && !text.contains('.')
}

/// Whether it is a subdomain of RFC 1123, as pods have for names.
fn is_name(text: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit() || c.is_ascii_lowercase());
    text.len() <= NAME_BYTES_MAX
        && text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() || matches!(c, '-' | '.'))
        && is_edge(text.chars().next())
        && is_edge(text.chars().last())
}

fn is_workload(text: &str) -> bool {
    text.split_once('/').is_some_and(|(kind, name)| {
        (1..=LABEL_BYTES_MAX).contains(&kind.len())
            && kind.chars().all(|c| c.is_ascii_alphanumeric())
            && name.len() <= NAME_BYTES_MAX
            && !name.is_empty()
            && name.chars().all(is_plain)
    })
}

fn is_label(key: &str, value: &str) -> bool {
    !key.is_empty()
        && key.len() <= NAME_BYTES_MAX + 1 + LABEL_BYTES_MAX
        && value.len() <= LABEL_BYTES_MAX
        && key.chars().all(|c| is_plain(c) || c == '/')
        && value.chars().all(is_plain)
}

const fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    const UID: &str = "3f2a9c1e-1111-2222-3333-444444444444";

    fn pod() -> Pod {
        Pod { uid: UID.to_owned(), namespace: "ml".to_owned(), name: "llm-7b-0".to_owned(), ..Pod::default() }
    }

    fn file(pods: Vec<Pod>) -> OwnerNames {
        OwnerNames { format: FORMAT, pods, ..OwnerNames::default() }
    }

    fn refusal(pods: Vec<Pod>) -> String {
        file(pods).check(None).unwrap_err().to_string()
    }

    #[test]
    fn names_of_valid_pods_are_found_by_uid() {
        let stat = Pod { uid: "0123456789abcdef0123456789abcdef".to_owned(), ..pod() };
        let workload = Some("Deployment/llm".to_owned());
        let containers = BTreeMap::from([("c".repeat(64), "train".to_owned())]);
        let labels = BTreeMap::from([("app.kubernetes.io/name".to_owned(), "llm".to_owned())]);
        let names = file(vec![Pod { workload, containers, labels, ..pod() }, stat]).check(None).unwrap();
        assert_eq!(names.pods.len(), 2);
        assert_eq!(names.pods[UID].label(), "ml/llm-7b-0");
    }

    #[test]
    fn each_malformed_field_is_refused_by_its_name() {
        let long = "a".repeat(254);
        for (field, pod) in [
            ("uid", Pod { uid: UID.to_uppercase(), ..pod() }),
            ("uid", Pod { uid: "-".repeat(36), ..pod() }),
            ("namespace", Pod { namespace: String::new(), ..pod() }),
            ("namespace", Pod { namespace: "a.b".to_owned(), ..pod() }),
            ("name", Pod { name: "a\nb".to_owned(), ..pod() }),
            ("name", Pod { name: "-a".to_owned(), ..pod() }),
            ("name", Pod { name: long, ..pod() }),
            ("workload", Pod { workload: Some("Deployment".to_owned()), ..pod() }),
            ("containers", Pod { containers: BTreeMap::from([("c0".to_owned(), "a".to_owned())]), ..pod() }),
            ("only_container", Pod { only_container: Some("\u{1b}".to_owned()), ..pod() }),
            ("labels", Pod { labels: BTreeMap::from([("a".to_owned(), "\"".to_owned())]), ..pod() }),
        ] {
            let refusal = refusal(vec![pod]);
            assert!(refusal.starts_with(&format!("pods[0].{field}: not ")), "{refusal}");
        }
    }

    #[test]
    fn numbers_are_bounded_and_uids_unique() {
        assert_eq!(refusal(vec![pod(), pod()]), "pods[1].uid: an earlier pod has it, too");
        assert_eq!(refusal(vec![pod(); PODS_MAX + 1]), "8193 pods, at most 8192");
        let labels: BTreeMap<_, _> = (0..=LABELS_MAX).map(|index| (format!("l{index}"), String::new())).collect();
        assert_eq!(refusal(vec![Pod { labels, ..pod() }]), "17 labels of a pod, at most 16");
        let later = OwnerNames { format: 2, ..OwnerNames::default() };
        assert!(later.check(None).unwrap_err().to_string().starts_with("format 2, and this version of uvmd reads 1"));
    }
}
