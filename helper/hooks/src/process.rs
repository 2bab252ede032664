//! The process's first thread.

use crate::system::{self, TEXT_BYTES_MAX};

/// Whether the first thread has ended, of /proc/self/stat: it stays as a zombie while others live.
fn of_stat(stat: &[u8]) -> Option<bool> {
    // Behind the name, which may have any bytes.
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let state = stat.get(name_end..)?.get(2)?;
    Some(*state == b'Z')
}

/// Whether the first thread has ended, and the process not; `None` if that cannot be known.
pub(crate) fn first_thread_has_ended() -> Option<bool> {
    let mut text = [0; TEXT_BYTES_MAX];
    of_stat(system::read_text(c"/proc/self/stat", &mut text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_thread_has_ended_if_it_is_a_zombie() {
        assert_eq!((of_stat(b"17 (a) S (b) Z 1 17 17 0"), of_stat(b"17 (a) Z (b) S 1 17")), (Some(true), Some(false)));
        assert_eq!((of_stat(b""), of_stat(b"17 (a)")), (None, None));
        assert_eq!(first_thread_has_ended(), Some(false));
    }
}
