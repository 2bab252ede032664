//! Program files: which one to execute, and whether the dynamic loader puts a preloaded library into it.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{EM_X86_64, FileHeader64},
    read::elf::{FileHeader, ProgramHeader},
};
use rustix::fs::getxattr;
use thiserror::Error;

/// Bytes of a program's begin that are read: its headers, and the path of its loader.
const HEAD_BYTES: u64 = 64 << 10;
/// Bytes of the first line of a script that the kernel reads (`BINPRM_BUF_SIZE`).
const SCRIPT_BYTES: u64 = 256;
/// Interpreters of interpreters that the kernel follows (`bprm_execve`).
const SCRIPTS_MAX: u32 = 5;
const SET_USER_OR_GROUP: u32 = 0o6000;

/// Executable of a process that this one starts.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    /// Executable of this process, even if its file was replaced.
    #[must_use]
    pub fn this() -> Self {
        Self("/proc/self/exe".into())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Executable at a path.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }
}

/// Reason why a preloaded library would not be in a program.
#[derive(Debug, Error)]
pub enum NotPreloadable {
    /// The file cannot be read.
    #[error("{} cannot be read: {}", .0.display(), crate::reason(.1))]
    Unreadable(PathBuf, #[source] io::Error),
    /// It is not a program, or a script without an interpreter.
    #[error("{} is no program", .0.display())]
    NoProgram(PathBuf),
    /// It is for another kind of processor than the helper.
    #[error("{} is not for x86-64", .0.display())]
    OtherMachine(PathBuf),
    /// It has no loader.
    #[error("{} is linked statically: nothing can be preloaded into it", .0.display())]
    Static(PathBuf),
    /// Its loader is not that of glibc.
    #[error("{} has the loader {loader}, and is not of glibc", .path.display())]
    OtherLoader {
        /// Program.
        path: PathBuf,
        /// Its loader.
        loader: String,
    },
    /// It gets privileges when it starts, so that its loader ignores the environment.
    #[error("{} gets the privileges of its file, so that its loader preloads nothing", .0.display())]
    Privileged(PathBuf),
}

/// Checks that the loader of a program, or of its interpreter, preloads the libraries in the
/// environment.
///
/// # Errors
/// If it does not, or the file cannot be read.
pub fn is_preloadable(program: &Path) -> Result<(), NotPreloadable> {
    let mut path = program.to_owned();
    for _ in 0..=SCRIPTS_MAX {
        let unreadable = |error| NotPreloadable::Unreadable(path.clone(), error);
        let file = File::open(&path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(NotPreloadable::NoProgram(path));
        }
        let mut head = Vec::new();
        (&file).take(HEAD_BYTES).read_to_end(&mut head).map_err(unreadable)?;
        match interpreter(&head) {
            // The kernel takes the privileges of the interpreter, not of the script.
            Some(interpreter) => path = interpreter,
            None if metadata.mode() & SET_USER_OR_GROUP != 0 || has_capabilities(&path) => {
                return Err(NotPreloadable::Privileged(path));
            }
            None => return has_loader(path, &head),
        }
    }
    Err(NotPreloadable::NoProgram(path))
}

/// Interpreter of a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let mut line = Vec::new();
    BufReader::new(head.strip_prefix(b"#!")?.take(SCRIPT_BYTES)).read_until(b'\n', &mut line).ok()?;
    let name = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(Path::new(std::ffi::OsStr::from_bytes(name)).to_owned())
}

fn has_capabilities(path: &Path) -> bool {
    let mut value = [0_u8; 64];
    getxattr(path, "security.capability", &mut value).is_ok_and(|length| length > 0)
}

fn has_loader(path: PathBuf, head: &[u8]) -> Result<(), NotPreloadable> {
    // Whatever the headers say, nothing is read from beyond them.
    let Ok(header) = FileHeader64::<Endianness>::parse(head) else { return Err(not_64(path, head)) };
    let Ok(endian) = header.endian() else { return Err(NotPreloadable::NoProgram(path)) };
    if header.e_machine(endian) != EM_X86_64 {
        return Err(NotPreloadable::OtherMachine(path));
    }
    let Ok(segments) = header.program_headers(endian, head) else { return Err(NotPreloadable::NoProgram(path)) };
    let loader = segments.iter().find_map(|segment| segment.interpreter(endian, head).ok().flatten());
    let Some(loader) = loader else { return Err(NotPreloadable::Static(path)) };
    let name = loader.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if name.starts_with(b"ld-linux") {
        return Ok(());
    }
    Err(NotPreloadable::OtherLoader { path, loader: String::from_utf8_lossy(loader).into_owned() })
}

fn not_64(path: PathBuf, head: &[u8]) -> NotPreloadable {
    if head.starts_with(b"\x7fELF") { NotPreloadable::OtherMachine(path) } else { NotPreloadable::NoProgram(path) }
}

/// File of a program, as the shell finds it: a path, or a name in one of these folders.
#[must_use]
pub fn find(program: &Path, folders: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    const EXECUTABLE: u32 = 0o111;
    if program.as_os_str().as_bytes().contains(&b'/') {
        return Some(program.to_owned());
    }
    let is_executable =
        |path: &PathBuf| fs::metadata(path).is_ok_and(|file| file.is_file() && file.mode() & EXECUTABLE != 0);
    folders.map(|folder| folder.join(program)).find(is_executable)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn reason(path: &Path) -> String {
        is_preloadable(path).map_or_else(|error| error.to_string(), |()| "preloadable".to_owned())
    }

    fn file(folder: &Path, name: &str, content: &[u8], mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// A program of this processor, with this loader.
    fn program(loader: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 0x100];
        bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0");
        bytes[0x20] = 0x40;
        (bytes[0x34], bytes[0x36], bytes[0x38]) = (64, 56, 1);
        // PT_INTERP, or PT_NULL.
        bytes[0x40] = if loader.is_some() { 3 } else { 0 };
        let loader = format!("{}\0", loader.unwrap_or_default());
        bytes[0x48] = 0x80;
        bytes[0x60] = u8::try_from(loader.len()).unwrap();
        bytes[0x80..0x80 + loader.len()].copy_from_slice(loader.as_bytes());
        bytes
    }

    #[test]
    fn program_of_glibc_is_preloadable_and_so_is_its_script() {
        let folder = tempfile::tempdir().unwrap();
        let glibc = file(folder.path(), "glibc", &program(Some("/lib64/ld-linux-x86-64.so.2")), 0o755);
        assert_eq!(reason(&glibc), "preloadable");
        let script = format!("#! {} -u\nprint()\n", glibc.display());
        assert_eq!(reason(&file(folder.path(), "script", script.as_bytes(), 0o755)), "preloadable");
        assert_eq!(reason(&std::env::current_exe().unwrap()), "preloadable");
    }

    #[test]
    fn programs_that_preload_nothing_are_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let glibc = program(Some("/lib64/ld-linux-x86-64.so.2"));
        let mut other_machine = glibc.clone();
        other_machine[18] = 0xb7;
        let mut of_32_bits = glibc.clone();
        of_32_bits[4] = 1;
        for (name, content, mode, expected) in [
            ("static", &program(None), 0o755, "is linked statically: nothing can be preloaded into it"),
            (
                "musl",
                &program(Some("/lib/ld-musl-x86_64.so.1")),
                0o755,
                "has the loader /lib/ld-musl-x86_64.so.1, and is not of glibc",
            ),
            ("setuid", &glibc, 0o4755, "gets the privileges of its file, so that its loader preloads nothing"),
            ("setgid", &glibc, 0o2755, "gets the privileges of its file, so that its loader preloads nothing"),
            ("aarch64", &other_machine, 0o755, "is not for x86-64"),
            ("i386", &of_32_bits, 0o755, "is not for x86-64"),
            ("text", &b"hello".to_vec(), 0o755, "is no program"),
            ("cut", &glibc[..0x50].to_vec(), 0o755, "is no program"),
        ] {
            let path = file(folder.path(), name, content, mode);
            assert_eq!(reason(&path), format!("{} {expected}", path.display()));
        }
        let own = folder.path().join("loop");
        file(folder.path(), "loop", format!("#!{}\n", own.display()).as_bytes(), 0o755);
        assert_eq!(reason(&own), format!("{} is no program", own.display()));
    }

    #[test]
    fn program_is_found_as_the_shell_finds_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path(), "tool", b"", 0o755);
        file(folder.path(), "data", b"", 0o644);
        let find =
            |name: &str| find(Path::new(name), [PathBuf::from("/nowhere"), folder.path().to_owned()].into_iter());
        assert_eq!((find("tool"), find("data")), (Some(path), None));
        assert_eq!(find("./tool"), Some("./tool".into()));
    }
}
