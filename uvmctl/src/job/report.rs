//! Report on a job, of one node or several.

use std::{cmp::Reverse, collections::BTreeMap, time::SystemTime};

use api::{OwnerReport, ReportedUsage, Verdict};
use model::text::parse_time;
use serde::{Deserialize, Serialize};

use super::slurm::Job;

/// Version of the format.
pub(super) const FORMAT: u32 = 1;

/// Report on a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct JobReport {
    /// Version of the format.
    pub(super) format: u32,
    pub(super) job: Job,
    /// Sums over all nodes, and maxima of peaks.
    pub(super) total: ReportedUsage,
    pub(super) nodes: Vec<NodeReport>,
    /// Other jobs with its number, the latest first. Their usage is not in the report.
    #[serde(default)]
    pub(super) other_jobs: Vec<OtherJob>,
}

/// Job whose number was used again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct OtherJob {
    pub(super) job: Job,
    /// Time of its latest report.
    pub(super) time: String,
    /// Nodes with a report on it.
    pub(super) nodes: Vec<String>,
}

/// Report of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeReport {
    pub(super) node: String,
    pub(super) report: OwnerReport,
}

impl JobReport {
    pub(super) fn new(job: Job, nodes: Vec<NodeReport>) -> Self {
        let total = ReportedUsage::default();
        let mut report = Self { format: FORMAT, job, total, nodes, other_jobs: Vec::new() };
        report.sum();
        report
    }

    /// Report on this job from reports of single nodes: the latest of each node. Of several jobs
    /// with its number it is the latest, unless more of it is known. `None` if none is on it.
    pub(super) fn merged(job: Job, reports: Vec<Self>) -> Option<Self> {
        let of_nodes = |report: Self| report.nodes.into_iter().map(move |node| (report.job.clone(), node));
        let mut reports: Vec<_> = reports.into_iter().flat_map(of_nodes).collect();
        reports.sort_by_cached_key(|(_, node)| Reverse(node.time()));
        // Latest first: the job takes what is unknown of it from its latest report.
        let mut jobs = vec![(job, BTreeMap::new())];
        for (job, node) in reports {
            match jobs.iter_mut().find(|(known, _)| known.may_be(&job)) {
                Some((known, nodes)) => {
                    known.fill(&job);
                    nodes.entry(node.node.clone()).or_insert(node);
                }
                None => jobs.push((job, [(node.node.clone(), node)].into())),
            }
        }
        let mut jobs = jobs.into_iter();
        let (job, nodes) = jobs.next().filter(|(_, nodes)| !nodes.is_empty())?;
        let other_jobs = jobs.map(|(job, nodes)| OtherJob::new(job, nodes.into_values().collect())).collect();
        Some(Self { other_jobs, ..Self::new(job, nodes.into_values().collect()) })
    }

    /// Sets the rate of the link at all nodes, if one is given.
    pub(super) fn set_link_rate(&mut self, rate: Option<u64>) {
        let Some(rate) = rate.filter(|rate| *rate > 0) else { return };
        let cost = |usage: &ReportedUsage| usage.refetched_bytes.map(|bytes| bytes as f64 / rate as f64);
        for NodeReport { report, .. } in &mut self.nodes {
            report.link_bytes_per_second = Some(rate);
            report.usage.refetch_seconds = cost(&report.usage);
            for step in &mut report.steps {
                step.usage.refetch_seconds = cost(&step.usage);
            }
        }
        self.sum();
    }

    fn sum(&mut self) {
        let mut nodes = self.nodes.iter().map(|node| &node.report.usage);
        let first = nodes.next().cloned().unwrap_or_default();
        self.total = nodes.fold(first, added);
    }

    /// Worst verdict of all nodes, with node and step.
    pub(super) fn worst_verdict(&self) -> Option<(&NodeReport, &Verdict)> {
        let worst = self.nodes.iter().filter_map(|node| Some((node, node.report.worst_verdict.as_ref()?)));
        worst.max_by_key(|(_, verdict)| (verdict.thrashing, verdict.total.copied_bytes()))
    }
}

impl NodeReport {
    /// Time of the report; `None` if it is not valid.
    fn time(&self) -> Option<SystemTime> {
        parse_time(&self.report.time).ok()
    }
}

impl OtherJob {
    fn new(job: Job, nodes: Vec<NodeReport>) -> Self {
        let time = nodes.iter().max_by_key(|node| node.time()).map(|node| node.report.time.clone());
        let nodes = nodes.into_iter().map(|node| node.node).collect();
        Self { job, time: time.unwrap_or_default(), nodes }
    }
}

fn added(mut sum: ReportedUsage, usage: &ReportedUsage) -> ReportedUsage {
    // Destructured without `..`: a quantity that is not summed does not compile.
    let ReportedUsage {
        fault_entries,
        bytes_htod,
        bytes_dtoh,
        evicted_bytes,
        induced_eviction_bytes,
        fetched_bytes,
        refetched_bytes,
        cpu_reclaimed_bytes,
        refetch_seconds,
        verdict_seconds,
        peak_oversubscription_ratio,
    } = usage;
    for (sum, more) in
        [(&mut sum.fault_entries, fault_entries), (&mut sum.bytes_htod, bytes_htod), (&mut sum.bytes_dtoh, bytes_dtoh)]
    {
        *sum = sum.saturating_add(*more);
    }
    for (sum, more) in [
        (&mut sum.evicted_bytes, evicted_bytes),
        (&mut sum.induced_eviction_bytes, induced_eviction_bytes),
        (&mut sum.fetched_bytes, fetched_bytes),
        (&mut sum.refetched_bytes, refetched_bytes),
        (&mut sum.cpu_reclaimed_bytes, cpu_reclaimed_bytes),
    ] {
        // A sum without one of its parts is unknown.
        *sum = sum.zip(*more).map(|(sum, more)| sum.saturating_add(more));
    }
    sum.refetch_seconds = sum.refetch_seconds.zip(*refetch_seconds).map(|(sum, more)| sum + more);
    for (kind, seconds) in verdict_seconds {
        *sum.verdict_seconds.entry(kind.clone()).or_default() += seconds;
    }
    if sum.peak_oversubscription_ratio < *peak_oversubscription_ratio {
        sum.peak_oversubscription_ratio = *peak_oversubscription_ratio;
    }
    sum
}

#[cfg(test)]
mod tests {
    use api::StepReport;

    use super::*;

    fn node(name: &str, refetched_bytes: Option<u64>, thrash_seconds: f64, peak: f64) -> NodeReport {
        let usage = ReportedUsage {
            bytes_htod: 100,
            refetched_bytes,
            verdict_seconds: [("capacity_thrash".to_owned(), thrash_seconds)].into(),
            peak_oversubscription_ratio: Some(peak),
            ..ReportedUsage::default()
        };
        let steps = vec![StepReport { step: Some("0".to_owned()), usage: usage.clone() }];
        NodeReport { node: name.to_owned(), report: OwnerReport { usage, steps, ..OwnerReport::default() } }
    }

    #[test]
    fn nodes_of_a_job_are_summed_and_peaks_are_maxima() {
        let reports = [node("b", Some(60), 4.0, 1.5), node("a", Some(30), 2.0, 3.0)];
        let reports = reports.map(|node| JobReport::new(Job::default(), vec![node])).into();
        let report = JobReport::merged(Job::default(), reports).unwrap();
        assert_eq!(report.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let ReportedUsage { bytes_htod, refetched_bytes, verdict_seconds, peak_oversubscription_ratio, .. } =
            &report.total;
        assert_eq!((*bytes_htod, *refetched_bytes, *peak_oversubscription_ratio), (200, Some(90), Some(3.0)));
        assert_eq!(verdict_seconds.get("capacity_thrash"), Some(&6.0));
    }

    /// Report of a node at this second, with as many bytes refetched.
    fn at(job: &Job, name: &str, second: u64) -> JobReport {
        let mut node = node(name, Some(second), 1.0, 1.0);
        node.report.time = format!("2026-12-01T00:00:{second:02}Z");
        JobReport::new(job.clone(), vec![node])
    }

    fn job(sluid: Option<&str>, user: Option<&str>) -> Job {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Job { id: "4711".to_owned(), sluid: owned(sluid), user: owned(user), ..Job::default() }
    }

    #[test]
    fn latest_report_of_a_node_counts_once_wherever_it_is() {
        let job = job(None, Some("alice"));
        for seconds in [[7, 9, 9], [9, 7, 9], [9, 9, 7]] {
            let reports = seconds.map(|second| at(&job, "a", second)).into_iter().chain([at(&job, "b", 1)]).collect();
            let merged = JobReport::merged(job.clone(), reports).unwrap();
            assert_eq!((merged.nodes.len(), merged.total.refetched_bytes), (2, Some(10)), "{seconds:?}");
            assert_eq!(merged.other_jobs, []);
        }
    }

    #[test]
    fn of_jobs_with_the_same_number_the_latest_is_reported_and_the_others_are_named() {
        let (alice, bob) = (job(None, Some("alice")), job(None, Some("bob")));
        let reports = || vec![at(&alice, "a", 5), at(&bob, "b", 8), at(&bob, "a", 7), at(&alice, "c", 6)];
        let other = |job: &Job, time: u64, nodes: [&str; 2]| OtherJob {
            job: job.clone(),
            time: format!("2026-12-01T00:00:{time:02}Z"),
            nodes: nodes.map(str::to_owned).into(),
        };
        let merged = JobReport::merged(job(None, None), reports()).unwrap();
        assert_eq!((&merged.job, merged.total.refetched_bytes), (&bob, Some(15)));
        assert_eq!(merged.other_jobs, [other(&alice, 6, ["a", "c"])]);
        // What is known of the job selects it.
        let merged = JobReport::merged(alice.clone(), reports()).unwrap();
        assert_eq!((&merged.job, merged.total.refetched_bytes), (&alice, Some(11)));
        assert_eq!(merged.other_jobs, [other(&bob, 8, ["a", "b"])]);
        assert_eq!(JobReport::merged(job(None, Some("carol")), reports()), None);
    }

    #[test]
    fn jobs_with_other_sluids_are_others_also_of_the_same_user() {
        let [one, two] = ["sEKNKTV3WPV500", "sEKNKTV3WPV501"].map(|sluid| job(Some(sluid), Some("alice")));
        let reports = vec![at(&one, "a", 5), at(&two, "b", 6)];
        let merged = JobReport::merged(job(None, None), reports).unwrap();
        assert_eq!((&merged.job, merged.nodes.len(), &merged.other_jobs[0].job), (&two, 1, &one));
    }

    #[test]
    fn sum_with_an_unknown_part_is_unknown() {
        let report = JobReport::new(Job::default(), vec![node("a", Some(60), 4.0, 1.5), node("b", None, 0.0, 1.0)]);
        assert_eq!(report.total.refetched_bytes, None);
    }

    #[test]
    fn cost_is_refetched_bytes_over_the_given_rate() {
        let mut report = JobReport::new(Job::default(), vec![node("a", Some(60), 4.0, 1.5)]);
        report.set_link_rate(Some(20));
        assert_eq!(report.total.refetch_seconds, Some(3.0));
        assert_eq!(report.nodes[0].report.steps[0].usage.refetch_seconds, Some(3.0));
    }
}
