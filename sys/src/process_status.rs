//! Fields of `/proc/PID/status`.

use std::fs;

use crate::{clock, cpu_time, process_reads, process_users::Folder, roots::Roots};

/// Real user id of a process; `None` if there is no such process, or it is unknown. The effective one while
/// reads of it have [taken too long](crate::process_users).
#[must_use]
pub fn user(roots: &Roots, pid: u32) -> Option<u32> {
    let path = roots.proc.join(pid.to_string());
    let folder = Folder::of(&path).ok()?;
    let now = clock::monotonic();
    if let Some(uid) = folder.user(now) {
        return Some(uid);
    }
    let begun = cpu_time::of_this_thread();
    let status = process_reads::read(roots, pid, move || fs::read(path.join("status"))).ok()?;
    let uid = field(&status, "Uid:")?.split_ascii_whitespace().next()?.parse().ok()?;
    folder.read(uid, cpu_time::of_this_thread().saturating_sub(begun), now);
    Some(uid)
}

/// Value of a field of a `status` file.
pub(crate) fn field<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    // The process's name, the only text of its choice, has no line feed.
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    str::from_utf8(line).ok().map(str::trim_ascii)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::fake::Machine;

    #[test]
    fn user_of_a_process_is_its_real_uid() {
        let status = "Name:\tUid:\\n0\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t7\t7\t7\t7\n";
        let machine = Machine::new().with("proc/42/status", status).with("proc/43/status", "Name:\tx\n");
        assert_eq!([42, 43, 44].map(|pid| user(&machine.roots, pid)), [Some(1000), None, None]);
    }

    #[test]
    fn name_that_is_no_text_hides_no_user() {
        let machine = Machine::new().with("proc/42/status", b"Name:\ta\xffb\nUid:\t1000\t0\t0\t0\n");
        assert_eq!(user(&machine.roots, 42), Some(1000));
    }

    #[test]
    fn reads_are_charged_to_the_real_user_once_it_is_known_else_to_the_effective_one() {
        let machine = Machine::new().with("proc/42/status", "Uid:\t1000\t0\t0\t0\n");
        let payer = |pid: u32| Folder::of(&machine.roots.proc.join(pid.to_string())).map(Folder::payer);
        assert_eq!(payer(42).unwrap(), rustix::process::geteuid().as_raw());
        assert_eq!(user(&machine.roots, 42), Some(1000));
        assert_eq!(payer(42).unwrap(), 1000);
        assert_eq!(payer(43).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
