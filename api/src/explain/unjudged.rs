//! Windows that could not be judged, as a remark.

use model::{text::counted, verdict::UNJUDGED};

/// Remark on windows that one late reading covered together. The times are in words.
#[must_use]
pub fn unjudged(windows: u64, started_at: &str, ended_at: &str, gpu: &str) -> String {
    format!(
        "{} at {gpu} {UNJUDGED}: uvmd got too little processor time to read counts between {started_at} and {ended_at}. Together \
         they show no verdict; each alone may show one. If this recurs, give uvmd more processor time.",
        counted(windows, "window"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remark_names_windows_times_and_gpu() {
        let remark = unjudged(3, "T1", "T2", "GPU0");
        assert!(
            remark.starts_with("3 windows at GPU0 could not be judged: uvmd got too little processor time to read counts between T1 and T2"),
            "{remark}"
        );
    }
}
