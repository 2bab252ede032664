//! Token for read or write permission.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ureq::http::HeaderValue;

/// Reason why a file yields no token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot read the token file {}: {}", path.display(), sys::reason(source))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token file {} holds no token: one line of visible ASCII characters is expected", path.display())]
    NoToken { path: PathBuf },
}

/// Token with the path of its file.
pub(crate) struct TokenFile {
    path: PathBuf,
    bearer: HeaderValue,
}

impl TokenFile {
    pub(crate) fn read(path: PathBuf) -> Result<Self, Error> {
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(Error::Unreadable { path, source }),
        };
        let token = text.trim();
        let is_token = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        match HeaderValue::try_from(format!("Bearer {token}")) {
            Ok(mut bearer) if is_token => {
                bearer.set_sensitive(true);
                Ok(Self { path, bearer })
            }
            _ => Err(Error::NoToken { path }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Value of the header `Authorization`.
    pub(crate) const fn bearer(&self) -> &HeaderValue {
        &self.bearer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<TokenFile, Error> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, text).unwrap();
        TokenFile::read(path)
    }

    #[test]
    fn a_token_is_one_line() {
        assert_eq!(read("s3cret\n").unwrap().bearer(), "Bearer s3cret");
        for bad in ["", "\n", "two words", "two\nlines", "gehe\u{ef}m"] {
            assert!(matches!(read(bad), Err(Error::NoToken { .. })), "{bad:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = TokenFile::read("/nonexistent/token".into()).err().unwrap().to_string();
        assert!(error.starts_with("cannot read the token file /nonexistent/token: "), "{error}");
    }
}
