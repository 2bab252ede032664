//! Calls of functions.

use super::Compiler;
use super::form::Form;
use super::scope::Name;
use crate::ast::{Declaration, Operand, Prototype};
use crate::link::Symbol;
use crate::machine::access::Progress;
use crate::machine::lanes;
use crate::machine::program::{Action, Copied, Target};
use crate::types::Type;
use crate::{KernelError, PtxError};

mod print;

impl Compiler<'_> {
    /// Compiles `call`.
    pub(super) fn call(&mut self, form: &mut Form<'_>) -> Result<(), PtxError> {
        form.take("uni");
        form.finish()?;
        let mut operands = form.operands.iter().peekable();
        let results = match operands.next_if(|operand| matches!(operand, Operand::List(_))) {
            Some(Operand::List(results)) => results.as_slice(),
            _ => &[],
        };
        let Some(Operand::Symbol(callee)) = operands.next() else { return Err(form.error("function")) };
        let arguments = match operands.next_if(|operand| matches!(operand, Operand::List(_))) {
            Some(Operand::List(arguments)) => arguments.as_slice(),
            _ => &[],
        };
        let symbol = self.symbols.find(self.text, callee);
        if let Some(Symbol::Function(index)) = symbol {
            let function = self.symbols.functions.get(index).map(|found| &found.function);
            let Some(function) = function else { return Err(form.error("function")) };
            if function.body.is_none() {
                return self.builtin(callee, results, arguments);
            }
            let arguments = self.frame_parts(arguments, &function.prototype.parameters)?;
            let results = self.frame_parts(results, &function.prototype.results)?;
            let to = self.reach(index);
            self.calls.push((self.function, to));
            self.emit(Action::Call { target: Target::Direct(to), arguments, results });
            return Ok(());
        }
        let register = self.source(&Operand::Symbol(callee.clone()), Type::B64)?;
        let Some(Operand::Symbol(list)) = operands.next() else { return Err(form.error("prototype")) };
        let prototype = self.prototype(list)?;
        let arguments = self.frame_parts(arguments, &prototype.parameters)?;
        let results = self.frame_parts(results, &prototype.results)?;
        self.indirect_calls = true;
        self.emit(Action::Call { target: Target::Indirect(register), arguments, results });
        Ok(())
    }

    /// Prototype of an indirect call, by its label or that of a list of targets.
    fn prototype(&self, label: &str) -> Result<Prototype, PtxError> {
        if let Some(found) = self.outwards(self.scope, |scope| scope.prototypes.get(label).cloned()) {
            return Ok(found);
        }
        let list = self.outwards(self.scope, |scope| scope.targets.get(label).cloned());
        let first = list.and_then(|list| list.first().and_then(|name| self.symbols.find(self.text, name)));
        match first {
            Some(Symbol::Function(index)) => {
                Ok(self.symbols.functions.get(index).map(|found| found.function.prototype.clone()).unwrap_or_default())
            }
            _ => self.error(format!("unknown prototype {label}")),
        }
    }

    /// Places of arguments or results in the caller's frame.
    fn frame_parts(&mut self, operands: &[Operand], formal: &[Declaration]) -> Result<Vec<Copied>, PtxError> {
        if operands.len() != formal.len() {
            return self.error("number of arguments or results");
        }
        operands
            .iter()
            .zip(formal)
            .map(|(operand, formal)| {
                let Operand::Symbol(name) = operand else {
                    return self.error("an argument is not of the .param space");
                };
                match self.find(name)? {
                    Name::Frame { offset_bytes, parameter: true } => {
                        Ok(Copied { offset_bytes: offset_bytes as u32, bytes: formal.bytes as u32 })
                    }
                    _ => self.error(format!("{name} is not of the .param space")),
                }
            })
            .collect()
    }

    /// Offset of a built-in function's argument in the frame.
    fn builtin_argument(&mut self, arguments: &[Operand], index: usize) -> Result<u64, PtxError> {
        if let Some(Operand::Symbol(name)) = arguments.get(index)
            && let Name::Frame { offset_bytes, .. } = self.find(name)?
        {
            return Ok(offset_bytes);
        }
        self.error("argument of a built-in function")
    }

    /// Compiles the call of a function that the driver defines.
    fn builtin(&mut self, name: &str, results: &[Operand], arguments: &[Operand]) -> Result<(), PtxError> {
        match name {
            "vprintf" => {
                let format = self.builtin_argument(arguments, 0)?;
                let values = self.builtin_argument(arguments, 1)?;
                let result = if results.is_empty() { None } else { Some(self.builtin_argument(results, 0)?) };
                self.emit(Action::Memory(Box::new(move |machine, mask| {
                    let mut texts = Vec::new();
                    for lane in lanes(mask) {
                        let (format, values) = (machine.argument(format, lane), machine.argument(values, lane));
                        match print::text(machine, format, values, lane)? {
                            Some(text) => texts.push(text),
                            None => return Ok(Progress::Park),
                        }
                    }
                    for (lane, text) in lanes(mask).zip(&texts) {
                        machine.memory.print(text);
                        if let Some(result) = result {
                            machine.set_result(result, lane, (text.len() as u32).to_le_bytes());
                        }
                    }
                    Ok(Progress::Done)
                })));
                Ok(())
            }
            "malloc" => {
                let bytes = self.builtin_argument(arguments, 0)?;
                let result = self.builtin_argument(results, 0)?;
                self.program.uses_heap = true;
                self.emit(Action::Memory(Box::new(move |machine, mask| {
                    for lane in lanes(mask) {
                        let address = machine.allocate(machine.argument(bytes, lane));
                        machine.set_result(result, lane, address.to_le_bytes());
                    }
                    Ok(Progress::Done)
                })));
                Ok(())
            }
            "free" => {
                let address = self.builtin_argument(arguments, 0)?;
                self.program.uses_heap = true;
                self.emit(Action::Memory(Box::new(move |machine, mask| {
                    lanes(mask).try_for_each(|lane| machine.release(machine.argument(address, lane)))?;
                    Ok(Progress::Done)
                })));
                Ok(())
            }
            "__assertfail" => {
                let mut offsets = [0; 4];
                for (index, offset) in offsets.iter_mut().enumerate() {
                    *offset = self.builtin_argument(arguments, index)?;
                }
                let [message, file, line, function] = offsets;
                self.emit(Action::Memory(Box::new(move |machine, mask| {
                    let lane = lanes(mask).next().unwrap_or_default();
                    let mut texts = Vec::new();
                    for offset in [message, file, function] {
                        let address = machine.argument(offset, lane);
                        match machine.text(address, lane)? {
                            Some(text) => texts.push(String::from_utf8_lossy(&text).into_owned()),
                            None => return Ok(Progress::Park),
                        }
                    }
                    let line = machine.argument(line, lane) as u32;
                    let text = match texts.as_slice() {
                        [message, file, function] => format!("{message}, {file}:{line}, {function}"),
                        _ => String::new(),
                    };
                    Err(KernelError::Assertion { text })
                })));
                Ok(())
            }
            _ => self.error(format!("function {name} has no body")),
        }
    }
}
