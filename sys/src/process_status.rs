//! Fields of `/proc/PID/status`, for which a process cannot keep the reader waiting.

use std::fs;

use crate::roots::Roots;

/// Real user id of a process; `None` if there is no such process, or it is unknown.
#[must_use]
pub fn user(roots: &Roots, pid: u32) -> Option<u32> {
    let status = fs::read(roots.proc.join(pid.to_string()).join("status")).ok()?;
    field(&status, "Uid:")?.split_ascii_whitespace().next()?.parse().ok()
}

/// Value of a field of a `status` file.
pub(crate) fn field<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    // The process's name, the only text of its choice, has no line feed.
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name.as_bytes()))?;
    str::from_utf8(line).ok().map(str::trim_ascii)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn user_of_a_process_is_its_real_uid() {
        let status = "Name:\tUid:\\n0\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t7\t7\t7\t7\n";
        let machine = Machine::new().with("proc/42/status", status).with("proc/43/status", "Name:\tx\n");
        assert_eq!([42, 43, 44].map(|pid| user(&machine.roots, pid)), [Some(1000), None, None]);
    }
}
