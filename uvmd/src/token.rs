//! Files of the tokens that grant permissions.

use std::{path::PathBuf, time::Duration};

use anyhow::anyhow;
use config::{Auth, value::AbsolutePath};
use tokio::{
    task::{self, JoinHandle},
    time,
};
use web::{Access, Grant, Token};

use crate::admin_file;

/// Interval of checks: the maximum delay of a token's removal.
const EVERY: Duration = Duration::from_secs(1);

/// File of a token, and its permitted mode.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    /// Permission of the token.
    grant: Grant,
    path: PathBuf,
    group_readable: bool,
}

impl TokenFile {
    const fn option(&self) -> &'static str {
        match self.grant {
            Grant::Read => "auth.token_file",
            Grant::Write => "auth.write_token_file",
        }
    }

    /// Reads the token, unless other users may know it.
    fn read(&self) -> anyhow::Result<Token> {
        self.try_read().map_err(|error| anyhow!("{}: {}: {error}", self.option(), self.path.display()))
    }

    fn try_read(&self) -> anyhow::Result<Token> {
        // With room for line ends.
        let text = admin_file::read_secret(&self.path, 2 * Token::MAX_BYTES as u64, self.group_readable)?;
        Ok(Token::parse(&text)?)
    }

    /// Keeps the token in effect equal to the file, for ever. While the file is invalid, no token
    /// is: it may have been removed.
    async fn follow(self, first: Token, access: Access) {
        let mut known = Some(first);
        let mut looks = time::interval(EVERY);
        loop {
            looks.tick().await;
            let file = self.clone();
            let read = task::spawn_blocking(move || file.read()).await;
            let token = match read {
                Ok(Ok(token)) => Some(token),
                Ok(Err(error)) => {
                    if known.is_some() {
                        tracing::warn!("a token is not in effect until this is fixed: {error}");
                    }
                    None
                }
                // The runtime ends, or the check panicked: a removed token must not stay valid.
                Err(_) => return access.change(self.grant, None),
            };
            if token != known {
                if token.is_some() {
                    tracing::info!("the token of {} has changed", self.path.display());
                }
                access.change(self.grant, token.clone());
                known = token;
            }
        }
    }
}

/// Tokens of the files.
pub(crate) struct Found(Vec<(TokenFile, Token)>);

/// Reads the files. May wait for a disk.
///
/// # Errors
/// If one of them has no token, or other users may know it.
pub(crate) fn read(auth: &Auth) -> anyhow::Result<Found> {
    let Auth { token_file, write_token_file, token_file_group_readable } = auth;
    let mut found = Vec::new();
    for (grant, file) in [(Grant::Read, token_file), (Grant::Write, write_token_file)] {
        let Some(AbsolutePath(path)) = file else { continue };
        let file = TokenFile { grant, path: path.clone(), group_readable: *token_file_group_readable };
        let token = file.read()?;
        found.push((file, token));
    }
    Ok(Found(found))
}

/// Read and write permission by token, in addition to the permissions of the socket. The tokens are
/// in files, which are followed.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    access: Access,
    followers: Vec<JoinHandle<()>>,
}

impl Tokens {
    /// Permissions of the tokens.
    pub(crate) fn access(&self) -> Access {
        self.access.clone()
    }

    /// Replaces the tokens by these, and follows their files.
    pub(crate) async fn follow(&mut self, Found(found): Found) {
        for follower in self.followers.drain(..) {
            follower.abort();
            // It changes nothing after this.
            let _ = follower.await;
        }
        for grant in [Grant::Read, Grant::Write] {
            match found.iter().find(|(file, _)| file.grant == grant) {
                Some((_, token)) => self.access.change(grant, Some(token.clone())),
                None => self.access.forget(grant),
            }
        }
        for (file, token) in found {
            self.followers.push(tokio::spawn(file.follow(token, self.access.clone())));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, Permissions},
        os::unix::fs::PermissionsExt,
    };

    use super::*;

    const TOKEN: &str = "0123456789abcdef\n";

    fn read(text: &str, mode: u32, group_readable: bool) -> Result<Token, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        TokenFile { grant: Grant::Read, path, group_readable }.read().map_err(|error| error.to_string())
    }

    #[test]
    fn a_token_that_others_may_read_or_change_is_refused() {
        for (mode, group_readable, is_fine) in [
            (0o600, false, true),
            (0o400, false, true),
            (0o640, false, false),
            (0o640, true, true),
            (0o440, true, true),
            (0o660, true, false),
            (0o644, true, false),
            (0o604, false, false),
            (0o602, true, false),
        ] {
            let read = read(TOKEN, mode, group_readable);
            assert_eq!(read.is_ok(), is_fine, "{mode:o} {group_readable} {read:?}");
            assert!(read.err().is_none_or(|error| error.contains(&format!("mode {mode:o}"))));
        }
    }

    #[test]
    fn invalid_token_is_rejected_and_not_shown() {
        let error = read("sekrit\n", 0o600, false).unwrap_err();
        assert!(error.contains("16 to 4096 visible") && !error.contains("sekrit"), "{error}");
        assert!(read(&"x".repeat(10_000), 0o600, false).is_err());
    }

    #[test]
    fn fifo_instead_of_a_token_file_is_rejected_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&pipe).status().unwrap().success());
        for path in [pipe, folder.path().to_owned(), folder.path().join("none")] {
            let error = TokenFile { grant: Grant::Read, path: path.clone(), group_readable: false }
                .read()
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("auth.token_file: {}: ", path.display())), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn new_token_files_replace_the_followed_ones() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, token: &str| {
            let path = folder.path().join(name);
            fs::write(&path, token).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            Some(AbsolutePath(path))
        };
        let (first, second) = (file("first", TOKEN), file("second", "fedcba9876543210"));
        let mut tokens = Tokens::default();
        let access = tokens.access();
        tokens.follow(super::read(&Auth { token_file: first, ..Auth::default() }).unwrap()).await;
        assert_eq!(access.grant(TOKEN.trim().as_bytes()), Some(Grant::Read));
        tokens.follow(super::read(&Auth { write_token_file: second, ..Auth::default() }).unwrap()).await;
        assert_eq!(access.grant(b"fedcba9876543210"), Some(Grant::Write));
        for _ in 0..5 {
            assert_eq!(access.grant(TOKEN.trim().as_bytes()), None, "nobody follows the first any more");
            time::sleep(EVERY).await;
        }
        tokens.follow(super::read(&Auth::default()).unwrap()).await;
        assert_eq!(access.grant(b"fedcba9876543210"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn removed_or_changed_token_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, TOKEN).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let file = TokenFile { grant: Grant::Read, path: path.clone(), group_readable: false };
        let first = file.read().unwrap();
        let access = Access::by_tokens([(Grant::Read, first.clone())]);
        let followed = tokio::spawn(file.follow(first, access.clone()));
        let is = async |token: &[u8]| {
            // Time advances while a thread reads the file.
            for _ in 0..100 {
                time::sleep(EVERY).await;
                if access.grant(token).is_some() {
                    return true;
                }
            }
            false
        };
        fs::write(&path, "fedcba9876543210").unwrap();
        assert!(is(b"fedcba9876543210").await);
        assert_eq!(access.grant(TOKEN.trim().as_bytes()), None);
        fs::remove_file(&path).unwrap();
        while access.grant(b"fedcba9876543210").is_some() {
            time::sleep(EVERY).await;
        }
        followed.abort();
    }
}
