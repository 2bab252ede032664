//! Parser of PTX text.

mod body;
mod variable;

use std::collections::HashMap;

use crate::PtxError;
use crate::ast::{Contents, Declaration, Function, Linkage, Prototype, Space};
use crate::lex::{Located, Token, lex};

/// Parses PTX text.
pub(crate) fn parse(text: &str) -> Result<Contents, PtxError> {
    let mut parser = Parser { tokens: lex(text)?, next: 0, element_bytes: HashMap::new() };
    let mut contents = Contents::default();
    while !parser.at_end() {
        parser.item(&mut contents)?;
    }
    Ok(contents)
}

/// Cursor over tokens.
struct Parser {
    tokens: Vec<Located>,
    next: usize,
    /// Bytes of an element, of the variable that last had the name.
    element_bytes: HashMap<String, u64>,
}

impl Parser {
    fn at_end(&self) -> bool {
        self.next >= self.tokens.len()
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(token, _)| token)
    }

    fn line(&self) -> u32 {
        self.tokens.get(self.next).or(self.tokens.last()).map_or(1, |(_, line)| *line)
    }

    fn error(&self, reason: impl Into<String>) -> PtxError {
        PtxError { line: self.line(), reason: reason.into() }
    }

    fn expected<T>(&self, what: &str) -> Result<T, PtxError> {
        Err(self.error(match self.peek() {
            Some(token) => format!("expected {what}, found {token:?}"),
            None => format!("expected {what}, found the end"),
        }))
    }

    fn is_mark(&self, mark: char) -> bool {
        matches!(self.peek(), Some(Token::Mark(found)) if *found == mark)
    }

    fn eat(&mut self, mark: char) -> bool {
        let found = self.is_mark(mark);
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, mark: char) -> Result<(), PtxError> {
        if self.eat(mark) { Ok(()) } else { self.expected(&format!("`{mark}`")) }
    }

    fn peek_word(&self) -> Option<&str> {
        match self.peek() {
            Some(Token::Word(word)) => Some(word),
            _ => None,
        }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == Some(word);
        self.next += usize::from(found);
        found
    }

    fn word(&mut self) -> Result<String, PtxError> {
        match self.peek_word() {
            Some(word) => {
                let word = word.to_owned();
                self.next += 1;
                Ok(word)
            }
            None => self.expected("a word"),
        }
    }

    /// Takes an integer with an optional sign, wrapping to 64 bits.
    fn integer(&mut self) -> Result<u64, PtxError> {
        let negative = self.eat('-');
        match self.peek() {
            Some(&Token::Integer(value)) => {
                self.next += 1;
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            _ => self.expected("an integer"),
        }
    }

    fn skip_line(&mut self, line: u32) {
        while !self.at_end() && self.line() == line {
            self.next += 1;
        }
    }

    fn skip_past(&mut self, mark: char) -> Result<(), PtxError> {
        while !self.eat(mark) {
            if self.at_end() {
                return self.expected(&format!("`{mark}`"));
            }
            self.next += 1;
        }
        Ok(())
    }

    /// Parses what stands in module scope.
    fn item(&mut self, contents: &mut Contents) -> Result<(), PtxError> {
        if self.eat(';') {
            return Ok(());
        }
        let mut linkage = Linkage::Internal;
        loop {
            let line = self.line();
            let word = self.word()?;
            match word.as_str() {
                ".visible" => linkage = Linkage::Visible,
                ".extern" => linkage = Linkage::Extern,
                ".weak" | ".common" => linkage = Linkage::Weak,
                ".version" | ".address_size" => return self.header(&word, line),
                ".target" | ".file" | ".loc" => {
                    self.skip_line(line);
                    return Ok(());
                }
                ".pragma" => return self.skip_past(';'),
                ".section" => {
                    self.skip_past('{')?;
                    return self.skip_past('}');
                }
                ".entry" | ".func" => {
                    let function = self.function(word == ".entry", linkage)?;
                    contents.functions.push(function);
                    return Ok(());
                }
                _ => {
                    let Some(space) = space_of(&word) else {
                        self.next -= 1;
                        return Err(self.error(format!("unknown directive {word}")));
                    };
                    contents.variables.extend(self.variables(space, linkage)?);
                    return self.expect(';');
                }
            }
        }
    }

    fn header(&mut self, word: &str, line: u32) -> Result<(), PtxError> {
        if word == ".address_size" && self.integer()? != 64 {
            return Err(PtxError { line, reason: "addresses are not of 64 bits".to_owned() });
        }
        self.skip_line(line);
        Ok(())
    }

    fn function(&mut self, entry: bool, linkage: Linkage) -> Result<Function, PtxError> {
        let line = self.line();
        let results = if entry { Vec::new() } else { self.parameters()? };
        let name = self.word()?;
        let parameters = self.parameters()?;
        let mut function = Function {
            entry,
            linkage,
            name,
            prototype: Prototype { results, parameters },
            body: None,
            max_threads: None,
            line,
        };
        while !self.is_mark('{') && !self.eat(';') {
            self.function_directive(&mut function)?;
            if self.at_end() {
                return self.expected("a body");
            }
        }
        if self.is_mark('{') {
            function.body = Some(self.body()?);
        }
        Ok(function)
    }

    fn function_directive(&mut self, function: &mut Function) -> Result<(), PtxError> {
        let word = self.word()?;
        match word.as_str() {
            ".maxntid" | ".reqntid" => {
                let mut threads = 1u64;
                loop {
                    threads = threads.saturating_mul(self.integer()?);
                    if !self.eat(',') {
                        break;
                    }
                }
                function.max_threads = Some(u32::try_from(threads).unwrap_or(u32::MAX));
            }
            ".maxnreg" | ".minnctapersm" | ".maxnctapersm" => {
                self.integer()?;
            }
            ".noreturn" => {}
            ".pragma" => self.skip_past(';')?,
            _ => return Err(self.error(format!("unknown directive {word}"))),
        }
        Ok(())
    }

    /// Parses `(.param …, .param …)`, or nothing.
    fn parameters(&mut self) -> Result<Vec<Declaration>, PtxError> {
        let mut parameters = Vec::new();
        if !self.eat('(') {
            return Ok(parameters);
        }
        while !self.eat(')') {
            if !self.eat_word(".param") {
                return self.expected(".param (register parameters are not known)");
            }
            parameters.extend(self.variables(Space::Parameter, Linkage::Internal)?);
            if !self.eat(',') && !self.is_mark(')') {
                return self.expected("`,` or `)`");
            }
        }
        Ok(parameters)
    }
}

/// State space that a directive names.
fn space_of(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".const" => Space::Constant,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Parameter,
        _ => return None,
    })
}
