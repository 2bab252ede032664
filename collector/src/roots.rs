//! Where /proc and /sys are.

use std::path::PathBuf;

/// The file systems in which the kernel shows processes, modules and GPUs.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/proc`
    pub proc: PathBuf,
    /// `/sys`
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: "/proc".into(), sys: "/sys".into() }
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! A machine made of files.

    use std::{fs, path::Path};

    use super::Roots;

    /// A machine with next to nothing, gone when dropped.
    pub(crate) struct Machine {
        dir: tempfile::TempDir,
        pub(crate) roots: Roots,
    }

    impl Machine {
        pub(crate) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots { proc: dir.path().join("proc"), sys: dir.path().join("sys") };
            // Every machine has a first process.
            fs::create_dir_all(roots.proc.join("1")).unwrap();
            fs::create_dir(&roots.sys).unwrap();
            Self { dir, roots }
        }

        /// Writes a file, such as `sys/module/nvidia_uvm/version`.
        pub(crate) fn with(self, path: &str, text: impl AsRef<[u8]>) -> Self {
            self.write(path, text);
            self
        }

        pub(crate) fn write(&self, path: &str, text: impl AsRef<[u8]>) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn link(&self, path: &str, target: &str) {
            let path = self.dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(target, path).unwrap();
        }

        pub(crate) fn remove(&self, path: impl AsRef<Path>) {
            fs::remove_dir_all(self.dir.path().join(path)).unwrap();
        }
    }
}
