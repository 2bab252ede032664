//! `actuator`'s journal of advice: read, rewritten, and read again.
//!
//! Input: a journal of the boot `first`. Recognised lines are equal after a rewrite, unrecognised
//! ones stay byte for byte, and the latter are bounded.

use actuator::fuzzing::JournalContents;

const BOOT: &str = "first";

pub(super) fn run(input: &[u8]) {
    let read = |text: &[u8]| JournalContents::read(text, BOOT).expect("bytes in memory can be read");
    let first = read(input);
    for (process, _, begin, end, advice) in first.in_force() {
        assert!(begin < end, "{process:?} {advice:?}");
    }
    let mut unrecognised = first.unrecognised();
    let bytes: usize = unrecognised.iter().map(|line| line.len() + 1).sum();
    assert!(bytes <= JournalContents::UNRECOGNISED_BYTES_MAX);
    if first.is_overfull() {
        // The whole file is quarantined.
        return;
    }
    let written = first.rewritten().expect("bytes in memory can be written");
    let second = read(&written);
    assert_eq!(second.in_force(), first.in_force(), "advice is in force that was not, or is not any more");
    let mut again = second.unrecognised();
    again.sort_unstable();
    unrecognised.sort_unstable();
    assert_eq!(again, unrecognised, "what is not understood stays as it is");
    assert_eq!(second.rewritten().expect("bytes in memory can be written"), written);
}
