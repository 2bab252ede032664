//! Compiler: from parsed functions to programs of closures over 32 lanes.

mod arithmetic;
mod atomic;
mod bits;
mod call;
mod compare;
mod control;
mod convert;
mod copy;
mod dispatch;
mod float;
mod fma;
mod form;
mod half;
mod lanes;
mod matrix;
mod memory;
mod operand;
mod program;
mod scope;
mod shuffle;
mod transfer;
mod types;
mod video;

pub(crate) use program::compile;

use std::collections::HashMap;

use crate::PtxError;
use crate::ast::Function;
use crate::link::Symbols;
use crate::machine::program::{Action, FunctionCode, Instruction, Pc, Program, Special};
use scope::Scope;

/// State of the compilation of one kernel, with all functions that it may call.
struct Compiler<'a> {
    symbols: &'a Symbols,
    program: Program,
    /// Functions of the program, by their index in the module.
    functions: Vec<usize>,
    /// Calls: from and to, as indices in the program.
    calls: Vec<(usize, usize)>,
    indirect_calls: bool,
    word_constants: HashMap<u32, usize>,
    long_constants: HashMap<u64, usize>,
    specials: Vec<(Special, usize)>,
    /// Offsets of shared variables with module scope.
    shared: HashMap<usize, u32>,
    /// Registers with the offset of dynamic shared memory: of 32 and of 64 bits.
    dynamic_words: Vec<usize>,
    dynamic_longs: Vec<usize>,
    // Of the function that is being compiled:
    text: usize,
    function: usize,
    entry: bool,
    frame_bytes: u64,
    scopes: Vec<Scope>,
    scope: usize,
    fixes: Vec<Fix>,
    guard: (usize, bool),
    line: u32,
}

/// Label that an instruction is about, to be resolved at the end of its function.
struct Fix {
    pc: Pc,
    scope: usize,
    label: String,
    line: u32,
}

impl<'a> Compiler<'a> {
    fn new(symbols: &'a Symbols) -> Self {
        Self {
            symbols,
            // Predicate 0 is always true.
            program: Program { predicates: 1, ..Program::default() },
            functions: Vec::new(),
            calls: Vec::new(),
            indirect_calls: false,
            word_constants: HashMap::new(),
            long_constants: HashMap::new(),
            specials: Vec::new(),
            shared: HashMap::new(),
            dynamic_words: Vec::new(),
            dynamic_longs: Vec::new(),
            text: 0,
            function: 0,
            entry: false,
            frame_bytes: 0,
            scopes: Vec::new(),
            scope: 0,
            fixes: Vec::new(),
            guard: (0, false),
            line: 0,
        }
    }

    /// Index in the program of a function of the module.
    fn reach(&mut self, function: usize) -> usize {
        if let Some(index) = self.functions.iter().position(|&known| known == function) {
            return index;
        }
        self.functions.push(function);
        self.program.functions.push(FunctionCode { number: function as u64, ..FunctionCode::default() });
        self.functions.len() - 1
    }

    fn module_function(&self, index: usize) -> Option<(usize, &'a Function)> {
        let function = self.symbols.functions.get(*self.functions.get(index)?)?;
        Some((function.text, &function.function))
    }

    fn pc(&self) -> Pc {
        self.program.instructions.len() as Pc
    }

    fn emit(&mut self, action: Action) {
        let (guard, negated) = self.guard;
        let guard_flip = if negated { u32::MAX } else { 0 };
        self.program.instructions.push(Instruction { guard, guard_flip, line: self.line, action });
    }

    fn error<T>(&self, reason: impl Into<String>) -> Result<T, PtxError> {
        Err(PtxError { line: self.line, reason: reason.into() })
    }
}
