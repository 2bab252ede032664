//! An instruction's opcode, modifiers and operands.

use crate::PtxError;
use crate::ast::{Instruction, Operand};
use crate::types::Type;

/// Instruction whose modifiers are taken one by one: what is left in the end is not known.
pub(super) struct Form<'a> {
    name: &'a str,
    pub(super) opcode: &'a str,
    words: Vec<&'a str>,
    types: Vec<Type>,
    pub(super) operands: &'a [Operand],
    line: u32,
}

impl<'a> Form<'a> {
    pub(super) fn new(instruction: &'a Instruction) -> Self {
        let mut parts = instruction.name.split('.');
        let opcode = parts.next().unwrap_or_default();
        let mut words = Vec::new();
        let mut types = Vec::new();
        for part in parts {
            match Type::parse(part) {
                Some(found) => types.push(found),
                None => words.push(part),
            }
        }
        Self { name: &instruction.name, opcode, words, types, operands: &instruction.operands, line: instruction.line }
    }

    /// Takes a modifier, if it is there.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let position = self.words.iter().position(|&found| found == word);
        if let Some(position) = position {
            self.words.remove(position);
        }
        position.is_some()
    }

    /// Takes one of some modifiers.
    pub(super) fn take_one(&mut self, words: &[&'static str]) -> Option<&'static str> {
        words.iter().find(|word| self.take(word)).copied()
    }

    /// Takes all of some modifiers, which mean nothing here.
    pub(super) fn ignore(&mut self, words: &[&str]) {
        self.words.retain(|word| !words.contains(word));
    }

    /// Takes the one modifier that has to be there.
    pub(super) fn require(&mut self, words: &[&'static str]) -> Result<&'static str, PtxError> {
        self.take_one(words).ok_or_else(|| self.unknown())
    }

    /// The only type.
    pub(super) fn only_type(&self) -> Result<Type, PtxError> {
        self.types::<1>().map(|[only]| only)
    }

    /// The types, as many as are expected.
    pub(super) fn types<const N: usize>(&self) -> Result<[Type; N], PtxError> {
        <[Type; N]>::try_from(self.types.as_slice()).map_err(|_| self.unknown())
    }

    /// The last type, by which the instruction's family is known.
    pub(super) fn last_type(&self) -> Option<Type> {
        self.types.last().copied()
    }

    /// The operands, as many as are expected, once all modifiers are taken.
    pub(super) fn operands<const N: usize>(&self) -> Result<&'a [Operand; N], PtxError> {
        if !self.words.is_empty() {
            return Err(self.unknown());
        }
        <&[Operand; N]>::try_from(self.operands).map_err(|_| self.error("number of operands"))
    }

    /// Error for a modifier that is left.
    pub(super) fn finish(&self) -> Result<(), PtxError> {
        if self.words.is_empty() { Ok(()) } else { Err(self.unknown()) }
    }

    pub(super) fn unknown(&self) -> PtxError {
        self.error("unknown instruction")
    }

    pub(super) fn error(&self, reason: &str) -> PtxError {
        PtxError { line: self.line, reason: format!("{reason}: {}", self.name) }
    }
}
