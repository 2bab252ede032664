//! Where the daemon is.

use std::{
    fmt, io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    str::FromStr,
};

use ureq::http::Uri;

/// Where uvmd listens for those on its node, unless it is configured otherwise.
const SOCKET: &str = "/run/uvmd/uvmd.sock";
const URL: &str = "http://127.0.0.1:9477";

/// Where a daemon serves: `http://HOST[:PORT]`.
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

/// The daemon that is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Over TCP, where somebody said so.
    Url(BaseUrl),
    /// Over TCP at the usual port, as nobody said otherwise and there is no socket. Any program may have the port: it is told no token.
    UsualPort {
        /// The socket that would have been asked, had we been allowed to open it.
        shut_socket: Option<PathBuf>,
    },
    /// Over a Unix socket.
    Socket(PathBuf),
}

impl Place {
    /// What was asked for; else the socket if it can be opened, as it knows who asks.
    pub(crate) fn choose(url: Option<BaseUrl>, socket: Option<PathBuf>) -> Self {
        match (socket, url) {
            (Some(path), _) => Self::Socket(path),
            (None, Some(url)) => Self::Url(url),
            (None, None) => Self::usual(Path::new(SOCKET)),
        }
    }

    pub(super) fn usual(socket: &Path) -> Self {
        match UnixStream::connect(socket) {
            Ok(_) => Self::Socket(socket.to_owned()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::UsualPort { shut_socket: Some(socket.to_owned()) }
            }
            // None there, or left by a daemon that is gone.
            Err(_) => Self::UsualPort { shut_socket: None },
        }
    }

    /// Whether whoever is there may be told a token: somebody named the place, or the kernel says who it is.
    pub(crate) const fn may_be_told_tokens(&self) -> bool {
        matches!(self, Self::Url(_) | Self::Socket(_))
    }

    /// What the paths of requests are put behind. A socket has no host: any on loopback stands for it.
    pub(crate) fn base(&self) -> &str {
        match self {
            Self::Url(BaseUrl(url)) => url,
            Self::UsualPort { .. } => URL,
            Self::Socket(_) => "http://127.0.0.1",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Url(_) | Self::UsualPort { .. } => f.write_str(self.base()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::net::UnixListener};

    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_perhaps_a_port() {
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
    fn what_was_asked_for_is_asked() {
        let url = || Some("http://gpu-17".parse().unwrap());
        assert_eq!(Place::choose(url(), None).to_string(), "http://gpu-17");
        assert_eq!(Place::choose(url(), Some("/x.sock".into())).to_string(), "/x.sock");
    }

    #[test]
    fn a_socket_where_somebody_listens_goes_before_the_usual_url() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("uvmd.sock");
        assert_eq!(Place::usual(&path).to_string(), URL);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(Place::usual(&path), Place::Socket(path.clone()));
        drop(listener);
        assert_eq!(Place::usual(&path).to_string(), URL, "nobody listens any more");
        fs::remove_file(&path).unwrap();
    }
}
