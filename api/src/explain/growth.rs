//! Programs whose managed memory grows without end, as a remark.

use model::{ManagedGrowth, text::bytes};

/// Growth in an hour from which on a process is named, as in the alert `UvmOwnerMemoryGrowing`.
const BYTES_PER_HOUR_MIN: u64 = 1 << 30;

/// Remark on steady growth of a running process's managed memory; `None` below the threshold.
#[must_use]
pub fn growth(growth: ManagedGrowth) -> Option<String> {
    let ManagedGrowth { from_bytes, to_bytes, over } = growth;
    let grown = u128::from(to_bytes.saturating_sub(from_bytes));
    let per_hour = u64::try_from((grown * 3600).checked_div(over.as_secs().into())?).unwrap_or(u64::MAX);
    (per_hour >= BYTES_PER_HOUR_MIN).then(|| {
        format!(
            "Its managed memory grows steadily, by {} per hour: from {} to {} in the last {} minutes. Unless its work grows, it allocates \
             memory in each step and does not free it; `uvmctl ops` lists the calls of a program with the helper.",
            bytes(per_hour),
            bytes(from_bytes),
            bytes(to_bytes),
            over.as_secs() / 60
        )
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn growth_remark_has_its_rate_and_both_sizes() {
        let remark =
            growth(ManagedGrowth { from_bytes: 2 << 30, to_bytes: 6 << 30, over: Duration::from_hours(2) }).unwrap();
        assert!(remark.contains("by 2.0 GiB per hour: from 2.0 GiB to 6.0 GiB in the last 120 minutes"), "{remark}");
    }

    #[test]
    fn slow_growth_is_no_remark() {
        let slow = ManagedGrowth { from_bytes: 0, to_bytes: (1 << 30) - 1, over: Duration::from_hours(1) };
        assert_eq!(growth(slow), None);
        assert_eq!(growth(ManagedGrowth { over: Duration::ZERO, ..slow }), None);
    }
}
