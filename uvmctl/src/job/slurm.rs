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

    /// Whether nothing known of the two differs. Slurm reuses numbers, and never SLUIDs.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        let agree = |one: &Option<String>, other: &Option<String>| one.is_none() || other.is_none() || one == other;
        let is_named_alike = match (&self.sluid, &other.sluid) {
            (Some(one), Some(other)) => one == other,
            (one, two) => self.id == other.id || one.as_ref() == Some(&other.id) || two.as_ref() == Some(&self.id),
        };
        is_named_alike && agree(&self.cluster, &other.cluster) && agree(&self.user, &other.user)
    }

    /// Adds what another report on the same job knows.
    pub(super) fn fill(&mut self, other: &Self) {
        let Self { id, sluid, name, cluster, account, partition, user } = other;
        for (known, value) in [
            (&mut self.sluid, sluid),
            (&mut self.name, name),
            (&mut self.cluster, cluster),
            (&mut self.account, account),
            (&mut self.partition, partition),
            (&mut self.user, user),
        ] {
            if known.is_none() {
                known.clone_from(value);
            }
        }
        if self.sluid.as_ref() == Some(&self.id) {
            self.id.clone_from(id);
        }
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
    fn jobs_are_the_same_unless_their_sluids_users_or_clusters_differ() {
        let job = |sluid: Option<&str>, user: Option<&str>, cluster: Option<&str>| Job {
            id: "4711".to_owned(),
            sluid: sluid.map(str::to_owned),
            user: user.map(str::to_owned),
            cluster: cluster.map(str::to_owned),
            ..Job::default()
        };
        let known = job(Some(SLUID), Some("alice"), Some("lab"));
        for (other, is_same) in [
            (job(None, None, None), true),
            (job(Some(SLUID), None, None), true),
            (Job { id: SLUID.to_owned(), ..job(Some(SLUID), None, None) }, true),
            (Job { id: SLUID.to_owned(), ..job(None, None, None) }, true),
            (job(Some("sEKNKTV3WPV501"), Some("alice"), Some("lab")), false),
            (job(None, Some("bob"), None), false),
            (job(None, None, Some("other")), false),
            (Job { id: "4712".to_owned(), ..Job::default() }, false),
        ] {
            assert_eq!((known.may_be(&other), other.may_be(&known)), (is_same, is_same), "{other:?}");
        }
    }

    #[test]
    fn number_of_a_job_that_is_known_by_its_sluid_is_filled_in() {
        let mut job = Job { id: SLUID.to_owned(), sluid: Some(SLUID.to_owned()), ..Job::default() };
        job.fill(&Job::of(None, epilog).unwrap());
        assert_eq!(job, Job::of(None, epilog).unwrap());
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
