//! Asks the daemon.

use std::{fmt, io, str::FromStr, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use ureq::{Agent, http::Uri};

use crate::text;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Thousands of processes are a few MiB.
const LONGEST_ANSWER_BYTES: u64 = 64 << 20;

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

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot reach uvmd at {url}: {reason}. Is it running there? Name another place with --url or UVMD_URL")]
    Unreachable { url: BaseUrl, reason: String },
    #[error("uvmd at {url} cannot answer: {detail}")]
    Refused { url: BaseUrl, detail: String },
    #[error("{url} does not answer as uvmd does: {reason}")]
    Foreign { url: BaseUrl, reason: String },
}

/// An answer, and the text it was read from.
pub(crate) struct Answer<T> {
    pub(crate) body: T,
    pub(crate) json: String,
}

/// The parts of an RFC 9457 problem that are for people.
#[derive(Deserialize)]
struct Problem {
    detail: String,
}

pub(crate) struct Client {
    agent: Agent,
    url: BaseUrl,
}

impl Client {
    pub(crate) fn new(url: BaseUrl) -> Self {
        let config = Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            // The daemon is on this node, or at the end of a tunnel: never behind the proxy that the environment names for the Internet.
            .proxy(None)
            .build();
        Self { agent: config.into(), url }
    }

    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Answer<T>, Error> {
        let mut response = self.agent.get(format!("{}{path}", self.url)).call().map_err(|error| self.failed(error))?;
        let body = response.body_mut().with_config().limit(LONGEST_ANSWER_BYTES).read_to_string();
        let json = body.map_err(|error| self.failed(error))?;
        if !response.status().is_success() {
            let url = self.url.clone();
            return Err(match serde_json::from_str(&json) {
                Ok(Problem { detail }) => Error::Refused { url, detail: text::printable(&detail).into_owned() },
                Err(_) => self.foreign(format!("status {}", response.status())),
            });
        }
        match serde_json::from_str(&json) {
            Ok(body) => Ok(Answer { body, json }),
            Err(error) => Err(self.foreign(unexpected(&error))),
        }
    }

    fn failed(&self, error: ureq::Error) -> Error {
        let reason = match error {
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
                return self.foreign("not text".to_owned());
            }
            ureq::Error::Io(error) => sys::reason(&error),
            ureq::Error::HostNotFound => "there is no such host".to_owned(),
            ureq::Error::ConnectionFailed => "no connection".to_owned(),
            ureq::Error::Timeout(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
            other => return self.foreign(text::printable(&other.to_string()).into_owned()),
        };
        Error::Unreachable { url: self.url.clone(), reason }
    }

    fn foreign(&self, reason: String) -> Error {
        Error::Foreign { url: self.url.clone(), reason }
    }
}

/// What is wrong with an answer that is not what was asked for.
fn unexpected(error: &serde_json::Error) -> String {
    let reason = text::printable(&error.to_string()).into_owned();
    // Figures that it does not tell must not be shown as 0.
    if reason.starts_with("missing field") {
        return format!("{reason}; if it is uvmd, it is older than this uvmctl: restart it after an upgrade");
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_scheme_a_host_and_perhaps_a_port() {
        for good in ["http://127.0.0.1:9477", "http://gpu-17/", "http://[::1]:1"] {
            assert_eq!(good.parse::<BaseUrl>().unwrap().to_string(), good.trim_end_matches('/'));
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
}
