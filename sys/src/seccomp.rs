//! Filters of system calls (seccomp) that processes have installed, or began with.

use std::{fs, io, iter, time::Duration};

use crate::{cpu_time, process_reads, processes, roots::Roots};

/// Limit of the processor time for the threads of a process: some 10 µs each, but 10 ms with many groups.
const CPU_MAX: Duration = Duration::from_millis(500);

/// Number of filters of the calling thread; `None` if it is unknown, as of a filter before Linux 5.9.
///
/// # Errors
/// If the status of the thread is not readable.
pub fn own(roots: &Roots) -> io::Result<Option<u64>> {
    Ok(number(&fs::read(roots.proc.join("thread-self/status"))?))
}

/// Whether all live threads of a process have this number of filters. Adds the number of inspected threads to
/// `threads`.
///
/// # Errors
/// If the threads or the filters of one of them are unknown, if there is no live thread, or if the check takes
/// more than half a second of processor time.
pub fn threads_have(roots: &Roots, pid: u32, filters: u64, threads: &mut usize) -> io::Result<bool> {
    let own = roots.clone();
    let (have, looked_at) = process_reads::read(roots, pid, move || {
        let (begun, mut looked_at) = (cpu_time::of_this_thread(), 0);
        let spent = || cpu_time::of_this_thread().saturating_sub(begun);
        let have = threads_have_within(&own, pid, filters, &mut looked_at, spent);
        Ok((have, looked_at))
    })?;
    *threads += looked_at;
    have
}

fn threads_have_within(
    roots: &Roots,
    pid: u32,
    filters: u64,
    threads: &mut usize,
    spent: impl Fn() -> Duration,
) -> io::Result<bool> {
    let mut lives = false;
    for thread in iter::once(pid).chain(processes::other_threads(roots, pid)?) {
        if spent() > CPU_MAX {
            return Err(io::Error::other("the filters of its threads take too long to read"));
        }
        *threads += 1;
        let status = match fs::read(processes::task_folder(roots, pid, thread).join("status")) {
            Ok(status) => status,
            Err(error) if processes::is_gone(&error) => continue,
            Err(error) => return Err(error),
        };
        if status.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"State:\tZ")) {
            continue;
        }
        let number = number(&status).ok_or_else(|| io::Error::other("the kernel does not report their number"))?;
        if number != filters {
            return Ok(false);
        }
        lives = true;
    }
    if lives { Ok(true) } else { Err(io::Error::new(io::ErrorKind::NotFound, "it has no live thread")) }
}

/// Number of filters in the status of a thread. The only text of the process's choice there is its name,
/// which has no line feed.
fn number(status: &[u8]) -> Option<u64> {
    let value = |name: &[u8]| {
        let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        str::from_utf8(line).ok()?.trim_ascii().parse().ok()
    };
    match value(b"Seccomp:")? {
        0 => Some(0),
        2 => value(b"Seccomp_filters:"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_status() {
        assert_eq!(number(b"Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t3\nSpeculation_Store_Bypass:\tx\n"), Some(3));
        assert_eq!(number(b"Seccomp:\t0\nSeccomp_filters:\t0\n"), Some(0));
        assert_eq!(number(b"Seccomp:\t0\nCpus_allowed:\t3\n"), Some(0));
        assert!(own(&Roots::default()).unwrap().is_some());
    }

    #[test]
    fn every_live_thread_of_a_process_has_to_have_the_filters() {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots { proc: folder.path().to_owned(), ..Roots::default() };
        let set = |thread: u32, status: &str| {
            let task = folder.path().join(format!("7/task/{thread}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("status"), status).unwrap();
        };
        set(7, "State:\tZ (zombie)\nSeccomp:\t0\nSeccomp_filters:\t0\n");
        set(8, "State:\tR (running)\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        set(9, "State:\tS (sleeping)\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        let mut threads = 0;
        let mut have = |filters| threads_have(&roots, 7, filters, &mut threads);
        assert!(have(1).unwrap() && !have(0).unwrap());
        set(9, "State:\tS (sleeping)\nSeccomp:\t2\nSeccomp_filters:\t2\n");
        assert!(!have(1).unwrap());
        set(9, "State:\tS (sleeping)\nSeccomp:\t2\n");
        assert!(have(1).is_err());
        assert_eq!(threads, 3 + 2 + 3 + 3);
    }

    #[test]
    fn filters_that_take_too_long_to_read_are_unknown() {
        let status = "State:\tR (running)\nSeccomp:\t0\nSeccomp_filters:\t0\n";
        let machine =
            crate::fake::Machine::new().with("proc/7/task/7/status", status).with("proc/7/task/8/status", status);
        let reads = std::cell::Cell::new(0);
        let spent = || {
            reads.set(reads.get() + 1);
            CPU_MAX / 2 * reads.get()
        };
        let mut threads = 0;
        assert!(threads_have_within(&machine.roots, 7, 0, &mut threads, spent).unwrap());
        let error = threads_have_within(&machine.roots, 7, 0, &mut threads, spent).unwrap_err();
        assert!(error.to_string().contains("too long") && threads == 2, "{error}, {threads} threads");
    }

    #[test]
    fn filters_that_are_not_counted_are_unknown() {
        assert_eq!(number(b"Seccomp:\t2\nCpus_allowed:\t3\n"), None);
        assert_eq!(number(b"Seccomp:\t1\nSeccomp_filters:\t0\n"), None);
        assert_eq!(number(b"Name:\tx\n"), None);
    }
}
