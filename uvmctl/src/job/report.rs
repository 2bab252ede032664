//! Report on a job, of one node or several.

use api::{OwnerReport, ReportedUsage, Verdict};
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
}

/// Report of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct NodeReport {
    pub(super) node: String,
    pub(super) report: OwnerReport,
}

impl JobReport {
    pub(super) fn new(job: Job, nodes: Vec<NodeReport>) -> Self {
        let mut report = Self { format: FORMAT, job, total: ReportedUsage::default(), nodes };
        report.sum();
        report
    }

    /// Adds the nodes of another report on the same job.
    pub(super) fn merge(&mut self, other: Self) {
        self.nodes.extend(other.nodes);
        self.nodes.sort_by(|one, other| one.node.cmp(&other.node));
        self.sum();
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
        let mut report = JobReport::new(Job::default(), vec![node("b", Some(60), 4.0, 1.5)]);
        report.merge(JobReport::new(Job::default(), vec![node("a", Some(30), 2.0, 3.0)]));
        assert_eq!(report.nodes.iter().map(|node| node.node.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let ReportedUsage { bytes_htod, refetched_bytes, verdict_seconds, peak_oversubscription_ratio, .. } =
            &report.total;
        assert_eq!((*bytes_htod, *refetched_bytes, *peak_oversubscription_ratio), (200, Some(90), Some(3.0)));
        assert_eq!(verdict_seconds.get("capacity_thrash"), Some(&6.0));
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
