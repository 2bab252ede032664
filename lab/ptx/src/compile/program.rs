//! Programs of kernels.

use super::Compiler;
use super::scope::{Name, Scope};
use crate::PtxError;
use crate::ast::{Function, Statement};
use crate::link::Symbols;
use crate::machine::program::{Action, Copied, FunctionCode, Program};

/// Local memory for calls whose depth is not known, per thread.
const STACK_BYTES: u32 = 4096;
/// Bytes of a kernel's arguments at most.
const MAX_ARGUMENT_BYTES: u64 = 32_764;

/// Compiles a kernel, by its index in the module.
pub(crate) fn compile(symbols: &Symbols, kernel: usize) -> Result<(Program, u64), PtxError> {
    let mut compiler = Compiler::new(symbols);
    compiler.reach(kernel);
    let mut argument_bytes = 0;
    let mut next = 0;
    loop {
        while let Some((text, function)) = compiler.module_function(next) {
            let bytes = compiler.compile_function(next, text, function)?;
            if next == 0 {
                argument_bytes = bytes;
            }
            next += 1;
        }
        if !compiler.indirect_calls {
            break;
        }
        // Any function may be called by its address.
        let known = compiler.functions.len();
        for (index, found) in symbols.functions.iter().enumerate() {
            if !found.function.entry && found.function.body.is_some() {
                compiler.reach(index);
            }
        }
        if compiler.functions.len() == known {
            break;
        }
    }
    Ok((compiler.finish(argument_bytes), argument_bytes))
}

impl Compiler<'_> {
    /// Compiles a function of the program; returns the bytes of a kernel's arguments.
    fn compile_function(&mut self, index: usize, text: usize, function: &Function) -> Result<u64, PtxError> {
        self.text = text;
        self.function = index;
        self.entry = function.entry;
        self.frame_bytes = 0;
        self.line = function.line;
        self.guard = (0, false);
        self.scopes = vec![Scope::default()];
        self.scope = 0;
        let first = (self.program.words, self.program.longs, self.program.predicates);
        let entry = self.pc();
        let mut argument_bytes = 0u64;
        let mut code = FunctionCode { entry, ..FunctionCode::default() };
        if function.entry {
            for parameter in &function.prototype.parameters {
                let offset = argument_bytes.next_multiple_of(parameter.align_bytes);
                argument_bytes = offset + parameter.bytes;
                self.declare(&parameter.name, Name::Argument(offset));
            }
            if argument_bytes > MAX_ARGUMENT_BYTES {
                return self.error("the kernel has too many parameters");
            }
            self.program.max_threads = function.max_threads.unwrap_or(1024).min(1024);
        } else {
            for (formal, places) in [
                (&function.prototype.results, &mut code.results),
                (&function.prototype.parameters, &mut code.parameters),
            ] {
                for parameter in formal {
                    if let Name::Frame { offset_bytes, .. } = self.declare_variable(parameter)? {
                        places.push(Copied { offset_bytes: offset_bytes as u32, bytes: parameter.bytes as u32 });
                    }
                }
            }
        }
        for statement in function.body.as_deref().unwrap_or_default() {
            self.statement(statement)?;
        }
        self.resolve_labels()?;
        self.guard = (0, false);
        self.emit(Action::Return);
        code.frame_bytes = self.frame_bytes.next_multiple_of(16) as u32;
        code.words = first.0..self.program.words;
        code.longs = first.1..self.program.longs;
        code.predicates = first.2..self.program.predicates;
        if let Some(place) = self.program.functions.get_mut(index) {
            code.number = place.number;
            *place = code;
        }
        Ok(argument_bytes)
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), PtxError> {
        match statement {
            Statement::Open => self.open(),
            Statement::Close => self.close(),
            Statement::Registers(register, names) => {
                for name in names {
                    self.declare_register(*register, name)?;
                }
            }
            Statement::RegisterRange(register, prefix, number) => self.declare_range(*register, prefix, *number),
            Statement::Variable(variable) => {
                self.line = variable.line;
                self.declare_variable(variable)?;
            }
            Statement::Label(name) => {
                let pc = self.pc();
                if let Some(scope) = self.present_scope() {
                    scope.labels.insert(name.clone(), pc);
                }
            }
            Statement::Targets(name, targets) => {
                if let Some(scope) = self.present_scope() {
                    scope.targets.insert(name.clone(), targets.clone());
                }
            }
            Statement::Prototype(name, prototype) => {
                if let Some(scope) = self.present_scope() {
                    scope.prototypes.insert(name.clone(), prototype.clone());
                }
            }
            Statement::Instruction(instruction) => self.instruction(instruction)?,
        }
        Ok(())
    }

    /// Places what depends on all functions: dynamic shared memory and the stack.
    fn finish(mut self, argument_bytes: u64) -> Program {
        let dynamic = self.program.shared_bytes.next_multiple_of(16);
        if !self.dynamic_words.is_empty() || !self.dynamic_longs.is_empty() {
            self.program.shared_bytes = dynamic;
        }
        self.program.word_constants.extend(self.dynamic_words.iter().map(|&register| (register, dynamic)));
        self.program.long_constants.extend(self.dynamic_longs.iter().map(|&register| (register, u64::from(dynamic))));
        // A path of calls without recursion has each function once at most.
        let frames: u32 = self.program.functions.iter().map(|function| function.frame_bytes).sum();
        let unknown_depth = self.indirect_calls || self.is_recursive();
        self.program.local_bytes = frames + if unknown_depth { STACK_BYTES } else { 0 };
        self.program.argument_bytes = argument_bytes as u32;
        self.program
    }

    /// Tells whether a function calls itself, perhaps by others.
    fn is_recursive(&self) -> bool {
        (0..self.functions.len()).any(|start| {
            let mut reached = vec![false; self.functions.len()];
            let mut next = vec![start];
            while let Some(from) = next.pop() {
                for &(_, to) in self.calls.iter().filter(|call| call.0 == from) {
                    if to == start {
                        return true;
                    }
                    if let Some(known) = reached.get_mut(to).filter(|known| !**known) {
                        *known = true;
                        next.push(to);
                    }
                }
            }
            false
        })
    }
}
