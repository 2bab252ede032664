//! Sizes and offsets of structures of the kernel, from `/sys/kernel/btf/vmlinux`, and of a module,
//! from the file beside it.
//!
//! Only the requested types are read; a general BTF library would hold all of the kernel's types in
//! memory, some 36 MB. The format is in the kernel's Documentation/bpf/btf.rst. The input is not
//! trusted: every read is checked.

use thiserror::Error;

/// Reason why a size or an offset is unknown.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// Unreadable file.
    #[error("not BTF of this machine's byte order, or damaged")]
    Malformed,
    /// A struct is missing.
    #[error("no struct {0}")]
    NoStruct(&'static str),
    /// The struct has no such member.
    #[error("no member {1} in struct {0}")]
    NoMember(&'static str, &'static str),
    /// Impossible size of the struct with this name.
    #[error("struct {0} has an impossible size of {1} bytes")]
    TooLarge(&'static str, u32),
    /// A function is missing.
    #[error("no function {0}")]
    NoFunction(&'static str),
}

pub(crate) const MAGIC: u16 = 0xeb9f;
const KIND_FORWARD: u32 = 7;
const KIND_FUNCTION: u32 = 12;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_TYPEDEF: u32 = 8;
const KIND_ENUM: u32 = 6;
/// Limit on anonymous structs inside anonymous structs: the kernel has a few levels, a malicious
/// file may have a cycle.
const NESTING_MAX: u32 = 8;
/// Limit on members visited to find one: no struct has more, and the kernel's largest has a few
/// hundred with those of its anonymous structs. A malicious file may contain the same anonymous
/// struct many times at each level.
const MEMBERS_MAX: u32 = 1 << 16;
/// Limit on typedefs and qualifiers before a type.
const ALIASES_MAX: u32 = 16;

/// Types of a kernel or of a module.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Offset of each type in `types`. Ids count from 1; those of a module follow the kernel's.
    begins: Vec<u32>,
    /// Types and strings of the kernel, which a module uses too.
    kernel: Option<&'a Self>,
}

/// Type, with its file.
#[derive(Clone, Copy)]
struct Type<'b> {
    of: &'b Btf<'b>,
    begin: u32,
    header: Header,
}

/// Member of a struct or union.
#[derive(Clone, Copy)]
struct Member {
    /// Offset in bits.
    bit: u32,
    /// Width of a bit field, 0 of others.
    bits: u32,
    type_id: u32,
}

/// Common part of all kinds of types.
#[derive(Clone, Copy)]
struct Header {
    name: u32,
    kind: u32,
    members: u32,
    /// Whether the upper 8 bits of member offsets are the width of a bit field.
    has_bit_fields: bool,
    size: u32,
}

impl<'a> Btf<'a> {
    /// Reads a BTF file.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn parse(file: &'a [u8]) -> Result<Self, BtfError> {
        Self::parse_on(None, file)
    }

    /// Reads a module's BTF file. It must have been built for this kernel.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn parse_module(kernel: &'a Self, file: &'a [u8]) -> Result<Self, BtfError> {
        Self::parse_on(Some(kernel), file)
    }

    fn parse_on(kernel: Option<&'a Self>, file: &'a [u8]) -> Result<Self, BtfError> {
        let sections = || {
            if u16::from_ne_bytes(*file.first_chunk()?) != MAGIC {
                return None;
            }
            let header = usize::try_from(u32_at(file, 4)?).ok()?;
            let section = |field| {
                let begin = header.checked_add(usize::try_from(u32_at(file, field)?).ok()?)?;
                let end = begin.checked_add(usize::try_from(u32_at(file, field + 4)?).ok()?)?;
                file.get(begin..end)
            };
            Some((section(8)?, section(16)?))
        };
        let (types, strings) = sections().ok_or(BtfError::Malformed)?;
        let mut btf = Self { types, strings, begins: Vec::new(), kernel };
        let mut at = 0;
        while usize::try_from(at).is_ok_and(|at| at < types.len()) {
            btf.begins.push(at);
            at = btf.end_of(at).ok_or(BtfError::Malformed)?;
        }
        Ok(btf)
    }

    /// Number of types.
    #[cfg(any(test, feature = "fake"))]
    pub(crate) fn types(&self) -> u32 {
        u32::try_from(self.begins.len()).unwrap_or(u32::MAX)
    }

    /// Size of a struct in bytes.
    ///
    /// # Errors
    /// If there is no such struct.
    pub fn size_of(&self, name: &'static str) -> Result<u32, BtfError> {
        self.find(name).map(|found| found.header.size).ok_or(BtfError::NoStruct(name))
    }

    /// Offset of a struct's member in bytes. Members of anonymous structs inside it are included.
    ///
    /// # Errors
    /// If there is no such struct or member.
    pub fn offset_of(&self, name: &'static str, member: &'static str) -> Result<u32, BtfError> {
        let found = self.find(name).ok_or(BtfError::NoStruct(name))?;
        found.member(member).map(|found| found.bit / 8).ok_or(BtfError::NoMember(name, member))
    }

    /// The same types, with all functions but one replaced by unnamed declarations. For a library
    /// that looks up the function's id itself, and would need 36 MB for all types.
    ///
    /// # Errors
    /// If there is no such function.
    pub fn only_function(&self, name: &'static str) -> Result<Vec<u8>, BtfError> {
        let is_wanted = |header: Header| header.kind == KIND_FUNCTION && self.is_named(header.name, name);
        let before = self
            .begins
            .iter()
            .position(|begin| self.header(*begin).is_some_and(is_wanted))
            .ok_or(BtfError::NoFunction(name))?;
        let strings = [b"\0", name.as_bytes(), b"\0"].concat();
        let types = std::iter::repeat_n([0, KIND_FORWARD << 24, 0], before).chain([[1, KIND_FUNCTION << 24, 0]]);
        let types: Vec<u8> = types.flatten().flat_map(u32::to_ne_bytes).collect();
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| BtfError::Malformed);
        let header = [24, 0, length(&types)?, length(&types)?, length(&strings)?];
        let mut file = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
        file.extend(header.into_iter().flat_map(u32::to_ne_bytes));
        file.extend(types);
        file.extend(strings);
        Ok(file)
    }

    /// Id of a function of these types, without the kernel's.
    #[must_use]
    pub fn id_of_function(&self, name: &str) -> Option<u32> {
        let is_wanted = |header: Header| header.kind == KIND_FUNCTION && self.is_named(header.name, name);
        let before = self.kernel.map_or(0, |kernel| kernel.begins.len());
        let index = self.begins.iter().position(|begin| self.header(*begin).is_some_and(is_wanted))?;
        u32::try_from(before + index + 1).ok()
    }

    /// Size of a struct or union of a module, by its own name or a typedef's, in bytes.
    #[must_use]
    pub fn size_of_type(&self, name: &str) -> Option<u32> {
        self.named(name).map(|found| found.header.size)
    }

    /// Offset in bits of a field in a struct or union of a module. `path`: names of nested members,
    /// separated by dots, without anonymous ones.
    #[must_use]
    pub fn bit_of(&self, name: &str, path: &str) -> Option<u32> {
        let mut within = self.named(name)?;
        let mut bit = 0_u32;
        let mut members = path.split('.').peekable();
        while let Some(member) = members.next() {
            let Member { bit: offset, type_id, .. } = within.member(member)?;
            bit = bit.checked_add(offset)?;
            if members.peek().is_some() {
                within = self.type_of(type_id)?.target()?;
            }
        }
        Some(bit)
    }

    /// Width in bits of a bit field.
    #[must_use]
    pub fn width_of(&self, name: &str, member: &str) -> Option<u32> {
        let within = self.named(name)?;
        let Member { bits, .. } = within.member(member)?;
        (bits > 0).then_some(bits)
    }

    /// Value of an enumerator of the module; the kernel's are not searched.
    #[must_use]
    pub fn enumerator(&self, name: &str) -> Option<u32> {
        self.begins.iter().find_map(|begin| {
            let Header { kind, members, .. } = self.header(*begin)?;
            let values = begin.checked_add(12)?;
            (0..if kind == KIND_ENUM { members } else { 0 }).find_map(|index| {
                let at = values.checked_add(index.checked_mul(8)?)?;
                if self.is_named(self.u32(at)?, name) { self.u32(at.checked_add(4)?) } else { None }
            })
        })
    }

    /// Finds a struct or union of these types, without the kernel's.
    fn named(&self, name: &str) -> Option<Type<'_>> {
        let candidates =
            self.begins.iter().filter_map(|begin| Some(Type { of: self, begin: *begin, header: self.header(*begin)? }));
        candidates
            .filter(|found| matches!(found.header.kind, KIND_STRUCT | KIND_UNION | KIND_TYPEDEF))
            .filter(|found| self.is_named(found.header.name, name))
            .find_map(Type::target)
    }

    fn type_of(&self, id: u32) -> Option<Type<'_>> {
        let before = self.kernel.map_or(0, |kernel| kernel.begins.len());
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        match index.checked_sub(before) {
            Some(index) => {
                let begin = *self.begins.get(index)?;
                Some(Type { of: self, begin, header: self.header(begin)? })
            }
            None => self.kernel?.type_of(id),
        }
    }

    fn find(&self, name: &str) -> Option<Type<'_>> {
        self.begins
            .iter()
            .filter_map(|begin| Some(Type { of: self, begin: *begin, header: self.header(*begin)? }))
            .find(|Type { header, .. }| {
                header.kind == KIND_STRUCT && header.members > 0 && self.is_named(header.name, name)
            })
    }

    fn header(&self, begin: u32) -> Option<Header> {
        let info = self.u32(begin.checked_add(4)?)?;
        Some(Header {
            name: self.u32(begin)?,
            kind: (info >> 24) & 0x1f,
            members: info & 0xffff,
            has_bit_fields: info >> 31 == 1,
            size: self.u32(begin.checked_add(8)?)?,
        })
    }

    /// Offset of the type after this one.
    fn end_of(&self, begin: u32) -> Option<u32> {
        let Header { kind, members, .. } = self.header(begin)?;
        let rest = match kind {
            // Pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags.
            2 | 7..=12 | 16 | 18 => 0,
            // Integers, variables, declaration tags.
            1 | 14 | 17 => 4,
            // Arrays.
            3 => 12,
            // Enums, function prototypes.
            6 | 13 => members * 8,
            // Structs, unions, data sections, enums of 64 bits.
            KIND_STRUCT | KIND_UNION | 15 | 19 => members * 12,
            _ => return None,
        };
        begin.checked_add(12)?.checked_add(rest)
    }

    fn u32(&self, at: u32) -> Option<u32> {
        u32_at(self.types, usize::try_from(at).ok()?)
    }

    fn is_named(&self, offset: u32, wanted: &str) -> bool {
        let before = self.kernel.map_or(0, |kernel| kernel.strings.len());
        let Ok(offset) = usize::try_from(offset) else { return false };
        let Some(offset) = offset.checked_sub(before) else {
            return self
                .kernel
                .is_some_and(|kernel| u32::try_from(offset).is_ok_and(|offset| kernel.is_named(offset, wanted)));
        };
        let rest = self.strings.get(offset..);
        rest.and_then(|rest| rest.strip_prefix(wanted.as_bytes())).is_some_and(|rest| rest.first() == Some(&0))
    }
}

impl Type<'_> {
    /// Struct or union behind typedefs and qualifiers.
    fn target(self) -> Option<Self> {
        let mut found = self;
        for _ in 0..ALIASES_MAX {
            match found.header.kind {
                KIND_STRUCT | KIND_UNION => return Some(found),
                // Typedefs and qualifiers have a type where others have a size.
                KIND_TYPEDEF..=11 | 18 => found = found.of.type_of(found.header.size)?,
                _ => return None,
            }
        }
        None
    }

    /// Finds a member. Members of anonymous structs and unions inside are
    /// included.
    fn member(self, wanted: &str) -> Option<Member> {
        let mut members_left = MEMBERS_MAX;
        self.nested_member(wanted, NESTING_MAX, &mut members_left)
    }

    fn nested_member(self, wanted: &str, nesting: u32, members_left: &mut u32) -> Option<Member> {
        let Self { of, begin, header } = self;
        (0..header.members).find_map(|index| {
            *members_left = members_left.checked_sub(1)?;
            let at = begin.checked_add(12)?.checked_add(index.checked_mul(12)?)?;
            let (name, type_id, place) = (of.u32(at)?, of.u32(at + 4)?, of.u32(at + 8)?);
            let (bit, bits) = if header.has_bit_fields { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            if of.is_named(name, wanted) {
                return Some(Member { bit, bits, type_id });
            }
            if name != 0 || nesting == 0 {
                return None;
            }
            let inner = of.type_of(type_id)?;
            let is_nested = matches!(inner.header.kind, KIND_STRUCT | KIND_UNION);
            let found = is_nested.then(|| inner.nested_member(wanted, nesting - 1, members_left)).flatten()?;
            Some(Member { bit: bit.checked_add(found.bit)?, ..found })
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

#[cfg(test)]
mod tests;
