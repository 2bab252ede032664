//! Tokens of PTX text.

use crate::PtxError;
use crate::machine::LANES;

/// Token.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// Identifier, directive, opcode or special register, with its dots: `ld.global.f32`, `%tid.x`.
    Word(String),
    /// Integer literal, as its 64 bits.
    Integer(u64),
    /// `0f` literal: its bits.
    Single(u32),
    /// `0d` or decimal literal.
    Double(f64),
    /// String literal, without its quotes.
    Text(String),
    /// Any other character.
    Mark(char),
}

/// Token with its line, from 1.
pub(crate) type Located = (Token, u32);

/// Splits text into tokens. The text ends at a NUL character, as files that libcuda takes do.
pub(crate) fn lex(text: &str) -> Result<Vec<Located>, PtxError> {
    let text = text.split('\0').next().unwrap_or_default();
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while lexer.step()? {}
    Ok(lexer.tokens)
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    tokens: Vec<Located>,
}

impl<'a> Lexer<'a> {
    /// Takes one token or gap; false at the end.
    fn step(&mut self) -> Result<bool, PtxError> {
        let Some(first) = self.rest.chars().next() else { return Ok(false) };
        if first.is_whitespace() {
            self.take(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            let end = self.rest.find("*/").ok_or_else(|| self.error("comment without end"))?;
            self.take(end + 2);
        } else if let Some(body) = self.rest.strip_prefix('"') {
            let end = body.find('"').ok_or_else(|| self.error("string without end"))?;
            let line = self.line;
            let text = body.get(..end).unwrap_or_default().to_owned();
            self.take(end + 2);
            self.tokens.push((Token::Text(text), line));
        } else if first.is_ascii_digit() {
            let number = number_length(self.rest);
            let word = self.take(number);
            let token = number_token(word).ok_or_else(|| self.error(&format!("number {word}")))?;
            self.tokens.push((token, self.line));
        } else if is_word(first) || first == '.' {
            let length = word_length(self.rest);
            // `.reg.b32` is two words, as `.reg .b32` is; `ld.global` is one.
            let directive = self.rest.get(1..length).unwrap_or_default().find('.').map_or(length, |dot| dot + 1);
            let token = match self.take(if first == '.' { directive } else { length }) {
                "WARP_SZ" => Token::Integer(LANES as u64),
                word => Token::Word(word.to_owned()),
            };
            self.tokens.push((token, self.line));
        } else {
            self.take(first.len_utf8());
            self.tokens.push((Token::Mark(first), self.line));
        }
        Ok(true)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        self.line += taken.bytes().filter(|&byte| byte == b'\n').count() as u32;
        taken
    }

    fn error(&self, reason: &str) -> PtxError {
        PtxError { line: self.line, reason: reason.to_owned() }
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '$' | '%')
}

/// Length of a word; `::` belongs to it, `:` does not.
fn word_length(text: &str) -> usize {
    let mut length = 0;
    loop {
        let rest = text.get(length..).unwrap_or_default();
        match rest.chars().next() {
            Some(character) if is_word(character) || character == '.' => length += 1,
            Some(':') if rest.starts_with("::") => length += 2,
            _ => return length,
        }
    }
}

/// Length of a number: letters and digits, and in a decimal fraction the sign of its exponent.
fn number_length(text: &str) -> usize {
    let hexadecimal = text.len() > 1 && matches!(text.as_bytes().get(1), Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D'));
    let mut previous = ' ';
    let mut fraction = false;
    for (index, character) in text.char_indices() {
        let exponent_sign = fraction && matches!(previous, 'e' | 'E') && matches!(character, '+' | '-');
        let point = character == '.' && !hexadecimal;
        fraction |= point || (!hexadecimal && matches!(character, 'e' | 'E'));
        if !(character.is_ascii_alphanumeric() || point || exponent_sign) {
            return index;
        }
        previous = character;
    }
    text.len()
}

fn number_token(word: &str) -> Option<Token> {
    let prefixed = |letters: [&str; 2]| letters.iter().find_map(|letter| word.strip_prefix(letter));
    let integer =
        |digits: &str, radix| u64::from_str_radix(digits.trim_end_matches('U'), radix).ok().map(Token::Integer);
    if let Some(digits) = prefixed(["0f", "0F"]) {
        return u32::from_str_radix(digits, 16).ok().map(Token::Single);
    }
    if let Some(digits) = prefixed(["0d", "0D"]) {
        return u64::from_str_radix(digits, 16).ok().map(|bits| Token::Double(f64::from_bits(bits)));
    }
    if let Some(digits) = prefixed(["0x", "0X"]) {
        return integer(digits, 16);
    }
    if let Some(digits) = prefixed(["0b", "0B"]) {
        return integer(digits, 2);
    }
    if word.contains(['.', 'e', 'E']) {
        return word.parse().ok().map(Token::Double);
    }
    match word.strip_prefix('0') {
        Some(digits) if !digits.trim_end_matches('U').is_empty() => integer(digits, 8),
        _ => integer(word, 10),
    }
}
