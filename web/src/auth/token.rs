//! Bearer tokens.

use std::fmt;

use subtle::ConstantTimeEq;
use thiserror::Error;

/// Bearer token, which grants permission.
#[derive(Clone)]
pub struct Token(Box<[u8]>);

/// Text that is no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a token is one line of {} to {} visible ASCII characters, as `openssl rand -hex 32` prints",
    Token::MIN_BYTES,
    Token::MAX_BYTES
)]
pub struct InvalidToken;

impl Token {
    /// Minimum length: shorter tokens could be guessed.
    pub const MIN_BYTES: usize = 16;
    /// Maximum length, which fits into a request's head.
    pub const MAX_BYTES: usize = 4096;

    /// Parses a token from the text of a file, which has one line.
    ///
    /// # Errors
    /// [`InvalidToken`].
    pub fn parse(text: &[u8]) -> Result<Self, InvalidToken> {
        let token = text.trim_ascii();
        let is_token = token.iter().all(u8::is_ascii_graphic);
        let is_length = (Self::MIN_BYTES..=Self::MAX_BYTES).contains(&token.len());
        if is_token && is_length { Ok(Self(token.into())) } else { Err(InvalidToken) }
    }

    /// Compares in a time that depends on the length only.
    pub(super) fn is(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(presented).into()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, Grant};

    #[test]
    fn a_token_is_one_line_of_at_least_16_visible_characters() {
        for good in ["0123456789abcdef", "0123456789abcdef\n", "  a+/=._~-0123456789\r\n"] {
            assert!(Token::parse(good.as_bytes()).is_ok(), "{good:?}");
        }
        let long = "x".repeat(4097);
        for bad in [
            "",
            "\n",
            "0123456789abcde\n",
            "two words of a token",
            "two-lines-of-\na-token",
            "gehe\u{ef}mgehe\u{ef}mgehe",
            &long,
        ] {
            assert!(Token::parse(bad.as_bytes()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_part_of_a_token_is_wrong() {
        let token = Token::parse(b"0123456789abcdef").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for wrong in ["", "0123456789abcde", "0123456789abcdef0", "1123456789abcdef", "0123456789abcdeF"] {
            assert!(!token.is(wrong.as_bytes()), "{wrong}");
        }
    }

    #[test]
    fn a_token_does_not_show_in_logs() {
        let access = Access::by_tokens([(Grant::Read, Token::parse(b"0123456789abcdef").unwrap())]);
        assert!(!format!("{access:?}").contains("0123"));
    }
}
