//! Places in the code of a process: module, offset and symbol of an instruction, from `/proc/PID/maps` and the
//! files mapped there. Both are under the control of the process: reads may hang, and contents are bounded before
//! they are read.
//!
//! A file is looked up below the root of the process, without symbolic links, so that no link leads out of it. It
//! must have the inode of the mapping. The device is not compared: on an overlay file system, the mapping has that
//! of a layer. A process can so have any file opened in place of its own, as a file system of its user chooses its
//! inodes: files of the kernel, whose contents depend on who reads them, are refused.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstatfs, open, openat, openat2, statx},
    io::Errno,
};

use crate::{
    Roots,
    mappings::{self, MAPS_MAX_BYTES},
};

mod elf;

use elf::Elf;

/// Limit on the bytes of symbol tables that are read for one process at a time.
const SYMBOLS_MAX_BYTES: u64 = 64 << 20;
/// Limit on the length of a module's path; of a longer one, the end is retained.
const PATH_MAX_BYTES: usize = 256;

/// File systems of the kernel: what is read there, or that it is opened, depends on the rights of the reader.
const OF_KERNEL: [i64; 12] = [
    libc::PROC_SUPER_MAGIC,
    libc::SYSFS_MAGIC,
    libc::DEBUGFS_MAGIC,
    libc::TRACEFS_MAGIC,
    libc::CGROUP_SUPER_MAGIC,
    libc::CGROUP2_SUPER_MAGIC,
    libc::SECURITYFS_MAGIC,
    libc::BPF_FS_MAGIC,
    libc::NSFS_MAGIC,
    libc::SELINUX_MAGIC,
    libc::SMACK_MAGIC,
    libc::RDTGROUP_SUPER_MAGIC,
];

/// Place of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// No memory of the process is there.
    Unmapped,
    /// In memory without a file, as that of a just-in-time compiler.
    Anonymous,
    /// In a file, or in a named area such as `[vdso]`.
    Module(Module),
}

/// Instruction in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Path, as the process sees it.
    pub path: Arc<str>,
    /// Offset in the file.
    pub offset: u64,
    /// Address in the terms of an ELF file, which `addr2line` takes.
    pub elf_address: Option<u64>,
    /// Function.
    pub symbol: Result<Symbol, NoSymbol>,
}

/// Function of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Name, as it stands in the file.
    pub name: String,
    /// Bytes from its start to the instruction.
    pub offset: u64,
}

/// Reason why there is no symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSymbol {
    /// The file was deleted or replaced after it was mapped.
    #[error("the file was deleted or replaced")]
    Replaced,
    /// There is no file of this path below the process's root, as for a process in another root folder.
    #[error("the file was not found below the root of the process")]
    NotFound,
    /// The file cannot be read.
    #[error("the file cannot be read")]
    Unreadable,
    /// The file is not a 64-bit ELF file of this byte order, or contradicts itself.
    #[error("the file is not a valid 64-bit ELF file")]
    NotElf,
    /// It has no symbol table.
    #[error("the file has no symbol table")]
    Stripped,
    /// No function of the symbol table has the address.
    #[error("no function in the symbol table has this address")]
    NoFunction,
    /// The symbol tables are larger than what is read at a time.
    #[error("the symbol table is too large")]
    TooLarge,
}

/// Mapping with instructions of interest.
struct Found {
    begin: u64,
    offset: u64,
    inode: u64,
    name: String,
    /// Instructions in it.
    pcs: Vec<u64>,
}

/// Places of these instructions of a process, in the order of addresses. May hang: the process can hold the lock of
/// its memory map, and the files may be of a file system of its user.
///
/// # Errors
/// If the process has no memory any more, its maps cannot be read, or there are too many of them.
pub fn places(roots: &Roots, pid: u32, pcs: &[u64]) -> io::Result<Vec<(u64, Place)>> {
    let mut pcs = pcs.to_vec();
    pcs.sort_unstable();
    pcs.dedup();
    let folder = roots.proc.join(pid.to_string());
    let mut found: Vec<Found> = Vec::new();
    let is_any = mappings::for_each(File::open(folder.join("maps"))?, MAPS_MAX_BYTES, |mapping| {
        let range = &mapping.range;
        let within: Vec<u64> = pcs.iter().copied().filter(|pc| range.contains(pc)).collect();
        if !within.is_empty() {
            let (begin, offset) = (range.start, mapping.offset_bytes);
            found.push(Found { begin, offset, inode: mapping.inode, name: mapping.name.to_owned(), pcs: within });
        }
    })?;
    if !is_any {
        return Err(io::ErrorKind::NotFound.into());
    }
    let root = openat(CWD, folder.join("root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    let mut budget_bytes = SYMBOLS_MAX_BYTES;
    let mut places: Vec<(u64, Place)> = Vec::with_capacity(pcs.len());
    for mapping in &found {
        let file = match &root {
            Ok(root) => open_module(root, mapping),
            Err(_) => Err(NoSymbol::Unreadable),
        };
        let elf = file.and_then(Elf::read);
        let symbols = elf.as_ref().map_err(|reason| *reason).and_then(|elf| {
            let addresses: Vec<_> = mapping.pcs.iter().map(|pc| elf.address(mapping.file_offset(*pc))).collect();
            elf.symbols(&addresses, &mut budget_bytes)
        });
        let path: Arc<str> = shortened(&mapping.name).into();
        for (at, pc) in mapping.pcs.iter().enumerate() {
            if mapping.name.is_empty() {
                places.push((*pc, Place::Anonymous));
                continue;
            }
            let offset = mapping.file_offset(*pc);
            let symbol = match &symbols {
                Ok(symbols) => symbols.get(at).cloned().flatten().ok_or(NoSymbol::NoFunction),
                Err(reason) => Err(*reason),
            };
            let elf_address = elf.as_ref().ok().and_then(|elf| elf.address(offset));
            places.push((*pc, Place::Module(Module { path: Arc::clone(&path), offset, elf_address, symbol })));
        }
    }
    let unmapped = pcs.iter().filter(|pc| !found.iter().any(|mapping| mapping.pcs.contains(pc)));
    let unmapped: Vec<_> = unmapped.map(|pc| (*pc, Place::Unmapped)).collect();
    places.extend(unmapped);
    places.sort_by_key(|(pc, _)| *pc);
    Ok(places)
}

impl Found {
    const fn file_offset(&self, pc: u64) -> u64 {
        (pc - self.begin).wrapping_add(self.offset)
    }
}

/// End of a path of at most [`PATH_MAX_BYTES`].
fn shortened(path: &str) -> String {
    let begin = path.ceil_char_boundary(path.len().saturating_sub(PATH_MAX_BYTES));
    path.get(begin..).unwrap_or_default().to_owned()
}

/// Opens the file of a mapping below a process's root.
fn open_module(root: &std::os::fd::OwnedFd, mapping: &Found) -> Result<File, NoSymbol> {
    if mapping.name.ends_with(" (deleted)") {
        return Err(NoSymbol::Replaced);
    }
    let Some(path) = mapping.name.strip_prefix('/') else { return Err(NoSymbol::Unreadable) };
    let absent = |errno: Errno| if errno == Errno::NOENT { NoSymbol::NotFound } else { NoSymbol::Unreadable };
    let failed = |_: Errno| NoSymbol::Unreadable;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // An open with `O_PATH` does not reach the file, which may be a device.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let place = openat2(root, path, flags, Mode::empty(), resolve).map_err(absent)?;
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let there = statx(&place, c"", flags, StatxFlags::TYPE | StatxFlags::INO).map_err(failed)?;
    if FileType::from_raw_mode(there.stx_mode.into()) != FileType::RegularFile {
        return Err(NoSymbol::Unreadable);
    }
    if is_of_kernel(&place).map_err(failed)? {
        return Err(NoSymbol::Unreadable);
    }
    if there.stx_ino != mapping.inode {
        return Err(NoSymbol::Replaced);
    }
    // Without blocking: a process may have a lease on it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty()).map(File::from).map_err(failed)
}

/// Whether a file is of a file system of the kernel, which no code is mapped from.
fn is_of_kernel(file: impl AsFd) -> Result<bool, Errno> {
    Ok(OF_KERNEL.contains(&fstatfs(file)?.f_type))
}

#[cfg(test)]
mod tests;
