//! Declarations of variables, with their initializers.

use super::Parser;
use crate::PtxError;
use crate::ast::{Declaration, Initial, Linkage, Space};
use crate::lex::Token;
use crate::types::Type;

/// Bytes of a variable at most: what a driver would refuse is an error here.
const MAX_VARIABLE_BYTES: u64 = 1 << 32;

impl Parser {
    /// Parses what follows a state space: `.align 4 .b8 name[16] = {1, 2}, …`.
    pub(super) fn variables(&mut self, space: Space, linkage: Linkage) -> Result<Vec<Declaration>, PtxError> {
        let mut align_bytes = 0;
        let mut managed = false;
        let mut vector = 1;
        let element = loop {
            let word = self.word()?;
            match word.as_str() {
                ".align" => align_bytes = self.integer()?,
                ".ptr" | ".global" | ".const" | ".shared" | ".local" => {}
                ".attribute" => {
                    while !self.eat(')') {
                        managed |= self.eat_word(".managed");
                        if self.at_end() {
                            return self.expected("`)`");
                        }
                        self.next += usize::from(!self.is_mark(')'));
                    }
                }
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                _ => match word.strip_prefix('.').and_then(Type::parse) {
                    Some(Type::Pred) | None => return Err(self.error(format!("unknown type {word}"))),
                    Some(element) => break element,
                },
            }
        };
        let mut variables = Vec::new();
        loop {
            while self
                .peek_word()
                .is_some_and(|word| matches!(word, ".ptr" | ".global" | ".const" | ".shared" | ".local"))
            {
                self.next += 1;
            }
            if self.eat_word(".align") {
                // Of what a pointer parameter points to.
                self.integer()?;
            }
            let natural = u64::from(element.bytes()) * vector;
            let mut variable = Declaration {
                space,
                linkage,
                line: self.line(),
                name: self.word()?,
                managed,
                align_bytes: align_bytes.max(natural),
                bytes: 0,
                initial: Vec::new(),
            };
            if !variable.align_bytes.is_power_of_two() || variable.align_bytes > 1 << 16 {
                return Err(self.error(format!("alignment {}", variable.align_bytes)));
            }
            self.shape(&mut variable, element, natural)?;
            self.element_bytes.insert(variable.name.clone(), natural);
            variables.push(variable);
            if space == Space::Parameter || !self.eat(',') {
                return Ok(variables);
            }
        }
    }

    /// Parses dimensions and initializer.
    fn shape(&mut self, variable: &mut Declaration, element: Type, element_bytes: u64) -> Result<(), PtxError> {
        let mut lengths = Vec::new();
        while self.eat('[') {
            lengths.push(if self.is_mark(']') { 0 } else { self.integer()? });
            self.expect(']')?;
        }
        let total = lengths.iter().try_fold(element_bytes, |bytes, &length| bytes.checked_mul(length));
        variable.bytes = total
            .filter(|&bytes| bytes <= MAX_VARIABLE_BYTES)
            .ok_or_else(|| self.error(format!("size of {}", variable.name)))?;
        if self.eat('=') {
            let mut initial = Initializer { parts: Vec::new(), bytes: 0 };
            if element_bytes != u64::from(element.bytes()) {
                lengths.push(element_bytes / u64::from(element.bytes()));
            }
            self.initializer(&mut initial, &lengths, element)?;
            if lengths.first() == Some(&0) {
                variable.bytes = initial.bytes;
            }
            if initial.bytes > variable.bytes {
                return Err(self.error(format!("initializer of {} is too long", variable.name)));
            }
            variable.initial = initial.parts;
        }
        Ok(())
    }

    /// Parses an initializer; its depth is that of the dimensions.
    fn initializer(&mut self, initial: &mut Initializer, lengths: &[u64], element: Type) -> Result<(), PtxError> {
        let Some((&length, inner)) = lengths.split_first() else {
            return self.initial_element(initial, element);
        };
        let begin = initial.bytes;
        if let Some(Token::Text(text)) = self.peek() {
            let bytes = text.clone().into_bytes();
            self.next += 1;
            initial.push(&bytes);
        } else {
            self.expect('{')?;
            while !self.eat('}') {
                if self.is_mark('{') || inner.is_empty() {
                    self.initializer(initial, inner, element)?;
                } else {
                    self.initial_element(initial, element)?;
                }
                if !self.eat(',') && !self.is_mark('}') {
                    return self.expected("`,` or `}`");
                }
            }
        }
        let inner_elements = inner.iter().try_fold(u64::from(element.bytes()), |bytes, &next| bytes.checked_mul(next));
        let wanted = inner_elements.and_then(|bytes| bytes.checked_mul(length)).unwrap_or(0);
        let written = initial.bytes - begin;
        if written < wanted {
            if wanted > MAX_VARIABLE_BYTES {
                return Err(self.error("size of an initializer"));
            }
            initial.push(&vec![0; (wanted - written) as usize]);
        }
        Ok(())
    }

    fn initial_element(&mut self, initial: &mut Initializer, element: Type) -> Result<(), PtxError> {
        let size = element.bytes() as usize;
        let negative = self.eat('-');
        let sign = |value: f64| if negative { -value } else { value };
        let bytes = match self.peek().cloned() {
            Some(Token::Integer(mask))
                if self.tokens.get(self.next + 1).is_some_and(|next| next.0 == Token::Mark('(')) =>
            {
                self.next += 2;
                self.initial_address(initial, mask.trailing_zeros() % 64, size)?;
                return self.expect(')');
            }
            Some(Token::Integer(value)) => {
                let value = if negative { value.wrapping_neg() } else { value };
                match element {
                    Type::F32 => (value.cast_signed() as f32).to_le_bytes().to_vec(),
                    Type::F64 => (value.cast_signed() as f64).to_le_bytes().to_vec(),
                    _ => value.to_le_bytes().iter().copied().chain([0; 8]).take(size).collect(),
                }
            }
            Some(Token::Single(bits)) if element.bytes() == 4 => {
                (if negative { bits ^ 0x8000_0000 } else { bits }).to_le_bytes().to_vec()
            }
            Some(Token::Double(value)) => match element {
                Type::F32 => (sign(value) as f32).to_le_bytes().to_vec(),
                Type::F64 => sign(value).to_le_bytes().to_vec(),
                _ => return self.expected("an integer"),
            },
            Some(Token::Word(_)) => return self.initial_address(initial, 0, size),
            _ => return self.expected("an initial value"),
        };
        self.next += 1;
        initial.push(&bytes);
        Ok(())
    }

    /// Parses `symbol`, `symbol+4` or `generic(symbol)+4`.
    fn initial_address(&mut self, initial: &mut Initializer, shift_bits: u32, bytes: usize) -> Result<(), PtxError> {
        let mut symbol = self.word()?;
        if symbol == "generic" && self.eat('(') {
            symbol = self.word()?;
            self.expect(')')?;
        }
        let offset = if self.eat('+') || self.is_mark('-') { self.integer()?.cast_signed() } else { 0 };
        initial.parts.push(Initial::Address { symbol, offset, shift_bits, bytes });
        initial.bytes += bytes as u64;
        Ok(())
    }
}

/// Initializer as it is parsed.
struct Initializer {
    parts: Vec<Initial>,
    bytes: u64,
}

impl Initializer {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(Initial::Bytes(last)) = self.parts.last_mut() {
            last.extend_from_slice(bytes);
        } else {
            self.parts.push(Initial::Bytes(bytes.to_vec()));
        }
    }
}
