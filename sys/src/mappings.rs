//! Mappings of a process, as a maps file of /proc has them. A read takes the lock of the process's
//! memory map, and hangs while another holder has it.

use std::{
    io::{self, BufRead, BufReader, Read, Take},
    ops::Range,
};

/// Limit on the maps file of a process, some 600,000 mappings; the mappings of a larger one are
/// unknown.
pub(crate) const MAPS_MAX_BYTES: u64 = 64 << 20;

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping<'a> {
    /// Addresses; not empty.
    pub(crate) range: Range<u64>,
    /// Whether other processes see what is written.
    pub(crate) is_shared: bool,
    /// Place in the file where it begins.
    pub(crate) offset_bytes: u64,
    /// Device of the file: major and minor number.
    pub(crate) device: (u32, u32),
    /// Inode of the file; 0 without one.
    pub(crate) inode: u64,
    /// Path, or name in brackets of a special area; empty without either. The kernel appends ` (deleted)`.
    pub(crate) name: &'a str,
    /// Path, up to its first space; empty without a file.
    pub(crate) path: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses a line such as `7f0000000000-7f0000400000 rw-s 7f0000000000 00:06 123 /dev/nvidia-uvm`.
    fn parse(line: &'a str) -> Option<Self> {
        let wide = |text| u64::from_str_radix(text, 16).ok();
        let number = |text| u32::from_str_radix(text, 16).ok();
        let mut fields = line.splitn(6, ' ');
        let (begin, end) = fields.next()?.split_once('-')?;
        let range = wide(begin)?..wide(end)?;
        let is_shared = fields.next()?.ends_with('s');
        let offset_bytes = wide(fields.next()?)?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = (number(major)?, number(minor)?);
        let inode = fields.next().and_then(|inode| inode.trim_end().parse().ok()).unwrap_or_default();
        let name = fields.next().unwrap_or_default().trim_start_matches(' ').trim_end_matches('\n');
        let path = name.split(' ').next().unwrap_or_default();
        (!range.is_empty()).then_some(Self { range, is_shared, offset_bytes, device, inode, name, path })
    }
}

/// Calls with each mapping of a maps file, in the order of addresses; malformed lines are skipped. Returns
/// whether there was any line: a thread with memory has at least its stack.
///
/// # Errors
/// If the file cannot be read, or has more bytes than this.
pub(crate) fn for_each(maps: impl Read, max_bytes: u64, call: impl FnMut(Mapping<'_>)) -> io::Result<bool> {
    let mut mappings = Mappings::new(maps, max_bytes);
    mappings.read(u64::MAX, call)?;
    Ok(mappings.read_bytes > 0)
}

/// Mappings of a maps file, read in slices. If mappings change meanwhile, each that stays is read.
#[derive(Debug)]
pub(crate) struct Mappings<R> {
    lines: BufReader<Take<R>>,
    line: Vec<u8>,
    max_bytes: u64,
    read_bytes: u64,
}

impl<R: Read> Mappings<R> {
    /// Mappings of a file of less than this many bytes.
    pub(crate) fn new(maps: R, max_bytes: u64) -> Self {
        Self { lines: BufReader::new(maps.take(max_bytes)), line: Vec::new(), max_bytes, read_bytes: 0 }
    }

    /// Calls with the next mappings, in the order of addresses, up to the first line after this many bytes;
    /// malformed lines are skipped. Returns whether the file has ended.
    ///
    /// # Errors
    /// If the file cannot be read, or is too large.
    pub(crate) fn read(&mut self, slice_bytes: u64, mut call: impl FnMut(Mapping<'_>)) -> io::Result<bool> {
        let end = self.read_bytes.saturating_add(slice_bytes);
        while self.read_bytes < end {
            self.line.clear();
            let length = self.lines.read_until(b'\n', &mut self.line)?;
            self.read_bytes += length as u64;
            if self.read_bytes >= self.max_bytes {
                return Err(io::Error::other("too many mappings"));
            }
            if length == 0 {
                return Ok(true);
            }
            if let Some(mapping) = Mapping::parse(&String::from_utf8_lossy(&self.line)) {
                call(mapping);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_without_a_file_has_no_path() {
        let line = "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.is_shared, mapping.device, mapping.path), (false, (0, 0), ""));
    }

    #[test]
    fn fields_are_hexadecimal() {
        let line = "7f0000000000-7f0000002000 rw-s 0000a000 fd:2a 1024 /memfd:name (deleted)\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!(mapping.range, 0x7f00_0000_0000..0x7f00_0000_2000);
        assert_eq!((mapping.offset_bytes, mapping.device, mapping.path), (0xa000, (0xfd, 0x2a), "/memfd:name"));
        assert_eq!((mapping.inode, mapping.name), (1024, "/memfd:name (deleted)"));
    }

    #[test]
    fn name_keeps_its_spaces_and_the_path_ends_at_the_first() {
        let line = "7f0000000000-7f0000002000 r-xp 00001000 08:01 77                         /opt/my app/lib.so\n";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.inode, mapping.name, mapping.path), (77, "/opt/my app/lib.so", "/opt/my"));
    }

    #[test]
    fn cut_and_empty_ranges_are_no_mappings() {
        for line in ["", "7f00", "7f00-", "9-8 rw-s 0 00:06 1 /dev/x", "8-9 rw-s 0 6 1 /dev/x", "8-9 rw-s"] {
            assert_eq!(Mapping::parse(line), None, "{line}");
        }
    }

    #[test]
    fn slices_have_each_mapping_once_and_end_with_the_file() {
        let line = |at: u64| format!("{at:x}000-{at:x}800 rw-s 00000000 00:01 7 /memfd:name\n");
        let maps = (1..100).map(line).collect::<Vec<String>>().concat();
        for slice_bytes in [1, 100, 1000, 1 << 20] {
            let (mut mappings, mut begins, mut slices) = (Mappings::new(maps.as_bytes(), 1 << 20), Vec::new(), 0);
            while !mappings.read(slice_bytes, |mapping| begins.push(mapping.range.start)).unwrap() {
                slices += 1;
            }
            assert_eq!(begins, (1..100).map(|at| at << 12).collect::<Vec<u64>>());
            assert!(slices <= maps.len() as u64 / slice_bytes, "{slices} slices of {slice_bytes} bytes");
        }
    }

    #[test]
    fn file_that_is_too_large_is_refused_in_its_last_slice() {
        let mut mappings = Mappings::new(io::repeat(b'\n'), 4096);
        let ended = (0..).find_map(|_| mappings.read(1000, |_| ()).err().map(|error| error.to_string()));
        assert_eq!(ended.as_deref(), Some("too many mappings"));
    }
}
