//! Contents of a parsed PTX text.

use crate::types::Type;

/// Visibility of a symbol with module scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linkage {
    /// Visible in its text only.
    Internal,
    /// `.visible`
    Visible,
    /// `.extern`
    Extern,
    /// `.weak` or `.common`
    Weak,
}

/// State space of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Constant,
    Shared,
    Local,
    Parameter,
}

/// Part of an initializer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Initial {
    Bytes(Vec<u8>),
    /// Address of a symbol plus an offset, shifted right by `shift_bits`, its lowest `bytes`.
    Address {
        symbol: String,
        offset: i64,
        shift_bits: u32,
        bytes: usize,
    },
}

/// Declaration of a variable.
#[derive(Clone, Debug)]
pub(crate) struct Declaration {
    pub(crate) space: Space,
    pub(crate) linkage: Linkage,
    pub(crate) name: String,
    /// `.attribute(.managed)`
    pub(crate) managed: bool,
    pub(crate) align_bytes: u64,
    pub(crate) bytes: u64,
    pub(crate) initial: Vec<Initial>,
    pub(crate) line: u32,
}

/// Operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    /// Register, label, variable or function.
    Symbol(String),
    /// `!%p`
    Not(String),
    Integer(u64),
    Single(u32),
    Double(f64),
    /// Symbol plus offset.
    Sum(String, i64),
    /// `[symbol+offset]`; without a symbol the offset is the address.
    Address(Option<String>, i64),
    /// `{a, b}`
    Vector(Vec<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `a|b`
    Pair(Box<Operand>, Box<Operand>),
    /// `_`
    Sink,
}

/// Instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    /// Predicate, and whether it is negated.
    pub(crate) guard: Option<(String, bool)>,
    /// Opcode with its modifiers, `ld.global.f32`.
    pub(crate) name: String,
    pub(crate) operands: Vec<Operand>,
    pub(crate) line: u32,
}

/// Statement of a function's body.
#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Open,
    Close,
    Label(String),
    /// Registers of one type.
    Registers(Type, Vec<String>),
    /// `.reg .b32 %r<8>`: type, prefix and number.
    RegisterRange(Type, String, u32),
    Variable(Declaration),
    /// Label of a list of targets, of `brx.idx` or an indirect `call`.
    Targets(String, Vec<String>),
    Prototype(String, Prototype),
    Instruction(Instruction),
}

/// Results and parameters of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prototype {
    pub(crate) results: Vec<Declaration>,
    pub(crate) parameters: Vec<Declaration>,
}

/// Function or kernel.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) entry: bool,
    pub(crate) linkage: Linkage,
    pub(crate) name: String,
    pub(crate) prototype: Prototype,
    /// None of a declaration.
    pub(crate) body: Option<Vec<Statement>>,
    /// Threads of a block at most, by `.maxntid` or `.reqntid`.
    pub(crate) max_threads: Option<u32>,
    pub(crate) line: u32,
}

/// Contents of one text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    pub(crate) variables: Vec<Declaration>,
    pub(crate) functions: Vec<Function>,
}
