//! Results of all checks, as JSON, and the exit code.

use serde::Serialize;
use workloads::report::Gpu;

use crate::{counting::WorkloadCounts, facts::Fact, recording::Recorded, timing::Times};

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// As expected.
    Right,
    /// Not as expected.
    Differs,
    /// Not permitted by this machine, or out of time; the detail has the reason.
    NotChecked,
}

/// One check.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    pub(crate) verdict: Verdict,
    pub(crate) detail: String,
}

/// Results of all checks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Results {
    /// RFC 3339 time, UTC.
    pub(crate) date: String,
    pub(crate) command: String,
    pub(crate) version: &'static str,
    pub(crate) elapsed_s: f64,
    pub(crate) driver: Option<String>,
    /// GPU, if there is one.
    pub(crate) gpu: Option<Gpu>,
    pub(crate) checks: Vec<Check>,
    pub(crate) counts: Vec<WorkloadCounts>,
    pub(crate) records: Vec<Recorded>,
    pub(crate) timed_bytes: u64,
    pub(crate) times: Vec<Times>,
    pub(crate) facts: Vec<Fact>,
}

/// Exit code without a GPU.
pub(crate) const NO_GPU: u8 = workloads::exit::NO_GPU;

impl Results {
    pub(crate) fn add(&mut self, name: &str, verdict: Verdict, detail: impl Into<String>) {
        self.checks.push(Check { name: name.to_owned(), verdict, detail: detail.into() });
    }

    /// Exit code: 0 if all that could be checked was right, 1 if something differed, 3 without a
    /// GPU.
    pub(crate) fn exit_code(&self) -> u8 {
        let differs = self.checks.iter().any(|check| check.verdict == Verdict::Differs);
        match &self.gpu {
            _ if differs => 1,
            None => NO_GPU,
            Some(_) => 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing;

    pub(crate) fn results() -> Results {
        Results {
            date: "2026-08-21T14:06:23Z".to_owned(),
            command: "gpu-check".to_owned(),
            version: "0.1.0",
            elapsed_s: 61.5,
            driver: Some("580.159.04".to_owned()),
            gpu: Some(testing::gpu()),
            checks: Vec::new(),
            counts: Vec::new(),
            records: Vec::new(),
            timed_bytes: 0,
            times: Vec::new(),
            facts: Vec::new(),
        }
    }

    #[test]
    fn a_check_that_was_not_made_is_no_failure() {
        let mut results = results();
        results.add("a", Verdict::Right, "");
        results.add("b", Verdict::NotChecked, "no kprobes");
        assert_eq!(results.exit_code(), 0);
        results.add("c", Verdict::Differs, "by 1");
        assert_eq!(results.exit_code(), 1);
    }

    #[test]
    fn without_a_gpu_the_exit_code_is_3() {
        assert_eq!(Results { gpu: None, ..results() }.exit_code(), 3);
    }
}
