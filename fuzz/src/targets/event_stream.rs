//! `uvmctl events`: stream of events, which may not be uvmd's.
//!
//! The output contains no control sequences, and is not much longer than the input; the resume id
//! is short and fits into a header.

use uvmctl::fuzzing::followed;

pub(super) fn run(input: &[u8]) {
    for json in [false, true] {
        let (printed, last) = followed(input, json);
        super::check_printable(&printed);
        // An escaped character of two bytes takes six.
        assert!(printed.len() <= 4096 + 8 * input.len(), "{} bytes are printed of {}", printed.len(), input.len());
        if let Some(last) = last {
            assert!(last.len() <= 256 && last.bytes().all(|byte| byte.is_ascii_graphic()), "{last:?}");
        }
    }
}
