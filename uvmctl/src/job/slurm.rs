//! Ids and names of a job, from the environment of Slurm's scripts.

use api::OwnerReport;
use serde::{Deserialize, Serialize};

/// A Slurm job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Job {
    /// Number, or SLUID where no number is known.
    pub(super) id: String,
    /// SLUID, from Slurm 26.05 on.
    pub(super) sluid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) cluster: Option<String>,
    pub(super) account: Option<String>,
    pub(super) partition: Option<String>,
    pub(super) user: Option<String>,
}

impl Job {
    /// Job with this number or SLUID, or else that of the environment. Its other names are those of
    /// the environment, if that belongs to the same job.
    pub(super) fn of(id: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let (number, sluid) = (variable("SLURM_JOB_ID"), variable("SLURM_JOB_SLUID"));
        let is_same = id.is_none_or(|id| [&number, &sluid].into_iter().flatten().any(|known| known == id));
        if !is_same {
            let id = id?.to_owned();
            let sluid = is_sluid(&id).then(|| id.clone());
            return Some(Self { id, sluid, ..Self::default() });
        }
        Some(Self {
            id: number.or_else(|| sluid.clone())?,
            sluid,
            name: variable("SLURM_JOB_NAME"),
            cluster: variable("SLURM_CLUSTER_NAME"),
            account: variable("SLURM_JOB_ACCOUNT"),
            partition: variable("SLURM_JOB_PARTITION"),
            user: variable("SLURM_JOB_USER"),
        })
    }

    /// Ids by which uvmd may know the job.
    pub(super) fn ids(&self) -> Vec<String> {
        let sluid = self.sluid.iter().filter(|sluid| **sluid != self.id);
        [&self.id].into_iter().chain(sluid).cloned().collect()
    }

    /// Adds the user that uvmd reports, if Slurm gave none.
    pub(super) fn complete(&mut self, report: &OwnerReport) {
        if self.user.is_none() {
            self.user = report.user.clone().or_else(|| report.uid.map(|uid| uid.to_string()));
        }
    }
}

/// Name of this node, if Slurm's environment has it.
pub(super) fn node() -> Option<String> {
    std::env::var("SLURMD_NODENAME").ok().filter(|node| !node.is_empty())
}

/// Whether it is an SLUID: `s` and 13 digits of base 32.
fn is_sluid(id: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || c.is_ascii_uppercase();
    id.strip_prefix('s').is_some_and(|digits| digits.len() == 13 && digits.chars().all(is_digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLUID: &str = "sEKNKTV3WPV500";

    fn epilog(name: &str) -> Option<String> {
        let value = match name {
            "SLURM_JOB_ID" => "4711",
            "SLURM_JOB_SLUID" => SLUID,
            "SLURM_JOB_ACCOUNT" => "ml",
            "SLURM_JOB_NAME" => "",
            _ => return None,
        };
        Some(value.to_owned())
    }

    #[test]
    fn job_of_the_environment_has_both_ids_and_its_names() {
        for id in [None, Some("4711"), Some(SLUID)] {
            let job = Job::of(id, epilog).unwrap();
            assert_eq!(job.ids(), ["4711", SLUID], "{id:?}");
            assert_eq!((job.account.as_deref(), job.name.as_deref()), (Some("ml"), None), "an empty one is unknown");
        }
        assert_eq!(Job::of(None, |_| None), None);
    }

    #[test]
    fn another_job_takes_no_names_of_the_environment() {
        let job = Job::of(Some("7"), epilog).unwrap();
        assert_eq!(job, Job { id: "7".to_owned(), ..Job::default() });
        let other = "sEKNKTV3WPV501";
        let job = Job::of(Some(other), epilog).unwrap();
        assert_eq!((job.ids(), job.sluid.as_deref()), (vec![other.to_owned()], Some(other)));
    }
}
