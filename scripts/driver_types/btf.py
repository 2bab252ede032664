"""Types of a file, from its BTF: sizes, offsets of fields, enumerators and parameters of functions.

The format is in the kernel's Documentation/bpf/btf.rst. The file may be one that this program compiled, or a module, whose types
continue those of the kernel.
"""

import struct

MAGIC = b"\x9f\xeb"
POINTER, ARRAY, STRUCT, UNION, ENUM, TYPEDEF, VOLATILE, CONST, RESTRICT = 2, 3, 4, 5, 6, 8, 9, 10, 11
FUNCTION, PROTOTYPE, TYPE_TAG, ENUM64 = 12, 13, 18, 19
ALIASES = TYPEDEF, VOLATILE, CONST, RESTRICT, TYPE_TAG
SIZED = 1, STRUCT, UNION, ENUM, ENUM64
# Words after the first three of a type, and after those for each member.
EXTRA = {1: (1, 0), ARRAY: (3, 0), STRUCT: (0, 3), UNION: (0, 3), ENUM: (0, 2), PROTOTYPE: (0, 2), 14: (1, 0), 15: (0, 3), 17: (1, 0), ENUM64: (0, 3)}


class Error(Exception):
    """The types cannot be read."""


def sections(elf):
    """Sections of an ELF file of 64 bits, by name."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise Error("not an ELF file of 64 bits")
    (start,) = struct.unpack_from("<Q", elf, 40)
    size, number, names = struct.unpack_from("<3H", elf, 58)
    headers = [struct.unpack_from("<2I4Q", elf, start + at * size) for at in range(number)]
    text = headers[names][4]
    name = lambda at: elf[text + at : elf.index(b"\0", text + at)].decode()
    return {name(header[0]): elf[header[4] : header[4] + header[5]] for header in headers if header[1] != 8}


def functions(elf):
    """Names of the functions that an ELF file defines."""
    found = sections(elf)
    symbols, names = found.get(".symtab", b""), found.get(".strtab", b"")
    entries = (struct.unpack_from("<I2BH", symbols, at) for at in range(0, len(symbols), 24))
    return {names[name : names.index(b"\0", name)].decode() for name, info, _, section in entries if info & 15 == 2 and section}


class Types:
    """Types of BTF; `base`: those that they continue."""

    def __init__(self, data, base=None):
        if data[:2] != MAGIC:
            raise Error("no BTF of this machine's byte order")
        head, type_at, type_size, text_at, text_size = struct.unpack_from("<5I", data, 4)
        self.base = base
        self.first = base.end if base else 1
        self.text_first = base.text_end if base else 0
        self.text = data[head + text_at : head + text_at + text_size]
        self.text_end = self.text_first + text_size
        self.types = []
        words = struct.unpack_from(f"<{type_size // 4}I", data, head + type_at)
        at = 0
        while at < len(words):
            name, info, size = words[at : at + 3]
            kind, count = info >> 24 & 31, info & 0xFFFF
            fixed, each = EXTRA.get(kind, (0, 0))
            length = 3 + fixed + each * count
            self.types.append((kind, name, size, info >> 31, each, words[at + 3 : at + length]))
            at += length
        self.end = self.first + len(self.types)
        self.names = {}
        self.enumerators = {}
        for own in self.types:
            kind, name, rest, each = own[0], own[1], own[5], own[4]
            if name:
                self.names.setdefault((self.group(kind), self.string(name)), own)
            if kind == ENUM:
                for place in range(0, len(rest), each):
                    self.enumerators.setdefault(self.string(rest[place]), rest[place + 1])

    @staticmethod
    def group(kind):
        return kind if kind == FUNCTION else None

    def string(self, at):
        if at < self.text_first:
            return self.base.string(at)
        at -= self.text_first
        return self.text[at : self.text.index(b"\0", at)].decode()

    def type(self, number):
        if number and number < self.first:
            return self.base.type(number)
        return self.types[number - self.first] if number else None

    def resolved(self, number_or_type):
        """Struct, union, enum or other type behind typedefs and qualifiers."""
        found = self.type(number_or_type) if isinstance(number_or_type, int) else number_or_type
        while found and found[0] in ALIASES:
            found = self.type(found[2])
        return found

    def named(self, name):
        found = self.resolved(self.names.get((None, name)))
        return found if found and found[0] in (STRUCT, UNION) else None

    def member(self, owner, wanted):
        """Bit, bits and type of a member, also of an unnamed struct inside."""
        if not owner or owner[0] not in (STRUCT, UNION):
            return None
        words, has_bits = owner[5], owner[3]
        for at in range(0, len(words), 3):
            name, number, place = words[at : at + 3]
            bit, bits = (place & 0xFFFFFF, place >> 24) if has_bits else (place, 0)
            if name and self.string(name) == wanted:
                return bit, bits, number
            if not name and (inner := self.member(self.resolved(number), wanted)):
                return bit + inner[0], inner[1], inner[2]
        return None

    def field(self, name, path):
        """First bit and number of bits of a field; 0 bits if its type has no size of its own."""
        owner, bit, bits = self.named(name), 0, 0
        for part in path.split("."):
            found = self.member(owner, part)
            if not found:
                return None
            bit, owner = bit + found[0], self.resolved(found[2])
            bits = found[1] or (owner[2] * 8 if owner and owner[0] in SIZED else 0)
        return bit, bits

    def size(self, name):
        found = self.named(name)
        return found[2] if found else None

    def parameters(self, function):
        """Types of a function's parameters as in C; None without its prototype."""
        found = self.names.get((FUNCTION, function))
        prototype = found and self.type(found[2])
        return [self.spelled(number) for number in prototype[5][1::2]] if prototype else None

    def spelled(self, number):
        found = self.type(number)
        if not found:
            return "void"
        kind, name = found[0], found[1]
        if kind == POINTER:
            return self.spelled(found[2]) + " *"
        if kind in (VOLATILE, CONST, RESTRICT, TYPE_TAG):
            return ("const " if kind == CONST else "") + self.spelled(found[2])
        prefix = {STRUCT: "struct ", UNION: "union ", ENUM: "enum ", ENUM64: "enum "}.get(kind, "")
        return prefix + (self.string(name) if name else "?")


def of_module(path, kernel):
    """Types of a module; `kernel`: file with the types of the kernel that it was built for, unless the module has what it needs of them."""
    with open(path, "rb") as file:
        found = sections(file.read())
    if ".BTF" not in found:
        raise Error(f"{path} has no BTF: compare the driver's source, or build it with BTF")
    if ".BTF.base" in found:
        return Types(found[".BTF"], Types(found[".BTF.base"]))
    with open(kernel, "rb") as file:
        data = file.read()
    return Types(found[".BTF"], Types(data if data[:2] == MAGIC else sections(data)[".BTF"]))
