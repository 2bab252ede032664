//! Memory and address space available to the process: the helper must not exhaust them. The
//! daemon's counterpart is `actuator::headroom`, which checks prefetches, as the helper's thread
//! opens no files.

use core::ffi::CStr;

use syscalls::{
    file::{TEXT_BYTES_MAX, read_text},
    text::{number, number_after},
};

use crate::system;

/// `RLIMIT_AS` of linux/resource.h.
const RLIMIT_AS: usize = 9;
/// Divisor of the available memory and address space: the helper takes at most 1/16 of each.
const HEADROOM_DIVISOR: u64 = 16;

/// File names of a cgroup version: limit, usage, and the part of the usage that the kernel can
/// reclaim at once.
struct CgroupFiles {
    root: &'static [u8],
    limit: &'static [u8],
    usage: &'static [u8],
    reclaimable: &'static [u8],
}

const CGROUP_V2: CgroupFiles = CgroupFiles {
    root: b"/sys/fs/cgroup",
    limit: b"memory.max",
    usage: b"memory.current",
    reclaimable: b"inactive_file ",
};
const CGROUP_V1: CgroupFiles = CgroupFiles {
    root: b"/sys/fs/cgroup/memory",
    limit: b"memory.limit_in_bytes",
    usage: b"memory.usage_in_bytes",
    reclaimable: b"total_inactive_file ",
};

/// The cgroup with the memory controller, from /proc/self/cgroup.
fn cgroup(lines: &[u8]) -> Option<(&'static CgroupFiles, &[u8])> {
    let mut found = None;
    for line in lines.split(|byte| *byte == b'\n') {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if controllers.split(|byte| *byte == b',').any(|name| name == b"memory") {
            return Some((&CGROUP_V1, path));
        }
        if controllers.is_empty() {
            found = Some((&CGROUP_V2, path));
        }
    }
    found
}

/// Path of a file in a cgroup's folder, with a final zero.
fn path<'a>(parts: [&[u8]; 4], buffer: &'a mut [u8; TEXT_BYTES_MAX]) -> Option<&'a CStr> {
    for (at, byte) in parts.into_iter().flatten().chain(b"\0").enumerate() {
        *buffer.get_mut(at)? = *byte;
    }
    CStr::from_bytes_until_nul(buffer).ok()
}

/// Whether a cgroup has `bytes` left, or its limit cannot be read.
fn cgroup_has(files: &CgroupFiles, folder: &[u8], bytes: u64) -> bool {
    let (mut name, mut text) = ([0; TEXT_BYTES_MAX], [0; TEXT_BYTES_MAX]);
    let mut read_in = |file: &[u8], word: &[u8]| {
        let path = path([files.root, folder, b"/", file], &mut name)?;
        let text = read_text(path, &mut text)?;
        if word.is_empty() { number(text) } else { number_after(word, text) }
    };
    let Some(limit) = read_in(files.limit, b"").filter(|limit| *limit != u64::MAX) else { return true };
    let Some(usage) = read_in(files.usage, b"") else { return true };
    // Read last, and only if needed: the kernel computes the sum at each read.
    let has = |reclaimable: u64| limit.saturating_sub(usage.saturating_sub(reclaimable)) >= bytes;
    has(0) || has(read_in(b"memory.stat", files.reclaimable).unwrap_or(0))
}

/// Address space left below the limit.
fn available_address_space_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let limit = system::limit(RLIMIT_AS);
    if limit == u64::MAX {
        return limit;
    }
    let mut text = [0; TEXT_BYTES_MAX];
    // The first number is the process's size in pages.
    let pages = read_text(c"/proc/self/statm", &mut text).and_then(number);
    pages.map_or(0, |pages| limit.saturating_sub(pages.saturating_mul(PAGE_BYTES)))
}

/// Whether at least [`HEADROOM_DIVISOR`] times the memory and address space that the helper takes
/// are available.
pub(crate) fn has_room(memory_bytes: u64, address_space_bytes: u64) -> bool {
    available_address_space_bytes() / HEADROOM_DIVISOR >= address_space_bytes
        && cgroups_have(memory_bytes.saturating_mul(HEADROOM_DIVISOR))
}

/// Whether `bytes` are left in the process's cgroup and all its ancestors, as far as visible.
fn cgroups_have(bytes: u64) -> bool {
    let mut text = [0; TEXT_BYTES_MAX];
    let Some((files, mut folder)) = read_text(c"/proc/self/cgroup", &mut text).and_then(cgroup) else {
        return true;
    };
    loop {
        if !cgroup_has(files, folder, bytes) {
            return false;
        }
        let Some(end) = folder.iter().rposition(|byte| *byte == b'/') else { return true };
        folder = folder.get(..end).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_has_the_memory_controller() {
        let found = |lines: &'static [u8]| cgroup(lines).map(|(files, path)| (files.limit, path));
        let v2: &[u8] = b"0::/user.slice/a:b\n";
        assert_eq!(found(v2), Some((CGROUP_V2.limit, &b"/user.slice/a:b"[..])));
        let v1: &[u8] = b"12:cpu,cpuacct:/c\n4:memory:/docker/1\n0::/d\n";
        assert_eq!(found(v1), Some((CGROUP_V1.limit, &b"/docker/1"[..])));
        assert_eq!(found(b""), None);
    }

    #[test]
    fn limits_of_this_process_are_read() {
        assert!(cgroups_have(1) && has_room(1, 1));
    }
}
