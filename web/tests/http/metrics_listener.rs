//! Listener for metrics alone, over real sockets: routes, TLS, passwords, and their changes.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{self, JoinHandle, JoinSet},
    time::{sleep, timeout},
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
        version::{TLS12, TLS13},
    },
};
use web::{
    Denial, DenialSink, Node, Protection, Service, Tls, TlsFiles, TlsVersion, Users,
    server::{Limits, serve},
};

use crate::support::{always, counting, get, metrics, node};

/// Time limit beyond which an operation hangs.
const HANG_LIMIT: Duration = Duration::from_mins(2);
const BOTH: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];
/// `prometheus:secret`.
const RIGHT: &str = "Authorization: Basic cHJvbWV0aGV1czpzZWNyZXQ=\r\n";

struct Server {
    address: SocketAddr,
    service: Service,
    protection: Protection,
    task: JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Self::of(node(), Limits { head: HANG_LIMIT, ..Limits::default() }).await
    }

    async fn of(node: Node, limits: Limits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (service, protection) = (Service::new(node, always(counting())), Protection::default());
        let site = service.metrics_on(address, &protection);
        let task = tokio::spawn(serve(listener, site, limits, std::future::pending()));
        Self { address, service, protection, task }
    }

    /// Server with this protection.
    async fn serving(tls: Option<Tls>, users: Option<Users>) -> Self {
        let server = Self::start().await;
        server.protection.change(tls, users);
        server
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Head and body of a response in the clear.
    async fn request(&self, method: &str, path: &str, headers: &str) -> (String, String) {
        request(self.connect().await, method, path, headers).await
    }

    async fn status(&self, headers: &str) -> u16 {
        status(&self.request("GET", "/metrics", headers).await.0)
    }

    /// Connection over TLS with this client.
    async fn connect_tls(&self, client: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        let connector = TlsConnector::from(Arc::new(client));
        let name = ServerName::try_from("127.0.0.1").unwrap();
        timeout(HANG_LIMIT, connector.connect(name, self.connect().await)).await.unwrap()
    }

    /// Status of a scrape over TLS; `None` if the handshake fails.
    async fn scrape_tls(&self, client: ClientConfig) -> Option<u16> {
        let stream = self.connect_tls(client).await.ok()?;
        // In TLS 1.3, a client learns by its first read that its certificate is refused.
        Some(status(&try_request(stream, "GET", "/metrics", "").await?.0))
    }

    /// Sample of the API's own `/metrics`.
    async fn metric(&self, start: &str) -> String {
        let text = metrics(&self.service.on_tcp(self.address).into_router()).await;
        text.lines().find_map(|line| line.strip_prefix(start)).unwrap_or_else(|| panic!("{start} in {text}")).to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn try_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &str,
) -> Option<(String, String)> {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut response = Vec::new();
    timeout(HANG_LIMIT, stream.read_to_end(&mut response)).await.expect("no response came").ok()?;
    let text = String::from_utf8(response).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), body.to_owned()))
}

async fn request(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    headers: &str,
) -> (String, String) {
    try_request(stream, method, path, headers).await.unwrap()
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn users() -> Users {
    Users::new([("prometheus".to_owned(), bcrypt::hash("secret", 4).unwrap())]).unwrap()
}

/// Authority with a certificate for 127.0.0.1, or for a client.
struct Authority(CertifiedIssuer<'static, KeyPair>);

struct Issued {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate with the name of its issuer counts as self-signed to OpenSSL.
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self) -> Issued {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        Issued { certificate: params.signed_by(&key, &self.0).unwrap().pem(), key: key.serialize_pem() }
    }

    fn tls(&self, versions: &[TlsVersion], clients: Option<&Self>) -> Tls {
        let Issued { certificate, key } = self.issue();
        let clients = clients.map(|clients| clients.0.pem());
        let files = TlsFiles {
            certificates: certificate.as_bytes(),
            key: key.as_bytes(),
            client_authorities: clients.as_deref().map(str::as_bytes),
        };
        Tls::new(files, versions).unwrap()
    }

    /// Client that trusts this authority, with a certificate of another one.
    fn client(&self, versions: &[TlsVersion], own: Option<&Self>) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        let versions: Vec<_> = versions
            .iter()
            .map(|version| match version {
                TlsVersion::Tls12 => &TLS12,
                TlsVersion::Tls13 => &TLS13,
            })
            .collect();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(&versions).unwrap().with_root_certificates(roots);
        match own.map(Self::issue) {
            None => builder.with_no_client_auth(),
            Some(Issued { certificate, key }) => {
                let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
                builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap()
            }
        }
    }
}

#[tokio::test]
async fn metrics_are_those_of_the_api_and_there_is_nothing_else() {
    let server = Server::start().await;
    let (head, body) = server.request("GET", "/metrics", "").await;
    assert_eq!(status(&head), 200);
    assert!(head.to_lowercase().contains("content-type: text/plain; version=0.0.4"), "{head}");
    let router = server.service.on_tcp(server.address).into_router();
    let api = get(&router, "/metrics").await;
    let names = |text: &str| text.lines().filter(|line| line.starts_with("# ")).map(str::to_owned).collect::<Vec<_>>();
    assert!(body.contains("uvm_") && names(&body).len() > 50);
    // The second scrape has series about the first.
    assert!(names(&body).iter().all(|name| names(&api.text).contains(name)));

    let (head, body) = server.request("HEAD", "/metrics", "").await;
    assert_eq!((status(&head), body.as_str()), (200, ""));
    for path in ["/", "/api/v1/status", "/openapi.json", "/livez", "/readyz", "/page/page.js", "/metrics/"] {
        let (head, body) = server.request("GET", path, "").await;
        assert!(status(&head) == 404 && body.contains("/problems/not-found"), "{path} {head} {body}");
    }
    let (head, body) = server.request("POST", "/metrics", "Content-Length: 0\r\n").await;
    assert!(status(&head) == 405 && body.contains("takes GET and HEAD"), "{head} {body}");
    // A token of the API has no meaning here.
    assert_eq!(server.status("Authorization: Bearer 0123456789abcdef\r\n").await, 200);
    let (head, _) = request(server.connect().await, "GET", "http://evil.example/metrics", "").await;
    assert_eq!(status(&head), 421);
}

#[tokio::test]
async fn requests_are_counted_by_route_and_code() {
    let server = Server::serving(None, Some(users())).await;
    for (headers, expected) in [(RIGHT, 200), (RIGHT, 200), ("", 401)] {
        assert_eq!(server.status(headers).await, expected);
    }
    server.request("GET", "/api/v1/status", RIGHT).await;
    let count = async |route: &str, code: u16| {
        server.metric(&format!("uvmd_http_requests_total{{route=\"{route}\",code=\"{code}\"}} ")).await
    };
    assert_eq!(count("/metrics", 401).await, "1");
    assert_eq!(count("unmatched", 404).await, "1");
}

#[tokio::test]
async fn password_is_required_on_every_path_and_denials_are_reported() {
    let denials: Arc<Mutex<Vec<Denial>>> = Arc::default();
    let sink = Arc::clone(&denials);
    let denials_of = DenialSink::new(move |denial| sink.lock().unwrap().push(denial));
    let limits = Limits { head: HANG_LIMIT, ..Limits::default() };
    let server = Server::of(Node { denials: denials_of, ..node() }, limits).await;
    server.protection.change(None, Some(users()));
    let wrong = "Authorization: Basic cHJvbWV0aGV1czp3cm9uZw==\r\n";
    let unknown = "Authorization: Basic bm9ib2R5OnNlY3JldA==\r\n";
    let bearer = "Authorization: Bearer secret\r\n";
    for (headers, path, credential) in [
        ("", "/metrics", "none"),
        ("", "/api/v1/status", "none"),
        (wrong, "/metrics", "wrong_password"),
        (unknown, "/metrics", "wrong_password"),
        (bearer, "/metrics", "wrong_token"),
    ] {
        let (head, body) = server.request("GET", path, headers).await;
        assert!(status(&head) == 401 && body.contains("/problems/invalid-credentials"), "{head} {body}");
        assert!(head.to_lowercase().contains("www-authenticate: basic realm=\"uvmd\""), "{head}");
        let denial = denials.lock().unwrap().pop().unwrap();
        assert_eq!((denial.requester.credential.name(), denial.status), (credential, 401), "{headers}");
    }
    assert_eq!(server.metric("uvmd_auth_failures_total ").await, "2");
    // The answers to an unknown user and to a wrong password do not differ.
    let body = async |headers| server.request("GET", "/metrics", headers).await.1;
    assert_eq!(body(wrong).await, body(unknown).await);
    for _ in 0..3 {
        assert_eq!(server.status(RIGHT).await, 200);
    }
    assert_eq!(status(&server.request("GET", "/api/v1/status", RIGHT).await.0), 404);
}

#[tokio::test]
async fn new_users_replace_the_old_ones_at_once() {
    let server = Server::start().await;
    assert_eq!(server.status("").await, 200);
    server.protection.change(None, Some(users()));
    assert_eq!((server.status("").await, server.status(RIGHT).await), (401, 200));
    let other = ("prometheus".to_owned(), bcrypt::hash("other", 4).unwrap());
    server.protection.change(None, Some(Users::new([other]).unwrap()));
    assert_eq!(server.status(RIGHT).await, 401);
    server.protection.change(None, None);
    assert_eq!(server.status("").await, 200);
}

#[tokio::test]
async fn tls_serves_those_who_trust_it_and_nobody_in_the_clear() {
    let authority = Authority::new();
    let server = Server::serving(Some(authority.tls(&BOTH, None)), Some(users())).await;
    let stream = server.connect_tls(authority.client(&BOTH, None)).await.unwrap();
    let (head, body) = request(stream, "GET", "/metrics", RIGHT).await;
    assert!(status(&head) == 200 && body.contains("uvm_"), "{head}");
    assert_eq!(server.scrape_tls(authority.client(&BOTH, None)).await, Some(401));
    assert_eq!(server.scrape_tls(Authority::new().client(&BOTH, None)).await, None);
    assert_eq!(try_request(server.connect().await, "GET", "/metrics", RIGHT).await, None);
}

#[tokio::test]
async fn only_the_configured_versions_of_tls_are_spoken() {
    let (server, authority) = (Server::start().await, Authority::new());
    for versions in [&BOTH[..1], &BOTH[1..]] {
        server.protection.change(Some(authority.tls(versions, None)), None);
        for client in [&BOTH[..1], &BOTH[1..]] {
            let expected = (client == versions).then_some(200);
            assert_eq!(server.scrape_tls(authority.client(client, None)).await, expected, "{versions:?} {client:?}");
        }
    }
}

#[tokio::test]
async fn client_certificate_of_the_authority_is_required() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let server = Server::serving(Some(authority.tls(&BOTH, Some(&clients))), None).await;
    for version in [&BOTH[..1], &BOTH[1..]] {
        for (own, expected) in [(Some(&clients), Some(200)), (None, None), (Some(&authority), None)] {
            assert_eq!(server.scrape_tls(authority.client(version, own)).await, expected, "{version:?}");
        }
    }
}

#[tokio::test]
async fn replaced_certificate_is_in_effect_for_new_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let server = Server::serving(Some(old.tls(&BOTH, None)), None).await;
    let open = server.connect_tls(old.client(&BOTH, None)).await.unwrap();
    assert_eq!(server.scrape_tls(old.client(&BOTH, None)).await, Some(200));
    server.protection.change(Some(new.tls(&BOTH, None)), None);
    assert_eq!(server.scrape_tls(old.client(&BOTH, None)).await, None);
    assert_eq!(server.scrape_tls(new.client(&BOTH, None)).await, Some(200));
    assert_eq!(status(&request(open, "GET", "/metrics", "").await.0), 200, "an open connection stays");
}

#[tokio::test]
async fn slow_handshake_ends_and_is_counted() {
    let limits = Limits { head: Duration::from_millis(200), ..Limits::default() };
    let (server, authority) = (Server::of(node(), limits).await, Authority::new());
    server.protection.change(Some(authority.tls(&BOTH, None)), None);
    for begun in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut slow = server.connect().await;
        slow.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        // It may end with a reset.
        let _ = timeout(HANG_LIMIT, slow.read_to_end(&mut rest)).await.expect("it does not end");
    }
    assert_eq!(server.metric("uvmd_http_connections_closed_total{reason=\"handshake_timeout\"} ").await, "2");
}

#[tokio::test]
async fn handshakes_that_hang_take_the_places_of_their_peer_alone_and_are_displaced() {
    let limits = Limits { connections: 4, connections_of_peer: 2, head: HANG_LIMIT, ..Limits::default() };
    let (server, authority) = (Server::of(node(), limits).await, Authority::new());
    server.protection.change(Some(authority.tls(&BOTH, None)), None);
    let mut hanging = Vec::new();
    for _ in 0..8 {
        hanging.push(server.connect().await);
    }
    assert_eq!(server.scrape_tls(authority.client(&BOTH, None)).await, Some(200));
}

#[test]
fn files_that_are_no_tls_are_refused_with_a_reason() {
    let (authority, issued) = (Authority::new(), Authority::new().issue());
    let other = authority.issue();
    let new = |certificates: &str, key: &str, clients: Option<&str>| {
        let client_authorities = clients.map(str::as_bytes);
        let files = TlsFiles { certificates: certificates.as_bytes(), key: key.as_bytes(), client_authorities };
        Tls::new(files, &BOTH).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(new(&issued.certificate, &issued.key, None), Ok(()));
    for (certificates, key, clients, expected) in [
        ("", &*issued.key, None, "no certificate in PEM"),
        (&issued.key, &issued.key, None, "no certificate in PEM"),
        (&issued.certificate, &issued.certificate, None, "no private key in PEM"),
        (&issued.certificate, &other.key, None, "certificate and key are not accepted"),
        (&issued.certificate, &issued.key, Some(""), "no certificate of a client authority in PEM"),
    ] {
        let error = new(certificates, key, clients).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
        assert!(!error.contains("BEGIN"), "{error}");
    }
}

/// A real client, where there is one.
#[tokio::test]
async fn curl_scrapes_with_certificate_and_password() {
    if Command::new("curl").arg("--version").output().is_err() {
        println!("skipped: there is no curl");
        return;
    }
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let server = Server::serving(Some(authority.tls(&BOTH, None)), Some(users())).await;
    let trusted = folder.path().join("ca.pem");
    std::fs::write(&trusted, authority.0.pem()).unwrap();
    let url = format!("https://{}/metrics", server.address);
    for (password, status) in [("secret", "200"), ("wrong", "401")] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{http_code}", "--user"]);
        curl.arg(format!("prometheus:{password}")).arg("--cacert").arg(&trusted).arg(&url);
        let output = task::spawn_blocking(move || curl.output().unwrap()).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{output:?}");
    }
}

#[tokio::test]
async fn scrapers_are_served_beside_guesses_that_fill_all_places_and_the_queue() {
    let slow = |password: &str| bcrypt::hash(password, 10).unwrap();
    let users = [("prometheus", "secret"), ("other", "unknown yet")];
    let users = users.map(|(name, password)| (name.to_owned(), slow(password)));
    let server = Server::serving(None, Some(Users::new(users).unwrap())).await;
    assert_eq!(server.status(RIGHT).await, 200);

    let (mut guesses, address) = (JoinSet::new(), server.address);
    // More than the 48 places and the 64 of the queue, which all clients of this node share.
    for client in 0..128_u32 {
        guesses.spawn(async move {
            for guess in 0_u32.. {
                // `prometheus:` and a number.
                let password = format!("{:08}", client * 100_000 + guess);
                let encoded = BASE64_STANDARD.encode(format!("prometheus:{password}"));
                if let Ok(stream) = TcpStream::connect(address).await {
                    try_request(stream, "GET", "/metrics", &format!("Authorization: Basic {encoded}\r\n")).await;
                }
                sleep(Duration::from_millis(500)).await;
            }
        });
    }
    let rejected = "uvmd_http_requests_rejected_total{reason=\"passwords\"} ";
    let is_full = async {
        while server.metric(rejected).await.parse::<u64>().unwrap() < 100 {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(HANG_LIMIT, is_full).await.expect("the queue is not full");
    let scrape = async |headers: &str| {
        let (head, _) = try_request(server.connect().await, "GET", "/metrics", headers).await?;
        Some(status(&head))
    };
    let mut verified = Vec::new();
    for _ in 0..10 {
        verified.push(scrape(RIGHT).await);
    }
    assert_eq!(verified, [Some(200); 10]);
    let other = format!("Authorization: Basic {}\r\n", BASE64_STANDARD.encode("other:unknown yet"));
    let is_verified = async {
        while scrape(&other).await != Some(200) {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(HANG_LIMIT, is_verified).await.expect("the other scraper is kept out");
}
