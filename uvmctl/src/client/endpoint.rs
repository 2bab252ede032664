//! Endpoints of the daemon.

use std::{
    fmt, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    str::FromStr,
};

use ureq::http::Uri;

/// Default socket of uvmd.
const SOCKET: &str = "/run/uvmd/uvmd.sock";
const URL: &str = "http://127.0.0.1:9477";

/// Base URL of a daemon: `http://HOST[:PORT]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl(String);

impl FromStr for BaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected http://HOST[:PORT]".to_owned();
        let uri = Uri::from_str(text).map_err(|_| expected())?;
        let authority = uri.authority().ok_or_else(expected)?;
        let bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if uri.scheme_str() == Some("http") && bare { Ok(Self(format!("http://{authority}"))) } else { Err(expected()) }
    }
}

/// Endpoint of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// TCP at an explicit URL.
    Url(BaseUrl),
    /// TCP at the default port, without an explicit URL or a usable socket. Any program may own the
    /// port, so it receives no token.
    DefaultPort {
        /// Default socket, if permission to open it was denied.
        denied_socket: Option<PathBuf>,
    },
    /// Unix socket.
    Socket(PathBuf),
}

impl Endpoint {
    /// Explicit endpoint, or else the default socket if it can be opened: a socket identifies its
    /// clients.
    pub(crate) fn choose(url: Option<BaseUrl>, socket: Option<PathBuf>) -> Self {
        match (socket, url) {
            (Some(path), _) => Self::Socket(path),
            (None, Some(url)) => Self::Url(url),
            (None, None) => Self::by_default(Path::new(SOCKET)),
        }
    }

    pub(super) fn by_default(socket: &Path) -> Self {
        match UnixStream::connect(socket) {
            Ok(_) => Self::Socket(socket.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::DefaultPort { denied_socket: Some(socket.to_owned()) }
            }
            // No socket, or a stale one of a daemon that has exited.
            Err(_) => Self::DefaultPort { denied_socket: None },
        }
    }

    /// Whether the endpoint may receive tokens: it was named explicitly, or the kernel identifies
    /// its server.
    pub(crate) const fn may_receive_tokens(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Socket(_))
    }

    /// Prefix of request paths. For a socket, which has no host, a loopback address.
    pub(crate) fn base(&self) -> &str {
        match self {
            Self::Url(BaseUrl(url)) => url,
            Self::DefaultPort { .. } => URL,
            Self::Socket(_) => "http://127.0.0.1",
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Url(_) | Self::DefaultPort { .. } => f.write_str(self.base()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn a_url_has_a_scheme_a_host_and_an_optional_port() {
        for good in ["http://127.0.0.1:9477", "http://gpu-17/", "http://[::1]:1"] {
            assert_eq!(good.parse::<BaseUrl>().unwrap().0, good.trim_end_matches('/'));
        }
        for bad in [
            "",
            "127.0.0.1:9477",
            "https://gpu-17",
            "http://",
            "http://gpu-17/x",
            "http://gpu-17?x",
            "ftp://gpu-17",
            "a b",
        ] {
            assert!(bad.parse::<BaseUrl>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_explicit_endpoint_is_used() {
        let url = || Some("http://gpu-17".parse().unwrap());
        assert_eq!(Endpoint::choose(url(), None).to_string(), "http://gpu-17");
        assert_eq!(Endpoint::choose(url(), Some("/x.sock".into())).to_string(), "/x.sock");
    }

    #[test]
    fn a_listening_socket_has_precedence_over_the_default_url() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("uvmd.sock");
        assert_eq!(Endpoint::by_default(&path).to_string(), URL);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Endpoint::by_default(&path), Endpoint::Socket(path.clone()));
        drop(listener);
        assert_eq!(Endpoint::by_default(&path).to_string(), URL, "nobody listens any more");
        fs::remove_file(&path).unwrap();
    }
}
