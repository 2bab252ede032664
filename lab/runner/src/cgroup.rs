//! Cgroup (v2) with a memory limit for one process. The driver charges the host memory of managed
//! pages to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;

const ROOT: &str = "/sys/fs/cgroup";

/// Cgroup of one process; removed on drop, after its process has exited.
pub(crate) struct Cgroup(PathBuf);

impl Cgroup {
    /// Puts a process into its own cgroup.
    pub(crate) fn confine(pid: u32, memory_limit_bytes: u64) -> anyhow::Result<Self> {
        let write = |path: &Path, text: String| {
            fs::write(path, text).with_context(|| format!("cannot write {} (is it cgroup v2?)", path.display()))
        };
        write(&Path::new(ROOT).join("cgroup.subtree_control"), "+memory".to_owned())?;
        let folder = Path::new(ROOT).join(format!("lab-runner-{pid}"));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let cgroup = Self(folder);
        write(&cgroup.0.join("memory.max"), memory_limit_bytes.to_string())?;
        write(&cgroup.0.join("cgroup.procs"), pid.to_string())?;
        Ok(cgroup)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // An empty cgroup that remains does no harm.
        let _ = fs::remove_dir(&self.0);
    }
}
