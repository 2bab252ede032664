//! Start times of processes: with the process id, they identify a process.

use std::fs;

use anyhow::Context;

/// Start time, in clock ticks since boot.
pub(crate) fn start_ticks(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_start_ticks(&stat).with_context(|| format!("cannot understand {path}"))
}

/// Field 22 of stat; the second field, in parentheses, may hold any character.
fn parse_start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_start_is_field_22_whatever_its_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 123456 20 21";
        assert_eq!(parse_start_ticks(&format!("77 (a) b) {rest}")), Some(123_456));
        assert_eq!(parse_start_ticks("77 (a) S 1"), None);
        assert_eq!(parse_start_ticks(""), None);
        assert!(start_ticks(std::process::id()).unwrap() > 0);
    }
}
