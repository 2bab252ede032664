//! Functions in the symbol table of an ELF file. Whoever wrote the file may have written anything: each number is
//! checked, and tables are read in pieces.

use std::{fs::File, io, os::unix::fs::FileExt};

use super::{NoSymbol, Symbol};

/// Limits on the headers that are read, far above what linkers write.
const SEGMENTS_MAX: usize = 128;
const SECTIONS_MAX: usize = 4096;
/// Limit on the length of a name.
const NAME_MAX_BYTES: usize = 256;

const HEADER_BYTES: u64 = 64;
const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
/// Symbols that are read at a time.
const BYTES_PER_READ: u64 = 2048 * SYMBOL_BYTES as u64;

/// 64 bits, little-endian, version 1.
const MAGIC: [u8; 7] = *b"\x7fELF\x02\x01\x01";
const PT_LOAD: u32 = 1;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

/// An ELF file.
#[derive(Debug)]
pub(super) struct Elf {
    file: File,
    segments: Vec<Segment>,
    table: Option<Table>,
}

/// Loaded part of the file.
#[derive(Debug)]
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

/// Symbol table, and that of its names.
#[derive(Debug)]
struct Table {
    offset: u64,
    bytes: u64,
    names_offset: u64,
    names_bytes: u64,
}

impl Elf {
    /// Reads the headers.
    pub(super) fn read(file: File) -> Result<Self, NoSymbol> {
        let header = bytes(&file, 0, HEADER_BYTES)?;
        if !header.starts_with(&MAGIC) || usize::from(u16_at(&header, 54)?) != SEGMENT_BYTES {
            return Err(NoSymbol::NotElf);
        }
        let segments = table(&file, u64_at(&header, 32)?, u16_at(&header, 56)?.into(), SEGMENT_BYTES, SEGMENTS_MAX)?;
        let segments = segments.chunks_exact(SEGMENT_BYTES).filter_map(|segment| {
            (u32_at(segment, 0).ok()? == PT_LOAD).then_some(Segment {
                offset: u64_at(segment, 8).ok()?,
                bytes: u64_at(segment, 32).ok()?,
                address: u64_at(segment, 16).ok()?,
            })
        });
        let segments = segments.collect();
        // A file may have no section headers.
        let sections = u16_at(&header, 60)?.into();
        let sections = table(&file, u64_at(&header, 40)?, sections, SECTION_BYTES, SECTIONS_MAX)?;
        let table = [SHT_SYMTAB, SHT_DYNSYM].into_iter().find_map(|kind| Table::find(&sections, kind));
        Ok(Self { file, segments, table })
    }

    /// Address of an offset of the file.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let of = |segment: &Segment| {
            let within = offset.checked_sub(segment.offset).filter(|within| *within < segment.bytes)?;
            segment.address.checked_add(within)
        };
        self.segments.iter().find_map(of)
    }

    /// Functions at these addresses. `budget_bytes`: limit on what is read, which it reduces.
    pub(super) fn symbols(
        &self,
        addresses: &[Option<u64>],
        budget_bytes: &mut u64,
    ) -> Result<Vec<Option<Symbol>>, NoSymbol> {
        let Table { offset, bytes: length, names_offset, names_bytes } =
            self.table.as_ref().ok_or(NoSymbol::Stripped)?;
        *budget_bytes = budget_bytes.checked_sub(*length).ok_or(NoSymbol::TooLarge)?;
        // Start and name of the innermost function of each address.
        let mut functions: Vec<Option<(u64, u32)>> = vec![None; addresses.len()];
        let mut read = 0;
        while read < *length {
            let begin = offset.checked_add(read).ok_or(NoSymbol::NotElf)?;
            let some = BYTES_PER_READ.min(length - read);
            let symbols = bytes(&self.file, begin, some)?;
            for symbol in symbols.chunks_exact(SYMBOL_BYTES) {
                let (start, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
                let is_function = matches!(symbol.get(4).map(|info| info & 0xf), Some(STT_FUNC | STT_GNU_IFUNC));
                if !is_function || u16_at(symbol, 6)? == 0 {
                    continue;
                }
                for (address, function) in addresses.iter().zip(&mut functions) {
                    let is_within = address.is_some_and(|address| address >= start && address - start < size);
                    if is_within && function.is_none_or(|(earlier, _)| earlier < start) {
                        *function = Some((start, u32_at(symbol, 0)?));
                    }
                }
            }
            read += some;
        }
        let symbol = |(address, function): (&Option<u64>, &Option<(u64, u32)>)| {
            let (start, name) = (*function)?;
            let left = names_bytes.checked_sub(name.into())?.min(NAME_MAX_BYTES as u64);
            let name = bytes(&self.file, names_offset.checked_add(name.into())?, left).ok()?;
            let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
            // Bytes that are no text grow to three each.
            let name = String::from_utf8_lossy(name);
            let name = name.get(..name.floor_char_boundary(NAME_MAX_BYTES))?.to_owned();
            Some(Symbol { name, offset: (*address)? - start })
        };
        Ok(addresses.iter().zip(&functions).map(symbol).collect())
    }
}

impl Table {
    fn find(sections: &[u8], kind: u32) -> Option<Self> {
        let at = |index: usize| sections.chunks_exact(SECTION_BYTES).nth(index);
        let of_kind = |section: &&[u8]| u32_at(section, 4).is_ok_and(|found| found == kind);
        let section = sections.chunks_exact(SECTION_BYTES).find(of_kind)?;
        let names = at(u32_at(section, 40).ok()? as usize)?;
        Some(Self {
            offset: u64_at(section, 24).ok()?,
            bytes: u64_at(section, 32).ok()?,
            names_offset: u64_at(names, 24).ok()?,
            names_bytes: u64_at(names, 32).ok()?,
        })
    }
}

/// Entries of a table of headers.
fn table(file: &File, offset: u64, count: usize, entry_bytes: usize, max: usize) -> Result<Vec<u8>, NoSymbol> {
    if count > max { Err(NoSymbol::NotElf) } else { bytes(file, offset, (count * entry_bytes) as u64) }
}

/// Bytes of a file; `length` is bounded by the caller.
fn bytes(file: &File, offset: u64, length: u64) -> Result<Vec<u8>, NoSymbol> {
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| NoSymbol::TooLarge)?];
    file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidInput => NoSymbol::NotElf,
        _ => NoSymbol::Unreadable,
    })?;
    Ok(bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], NoSymbol> {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().ok_or(NoSymbol::NotElf)
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, NoSymbol> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, NoSymbol> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, NoSymbol> {
    array(bytes, at).map(u64::from_le_bytes)
}
