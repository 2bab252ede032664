//! Windows that could not be judged, as a remark.

use crate::text::counted;

/// Remark on windows that one late reading covered together. The times are in words.
#[must_use]
pub fn unjudged(windows: u64, started_at: &str, ended_at: &str, gpu: &str) -> String {
    format!(
        "{} of its use of {gpu} could not be judged: no reading came between {started_at} and {ended_at}, and the sum of that time shows no \
         verdict. Any of them alone may have shown one. uvmd had too little processor time.",
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
            remark.starts_with("3 windows of its use of GPU0 could not be judged: no reading came between T1 and T2"),
            "{remark}"
        );
    }
}
