//! `uvmctl events`: a stream of events, which need not be uvmd's.
//!
//! What is printed has nothing in it that commands a terminal, and is not much longer than what came; what is sent back is short and fits into a header.

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
