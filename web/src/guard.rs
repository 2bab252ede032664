//! Checks of a request's `Host` and origin, and headers that restrict browsers.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, Uri, Version, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::{
    hosts::Hosts,
    problem::{Kind, Problem},
    settings::Settings,
};

/// Check of requests to one listener.
#[derive(Clone, Debug)]
pub(crate) enum Guard {
    /// A Unix socket, which no browser reaches: any `Host`.
    Socket,
    /// A TCP address, with the configured names.
    Tcp(SocketAddr, Settings),
}

impl Guard {
    pub(crate) const fn tcp(listen: SocketAddr, settings: Settings) -> Self {
        Self::Tcp(listen, settings)
    }

    /// Current rule for `Host`.
    fn rule(&self) -> HostRule {
        match self {
            Self::Socket => HostRule::Any,
            Self::Tcp(listen, settings) => HostRule::for_listener(*listen, &settings.hosts()),
        }
    }
}

/// Values of `Host` that a listener accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostRule {
    /// Any name, on a Unix socket.
    Any,
    /// Names of the loopback interface, on a loopback address.
    Loopback,
    /// These names, on other addresses.
    Names(Arc<Hosts>),
}

impl HostRule {
    fn for_listener(listen: SocketAddr, hosts: &Arc<Hosts>) -> Self {
        match &**hosts {
            Hosts::OfMachine(_) if listen.ip().is_loopback() => Self::Loopback,
            _ => Self::Names(Arc::clone(hosts)),
        }
    }

    /// Whether a request may have this `Host`. Any port is accepted, since tunnels forward from
    /// others.
    fn allows(&self, authority: &Authority) -> bool {
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        match (self, address) {
            (Self::Any, _) | (Self::Names(_), Ok(_)) => true,
            (Self::Loopback, Ok(ip)) => ip.is_loopback(),
            (_, Err(_)) if name.eq_ignore_ascii_case("localhost") => true,
            (Self::Loopback, Err(_)) => false,
            (Self::Names(hosts), Err(_)) => hosts.has(name),
        }
    }

    /// Description of the accepted names.
    const fn names(&self) -> &'static str {
        match self {
            Self::Any => "any name",
            Self::Loopback => "127.0.0.1, [::1] or localhost, since it listens on loopback only",
            Self::Names(_) => "its address, this machine's name or a name of http.hosts in its configuration",
        }
    }
}

pub(crate) async fn check_host(State(guard): State<Guard>, request: Request, next: Next) -> Result<Response, Problem> {
    let rule = guard.rule();
    match requested_host(request.uri(), request.headers())? {
        Some(host) if !rule.allows(&host) => {
            let detail = format!("this service accepts {} as Host, not {host}", rule.names());
            Err(Problem::new(Kind::UnknownHost, detail))
        }
        // HTTP/1.0 has no Host, and no browser speaks it.
        None if request.version() != Version::HTTP_10 => Err(bad_host("the request has no Host")),
        _ => Ok(next.run(request).await),
    }
}

/// Rejects a change that a page of another site requests through a visitor's browser. Browsers name
/// the origin of each request with an unsafe method; other programs name none.
pub(crate) async fn check_origin(request: Request, next: Next) -> Result<Response, Problem> {
    if request.method().is_safe() {
        return Ok(next.run(request).await);
    }
    let headers = request.headers();
    let host = requested_host(request.uri(), headers)?;
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let is_own = |origin: &HeaderValue| {
        let site = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let authority = site.and_then(|(_, authority)| authority.parse::<Authority>().ok());
        authority.is_some() && authority == host
    };
    let is_cross_site = headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none");
    if is_cross_site || !origins.all(is_own) {
        let detail = "a page of another site requested this change, through a visitor's browser";
        return Err(Problem::new(Kind::ForeignOrigin, detail.to_owned()));
    }
    Ok(next.run(request).await)
}

/// Host of a request, as in RFC 9112, 3.2: exactly one well-formed `Host`; the authority of the
/// target takes precedence.
fn requested_host(uri: &Uri, headers: &HeaderMap) -> Result<Option<Authority>, Problem> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad_host("the request has more than one Host"));
    }
    let host = host.map(|host| Authority::try_from(host.as_bytes())).transpose();
    let host = host.map_err(|_| bad_host("the request's Host is not HOST or HOST:PORT"))?;
    Ok(uri.authority().cloned().or(host))
}

fn bad_host(detail: &str) -> Problem {
    Problem::new(Kind::InvalidHost, detail.to_owned())
}

/// Headers of every response: the page loads only from this service and runs in no frame, and no
/// cache stores anything.
const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        ),
    ),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
];

pub(crate) async fn set_headers(mut response: Response) -> Response {
    response.headers_mut().extend(HEADERS);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: &str = "0.0.0.0:9477";

    fn allows(listen: &str, hosts: &Hosts, host: &str) -> bool {
        HostRule::for_listener(listen.parse().unwrap(), &Arc::new(hosts.clone())).allows(&host.parse().unwrap())
    }

    fn named(name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    #[test]
    fn a_loopback_listener_accepts_loopback_names_only() {
        let hosts = Hosts::OfMachine(named("node7"));
        for listen in ["127.0.0.1:9477", "[::1]:9477"] {
            for host in ["127.0.0.1:9477", "127.0.0.1", "localhost", "LOCALHOST:80", "[::1]:9477", "127.8.8.8"] {
                assert!(allows(listen, &hosts, host), "{host}");
            }
            for host in
                ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "node7"]
            {
                assert!(!allows(listen, &hosts, host), "{host}");
            }
        }
    }

    #[test]
    fn another_listener_accepts_addresses_and_the_machines_name() {
        for own in ["node7", "node7.example.org", "NODE7.example.org"] {
            let hosts = Hosts::OfMachine(named(own));
            for host in ["10.0.0.1:9477", "[fd00::1]", "localhost:1", "node7", "Node7:9477", own] {
                assert!(allows(OPEN, &hosts, host), "{own} {host}");
            }
            for host in ["evil.example", "node", "node77", "node7.evil.example", "evil.node7", "10.0.0.1.evil.example"]
            {
                assert!(!allows(OPEN, &hosts, host), "{own} {host}");
            }
        }
        // The kernel's short name, and the resolver's canonical one.
        let both = Hosts::OfMachine(vec!["node7".to_owned(), "node7.example.org".to_owned()]);
        for (host, is_own) in [
            ("node7:9477", true),
            ("node7.example.org:9477", true),
            ("node7.example.com", false),
            ("node7.example", false),
        ] {
            assert_eq!(allows(OPEN, &both, host), is_own, "{host}");
        }
        assert!(!allows(OPEN, &Hosts::default(), "node7") && allows(OPEN, &Hosts::default(), "10.0.0.1"));
    }

    #[test]
    fn every_listener_accepts_configured_names_and_no_others() {
        let hosts = Hosts::Only(named("gpu.example.org"));
        for listen in ["127.0.0.1:9477", OPEN] {
            for host in ["gpu.example.org:80", "GPU.example.org.", "localhost", "10.0.0.1"] {
                assert!(allows(listen, &hosts, host), "{host}");
            }
            for host in ["gpu", "gpu.example.com", "a.gpu.example.org", "evil.example"] {
                assert!(!allows(listen, &hosts, host), "{host}");
            }
        }
    }
}
