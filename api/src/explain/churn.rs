//! Programs that allocate and free managed memory all the time, as a remark.

use std::time::Duration;

use model::{
    block::BLOCK_BYTES,
    text::{bytes, count},
};

/// Freed blocks per second from which on a process is named: fewer cost little compared with faults.
const FREED_BLOCKS_PER_SECOND_MIN: u64 = 10;
/// Minimum ratio of freed bytes to managed bytes.
const TURNOVER_MIN: u64 = 4;
/// Minimum time of observation: a program may free much at the end of its start.
const OBSERVATION_MIN: Duration = Duration::from_secs(10);

/// Remark on allocation churn of a running process; `None` below the thresholds. `counted`: time for which its frees were counted.
#[must_use]
pub fn churn(freed_blocks: u64, populated_bytes: u64, managed_bytes: Option<u64>, counted: Duration) -> Option<String> {
    if counted < OBSERVATION_MIN {
        return None;
    }
    let freed_per_second = freed_blocks / counted.as_secs();
    let freed_bytes = freed_blocks.saturating_mul(BLOCK_BYTES);
    let managed = managed_bytes?;
    if freed_per_second < FREED_BLOCKS_PER_SECOND_MIN || freed_bytes < managed.saturating_mul(TURNOVER_MIN) {
        return None;
    }
    let turnover = freed_bytes.checked_div(managed);
    let turnover = turnover.map(|times| format!(", at most {} times its managed memory in total", count(times)));
    let touched = Some(populated_bytes / counted.as_secs()).filter(|rate| *rate > 0);
    let touched = touched.map(|rate| format!(", and first touches of {}/s", bytes(rate)));
    Some(format!(
        "It allocates and frees managed memory all the time: it freed {} blocks of up to 2 MiB per second on average{}{}. Each cudaFree of \
         managed memory waits for the GPU and unmaps its pages, and the next allocation is populated anew: allocate once and reuse the memory, or \
         take it from a pool.",
        count(freed_per_second),
        turnover.unwrap_or_default(),
        touched.unwrap_or_default()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const MINUTE: Duration = Duration::from_mins(1);

    #[test]
    fn program_that_frees_its_memory_again_and_again_is_named_with_its_rates() {
        // 64 MiB, eight times a second.
        let said = churn(32 * 8 * 60, 30 * GIB, Some(64 << 20), MINUTE).unwrap();
        assert!(said.contains("256 blocks of up to 2 MiB per second"), "{said}");
        assert!(said.contains("at most 480 times its managed memory in total"), "{said}");
        assert!(said.contains("first touches of 512 MiB/s"), "{said}");
    }

    #[test]
    fn rare_frees_and_frees_of_a_small_part_are_no_churn() {
        assert_eq!(churn(599, 0, Some(1 << 20), MINUTE), None);
        // Less than four times its managed memory.
        assert_eq!(churn(1000, 0, Some(GIB), MINUTE), None);
        // After the start of the program, or of uvmd.
        assert_eq!(churn(10_000, 0, Some(1 << 20), Duration::from_secs(9)), None);
        assert_eq!(churn(10_000, 0, Some(1 << 20), Duration::ZERO), None);
        // Its mappings could not be read.
        assert_eq!(churn(10_000, 0, None, MINUTE), None);
    }
}
