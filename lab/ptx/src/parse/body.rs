//! Bodies of functions.

use super::{Parser, space_of};
use crate::PtxError;
use crate::ast::{Instruction, Linkage, Operand, Prototype, Statement};
use crate::lex::Token;
use crate::types::Type;

/// Registers of one declaration at most.
const MAX_REGISTERS: u64 = 1 << 20;

impl Parser {
    pub(super) fn body(&mut self) -> Result<Vec<Statement>, PtxError> {
        self.expect('{')?;
        let mut depth = 1;
        let mut body = Vec::new();
        loop {
            if self.eat('{') {
                depth += 1;
                body.push(Statement::Open);
            } else if self.eat('}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(body);
                }
                body.push(Statement::Close);
            } else if !self.eat(';') {
                self.statement(&mut body)?;
            }
        }
    }

    fn statement(&mut self, body: &mut Vec<Statement>) -> Result<(), PtxError> {
        let line = self.line();
        if self.eat('@') {
            let negated = self.eat('!');
            let guard = self.word()?;
            let name = self.word()?;
            body.push(Statement::Instruction(self.instruction(Some((guard, negated)), name, line)?));
            return Ok(());
        }
        let word = self.word()?;
        match word.as_str() {
            ".reg" => self.registers(body)?,
            ".loc" | ".file" => self.skip_line(line),
            ".pragma" => self.skip_past(';')?,
            _ => {
                if let Some(space) = space_of(&word) {
                    body.extend(self.variables(space, Linkage::Internal)?.into_iter().map(Statement::Variable));
                    self.expect(';')?;
                } else if self.eat(':') {
                    body.push(self.labelled(word)?);
                } else {
                    body.push(Statement::Instruction(self.instruction(None, word, line)?));
                }
            }
        }
        Ok(())
    }

    fn registers(&mut self, body: &mut Vec<Statement>) -> Result<(), PtxError> {
        let word = self.word()?;
        let Some(register) = word.strip_prefix('.').and_then(Type::parse) else {
            return Err(self.error(format!("unknown type {word}")));
        };
        loop {
            let name = self.word()?;
            if self.eat('<') {
                let number = self.integer()?;
                if number > MAX_REGISTERS {
                    return Err(self.error(format!("{number} registers")));
                }
                self.expect('>')?;
                body.push(Statement::RegisterRange(register, name, number as u32));
            } else {
                body.push(Statement::Registers(register, vec![name]));
            }
            if !self.eat(',') {
                return self.expect(';');
            }
        }
    }

    /// Parses what follows a label.
    fn labelled(&mut self, label: String) -> Result<Statement, PtxError> {
        if self.eat_word(".branchtargets") || self.eat_word(".calltargets") {
            let mut targets = Vec::new();
            loop {
                targets.push(self.word()?);
                if !self.eat(',') {
                    self.expect(';')?;
                    return Ok(Statement::Targets(label, targets));
                }
            }
        }
        if self.eat_word(".callprototype") {
            let results = self.parameters()?;
            self.word()?;
            let parameters = self.parameters()?;
            self.eat_word(".noreturn");
            self.expect(';')?;
            return Ok(Statement::Prototype(label, Prototype { results, parameters }));
        }
        Ok(Statement::Label(label))
    }

    fn instruction(&mut self, guard: Option<(String, bool)>, name: String, line: u32) -> Result<Instruction, PtxError> {
        let mut operands = Vec::new();
        if !self.eat(';') {
            loop {
                operands.push(self.operand()?);
                if !self.eat(',') {
                    break;
                }
            }
            self.expect(';')?;
        }
        Ok(Instruction { guard, name, operands, line })
    }

    fn operand(&mut self) -> Result<Operand, PtxError> {
        if self.eat('{') {
            return Ok(Operand::Vector(self.operands_until('}')?));
        }
        if self.eat('(') {
            return Ok(Operand::List(self.operands_until(')')?));
        }
        if self.eat('[') {
            return self.address();
        }
        let first = self.simple()?;
        if self.eat('|') {
            return Ok(Operand::Pair(Box::new(first), Box::new(self.simple()?)));
        }
        Ok(first)
    }

    fn operands_until(&mut self, end: char) -> Result<Vec<Operand>, PtxError> {
        let mut operands = Vec::new();
        while !self.eat(end) {
            operands.push(self.simple()?);
            if !self.eat(',') && !self.is_mark(end) {
                return self.expected(&format!("`,` or `{end}`"));
            }
        }
        Ok(operands)
    }

    /// Parses an operand without parts.
    fn simple(&mut self) -> Result<Operand, PtxError> {
        if self.eat('!') {
            return Ok(Operand::Not(self.word()?));
        }
        let negative = self.eat('-');
        let operand = match self.peek().cloned() {
            Some(Token::Integer(value)) => Operand::Integer(if negative { value.wrapping_neg() } else { value }),
            Some(Token::Single(bits)) => Operand::Single(if negative { bits ^ 0x8000_0000 } else { bits }),
            Some(Token::Double(value)) => Operand::Double(if negative { -value } else { value }),
            Some(Token::Word(word)) if !negative => {
                self.next += 1;
                return Ok(match self.offset(&word)? {
                    None if word == "_" => Operand::Sink,
                    None => Operand::Symbol(word),
                    Some(offset) => Operand::Sum(word, offset),
                });
            }
            _ => return self.expected("an operand"),
        };
        self.next += 1;
        Ok(operand)
    }

    /// Parses what follows a name: `+4`, `+-4`, `-4`, the element `[2]` of an array, or nothing.
    fn offset(&mut self, name: &str) -> Result<Option<i64>, PtxError> {
        if self.eat('[') {
            let Some(&bytes) = self.element_bytes.get(name) else {
                return Err(self.error(format!("{name} is not an array")));
            };
            let index = self.integer()?.cast_signed();
            self.expect(']')?;
            return Ok(Some(index.wrapping_mul(bytes.cast_signed())));
        }
        if self.eat('+') || self.is_mark('-') { Ok(Some(self.integer()?.cast_signed())) } else { Ok(None) }
    }

    fn address(&mut self) -> Result<Operand, PtxError> {
        let address = if let Some(Token::Word(word)) = self.peek().cloned() {
            self.next += 1;
            let offset = self.offset(&word)?.unwrap_or(0);
            Operand::Address(Some(word), offset)
        } else {
            Operand::Address(None, self.integer()?.cast_signed())
        };
        self.expect(']')?;
        Ok(address)
    }
}
