//! Selectors of processes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{MemoryRange, text};

/// Selector of processes and of their memory. All given fields must match. In texts `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Selector {
    /// Process id, in uvmd's PID namespace.
    #[serde(default)]
    pub pid: Option<u32>,
    /// Start time of that process, in clock ticks since boot, so that a later process with the id does not match. The API fills in that of the process that
    /// has the id now.
    #[serde(default)]
    pub start_ticks: Option<u64>,
    /// Short name, or path of the executable if it contains a `/`. A process sets both itself: no security boundary.
    #[serde(default)]
    pub executable: Option<String>,
    /// User id.
    #[serde(default)]
    pub uid: Option<u32>,
    /// Cgroup, or one below it.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Container id, or a prefix of it.
    #[serde(default)]
    pub container: Option<String>,
    /// UID of the Kubernetes pod, or a prefix of it.
    #[serde(default)]
    pub pod: Option<String>,
    /// Slurm job id.
    #[serde(default)]
    pub job: Option<String>,
    /// Address range. Requires read permission; null without.
    #[serde(default)]
    pub range: Option<MemoryRange>,
    /// Minimum size of an allocation, exclusive: a number, or text with a unit, such as `64 MiB`.
    #[serde(default, deserialize_with = "text::bytes_or_text")]
    pub allocation_larger_than_bytes: Option<u64>,
}

/// A given field of a selector. In order of declaration: the first restricts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Criterion<'a> {
    /// Process id.
    Pid(u32),
    /// Start time of the process.
    StartTicks(u64),
    /// Container id, or a prefix of it.
    Container(&'a str),
    /// UID of the pod, or a prefix of it.
    Pod(&'a str),
    /// Slurm job id.
    Job(&'a str),
    /// Cgroup, or one below it.
    Cgroup(&'a str),
    /// Short name, or path of the executable.
    Executable(&'a str),
    /// User id.
    Uid(u32),
    /// Address range.
    Range(MemoryRange),
    /// Minimum size of an allocation, exclusive.
    AllocationLargerThanBytes(u64),
}

impl Selector {
    /// Its given fields, in order of [`Criterion`].
    pub fn criteria(&self) -> impl Iterator<Item = Criterion<'_>> {
        let Self {
            pid,
            start_ticks,
            executable,
            uid,
            cgroup,
            container,
            pod,
            job,
            range,
            allocation_larger_than_bytes,
        } = self;
        let criteria = [
            pid.map(Criterion::Pid),
            start_ticks.map(Criterion::StartTicks),
            container.as_deref().map(Criterion::Container),
            pod.as_deref().map(Criterion::Pod),
            job.as_deref().map(Criterion::Job),
            cgroup.as_deref().map(Criterion::Cgroup),
            executable.as_deref().map(Criterion::Executable),
            uid.map(Criterion::Uid),
            range.map(Criterion::Range),
            allocation_larger_than_bytes.map(Criterion::AllocationLargerThanBytes),
        ];
        criteria.into_iter().flatten()
    }
}

impl Criterion<'_> {
    /// Number of criteria.
    pub const COUNT: usize = 10;

    /// Position in the order of declaration, below [`Self::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Pid(_) => 0,
            Self::StartTicks(_) => 1,
            Self::Container(_) => 2,
            Self::Pod(_) => 3,
            Self::Job(_) => 4,
            Self::Cgroup(_) => 5,
            Self::Executable(_) => 6,
            Self::Uid(_) => 7,
            Self::Range(_) => 8,
            Self::AllocationLargerThanBytes(_) => 9,
        }
    }

    /// Name of the field in an override.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Pid(_) => "match.pid",
            Self::StartTicks(_) => "match.start_ticks",
            Self::Container(_) => "match.container",
            Self::Pod(_) => "match.pod",
            Self::Job(_) => "match.job",
            Self::Cgroup(_) => "match.cgroup",
            Self::Executable(_) => "match.executable",
            Self::Uid(_) => "match.uid",
            Self::Range(_) => "match.range",
            Self::AllocationLargerThanBytes(_) => "match.allocation_larger_than_bytes",
        }
    }
}

/// The value alone, as in an override.
impl fmt::Display for Criterion<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Pid(id) | Self::Uid(id) => write!(f, "{id}"),
            Self::StartTicks(number) | Self::AllocationLargerThanBytes(number) => write!(f, "{number}"),
            Self::Container(text) | Self::Pod(text) | Self::Job(text) | Self::Cgroup(text) | Self::Executable(text) => {
                f.write_str(text)
            }
            Self::Range(MemoryRange { begin, end }) => write!(f, "{begin:#x}-{end:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_are_the_given_fields_in_order() {
        let all = Selector {
            pid: Some(1),
            start_ticks: Some(2),
            executable: Some("a".to_owned()),
            uid: Some(3),
            cgroup: Some("/b".to_owned()),
            container: Some("c".to_owned()),
            pod: Some("d".to_owned()),
            job: Some("e".to_owned()),
            range: Some((0x1000, 0x2000).into()),
            allocation_larger_than_bytes: Some(4),
        };
        let indices: Vec<usize> = all.criteria().map(Criterion::index).collect();
        assert_eq!(indices, (0..Criterion::COUNT).collect::<Vec<_>>());
        let texts: Vec<String> = all.criteria().map(|each| each.to_string()).collect();
        assert_eq!(texts, ["1", "2", "c", "d", "e", "/b", "a", "3", "0x1000-0x2000", "4"]);
        assert_eq!(Selector::default().criteria().count(), 0);
    }
}
