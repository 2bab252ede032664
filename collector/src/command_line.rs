//! Command lines of processes.
//!
//! For a read the kernel takes the lock of the process's memory map, which may be held for long:
//! reads run on separate threads.

use std::{
    fs::File,
    io::Read,
    sync::Arc,
    time::{Duration, Instant},
};

use model::ProcessId;
use sys::Roots;

use crate::{
    lookup_cache::{LookupCache, Pace},
    user_reads::{self, UserReads},
};

/// A process may change its command line while it runs, which is seldom worth a read.
const PACE: Pace = Pace {
    retry_min: Duration::from_secs(1),
    retry_max: Duration::from_mins(5),
    answer_max: Duration::from_mins(10),
    // A process may change its name at any time.
    wanted: Duration::from_secs(10),
    running_max: 4,
    timeout: Duration::from_secs(2),
};
/// Maximum length; longer ones are cut.
const MAX_BYTES: usize = 4096;
const CUT: char = '…';

/// Command lines read so far.
#[derive(Debug)]
pub(crate) struct CommandLines {
    read: LookupCache<(ProcessId, String), String>,
    reads: Arc<UserReads>,
}

impl CommandLines {
    pub(crate) fn new(roots: &Roots) -> Self {
        let (roots, reads) = (roots.clone(), Arc::<UserReads>::default());
        let of_users = Arc::clone(&reads);
        let find = move |(process, _): &(ProcessId, String)| of_users.read(&roots, *process, || read(&roots, *process));
        Self { read: LookupCache::new(PACE, find), reads }
    }

    /// Known command line of a process with this name: with another name it likely runs another
    /// program.
    pub(crate) fn get(&self, process: ProcessId, name: &str) -> Option<String> {
        self.read.get(&(process, name.to_owned()), Instant::now())
    }

    /// Users whose command lines are not read.
    pub(crate) fn warning(&self) -> Option<String> {
        user_reads::warning("/proc/PID/cmdline", &self.reads)
    }
}

/// Reads a command line; `None` if the process has exited, or it has none.
fn read(roots: &Roots, id: ProcessId) -> Option<String> {
    let path = roots.proc.join(id.pid.to_string()).join("cmdline");
    let mut bytes = Vec::new();
    // One byte more than is shown, to detect a cut.
    File::open(path).and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)).ok()?;
    shown(&bytes)
}

/// Arguments, each terminated by a zero byte, joined by spaces. A process can write any bytes
/// there.
pub(crate) fn shown(arguments: &[u8]) -> Option<String> {
    let arguments = arguments.strip_suffix(b"\0").unwrap_or(arguments);
    let mut line = String::new();
    for c in String::from_utf8_lossy(arguments).chars() {
        let c = match c {
            '\0' => ' ',
            c if c.is_control() || reorders(c) => char::REPLACEMENT_CHARACTER,
            c => c,
        };
        if line.len() + c.len_utf8() > MAX_BYTES - CUT.len_utf8() {
            line.push(CUT);
            break;
        }
        line.push(c);
    }
    (!line.trim().is_empty()).then_some(line)
}

/// Whether a character changes how the following text looks: breaks the line, or turns its
/// direction.
const fn reorders(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_joined_by_spaces() {
        assert_eq!(shown(b"python3\0train.py\0--lr\x000.1\0").as_deref(), Some("python3 train.py --lr 0.1"));
        assert_eq!(shown(b"worker: epoch 3").as_deref(), Some("worker: epoch 3"));
    }

    #[test]
    fn empty_command_line_is_none() {
        for nothing in [&b""[..], b"\0", b"\0\0\0", b" \0"] {
            assert_eq!(shown(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn invalid_and_control_characters_are_replaced() {
        assert_eq!(shown(b"a\x1b[31mb\nc\xffd\0").unwrap(), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d");
        assert_eq!(shown("a\u{202e}b\u{85}c\u{2028}d".as_bytes()).unwrap(), "a\u{fffd}b\u{fffd}c\u{fffd}d");
    }

    #[test]
    fn long_command_line_is_truncated() {
        let exactly = vec![b'x'; MAX_BYTES - CUT.len_utf8()];
        assert_eq!(shown(&exactly).unwrap().len(), exactly.len());
        for long in [vec![b'x'; MAX_BYTES + 1], vec![0xff; MAX_BYTES + 1]] {
            let line = shown(&long).unwrap();
            assert!(line.len() <= MAX_BYTES && line.ends_with(CUT), "{}", line.len());
        }
    }

    #[test]
    fn exited_process_yields_nothing() {
        let stat = procfs::process::Process::myself().unwrap().stat().unwrap();
        let own = ProcessId { pid: u32::try_from(stat.pid).unwrap(), start_ticks: stat.starttime };
        let roots = Roots::default();
        assert!(read(&roots, own).unwrap().contains("collector"));
        assert_eq!(read(&roots, ProcessId { pid: u32::MAX, ..own }), None);
    }
}
