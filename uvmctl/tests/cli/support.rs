//! Test servers, and runs of the command line.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex, OnceLock},
    thread,
    time::{Duration, SystemTime},
};

use model::{
    Access, Cause, Counters, DriverInfo, Gpu, GpuKey, GpuUuid, ProbeStatus, Process, ProcessId, Snapshot, SourceState,
    SourceStatus,
};
use web::{
    Node, Service, Snapshots, Token,
    server::{Limits, serve},
};

pub(crate) fn uvmctl(url: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvmctl"));
    command
        .env("UVMD_URL", url)
        .env("UVMD_TOKEN_FILE", token_file())
        .env_remove("NO_COLOR")
        .env_remove("UVMD_SOCKET")
        .env("http_proxy", "http://192.0.2.1:1")
        .env("ALL_PROXY", "http://192.0.2.1:1");
    command
}

const TOKEN: &str = "0123456789abcdef";

/// File with the token of the test servers.
fn token_file() -> &'static Path {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    FILE.get_or_init(|| {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("token-{}", std::process::id()));
        std::fs::write(&file, TOKEN).unwrap();
        file
    })
}

pub(crate) fn run(url: &str, arguments: &[&str]) -> Output {
    uvmctl(url).args(arguments).output().unwrap()
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub(crate) fn stderr(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Serves the API over this snapshot until the test process exits, and returns its URL.
pub(crate) fn serve_snapshot(snapshot: Snapshot) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let snapshot = Arc::new(snapshot);
            let take = move || std::future::ready(Some(Arc::clone(&snapshot)));
            let access = web::Access::by_tokens([(web::Grant::Read, Token::parse(TOKEN.as_bytes()).unwrap())]);
            let node = Node { version: "1.2.3", hostname: "gpu-17".to_owned(), access, ..Node::default() };
            let site = Service::new(node, Snapshots::new(take)).on_tcp(address);
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            serve(listener, site, Limits::default(), std::future::pending()).await;
        });
    });
    format!("http://{address}")
}

/// Serves these bytes as every response.
pub(crate) fn serve_bytes(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            read_request(&mut stream);
            // The client may close the connection at any time.
            let _ = stream.write_all(answer);
        }
    });
    format!("http://{address}")
}

/// Server with a fixed body per path, and status 404 for other paths. Records the requests.
#[derive(Clone, Default)]
pub(crate) struct Canned {
    bodies: Vec<(String, String)>,
    once: Arc<Mutex<Vec<(String, String)>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Canned {
    /// Adds a body. The first path that is a prefix of a request's applies.
    pub(crate) fn with(mut self, path: &str, body: &impl serde::Serialize) -> Self {
        self.bodies.push((path.to_owned(), serde_json::to_string(body).unwrap()));
        self
    }

    /// Adds a body for one request only.
    pub(crate) fn once(self, path: &str, body: &impl serde::Serialize) -> Self {
        self.once.lock().unwrap().push((path.to_owned(), serde_json::to_string(body).unwrap()));
        self
    }

    /// Body of a path.
    pub(crate) fn body(&self, path: &str) -> String {
        let known = self.bodies.iter().find(|(known, _)| path.starts_with(known.as_str()));
        known.map(|(_, body)| body.clone()).unwrap_or_default()
    }

    /// Requests received, with their headers.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// Serves over TCP, and returns the URL.
    pub(crate) fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let canned = self.clone();
        thread::spawn(move || listener.incoming().for_each(|stream| canned.answer(stream.unwrap())));
        url
    }

    /// Serves on a Unix socket.
    pub(crate) fn serve_on(&self, socket: &Path) {
        let listener = UnixListener::bind(socket).unwrap();
        let canned = self.clone();
        thread::spawn(move || listener.incoming().for_each(|stream| canned.answer(stream.unwrap())));
    }

    fn answer(&self, mut stream: impl Read + Write) {
        let Some(request) = read_request(&mut stream) else { return };
        let path = request.split(' ').nth(1).unwrap_or_default();
        let is_asked = |(known, _): &(String, String)| path.starts_with(known.as_str());
        let mut once = self.once.lock().unwrap();
        let once = once.iter().position(is_asked).map(|at| once.remove(at));
        let (status, body) = match once.or_else(|| self.bodies.iter().find(|known| is_asked(known)).cloned()) {
            Some((_, body)) => ("200 OK", body),
            None => ("404 Not Found", r#"{"status":404,"detail":"there is no such thing here"}"#.to_owned()),
        };
        self.requests.lock().unwrap().push(request);
        // The client may close the connection at any time.
        let _ =
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    }
}

/// One request with its headers and its whole body: closing a socket with bytes unread resets the
/// connection, and the client loses the response.
fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut request = Vec::new();
    let mut part = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= content_length(head)
        {
            return Some(text);
        }
        match stream.read(&mut part) {
            Ok(length @ 1..) => request.extend_from_slice(&part[..length]),
            _ => return None,
        }
    }
}

/// The length that a request's headers give its body, in bytes.
fn content_length(head: &str) -> usize {
    let is_length = |line: &&str| line.to_ascii_lowercase().starts_with("content-length:");
    head.lines().find(is_length).and_then(|line| line.split(':').nth(1)?.trim().parse().ok()).unwrap_or(0)
}

/// Address without a listener.
pub(crate) fn nothing() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

pub(crate) fn snapshot(state: SourceState) -> Snapshot {
    let dropped_events = BTreeMap::from([("map_full", 0)]);
    let source = SourceStatus { dropped_events, ..SourceStatus::new(state) };
    Snapshot::empty(at(252), source)
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

pub(crate) fn counting() -> Snapshot {
    let mut snapshot = snapshot(SourceState::Counting { since: at(0) });
    snapshot.source.driver = Some(DriverInfo {
        version: "550.163.01".to_owned(),
        layout: Some("550-555".to_owned()),
        attachment: Some("kprobe"),
        ..DriverInfo::default()
    });
    snapshot
}

pub(crate) const GPU: GpuKey = GpuKey::Known(GpuUuid([0xab; 16]));

/// Snapshot with two running processes and one that has exited.
pub(crate) fn busy() -> Snapshot {
    let mut snapshot = counting();
    snapshot.source.probes = vec![ProbeStatus {
        name: "uvm_perf_event_notify".to_owned(),
        hits: 20_000,
        run_time: Some(Duration::from_millis(8)),
        missing: None,
    }];
    snapshot
        .gpus
        .insert(GPU, Gpu { id: Some(1), index: Some(0), name: Some("NVIDIA H200".to_owned()), ..Gpu::default() });
    let mut counters = Counters::default();
    counters.fault_entries[Access::Read] = 18_400;
    counters.fault_instances[Access::Read] = 36_800;
    counters.bytes_htod[Cause::Fault] = 12_897_485;
    counters.bytes_dtoh[Cause::Eviction] = 5 << 30;
    (counters.populated_bytes, counters.replays) = (8 << 20, 310);
    (counters.evictions, counters.induced_evictions, counters.induced_eviction_bytes) = (2560, 1, 4096);
    (counters.thrashing_pages, counters.throttles, counters.throttled_ns) = (3, 2, 1_000_000);
    counters.batches.entries.record(60, 310, 18_400);
    counters.batches.service_ns.record(480_000, 310, 148_800_000);
    snapshot.processes = vec![
        process(41_207, "python train.py", None, counters.clone()),
        process(512, "idle", None, Counters::default()),
        process(9, "nbody", Some(at(200)), Counters::default()),
    ];
    snapshot.gpu_totals.insert(GPU, counters);
    snapshot
}

pub(crate) fn process(pid: u32, name: &str, ended: Option<SystemTime>, counters: Counters) -> Process {
    Process {
        id: ProcessId { pid, start_ticks: 1 },
        started_at: Some(at(1)),
        name: name.to_owned(),
        uid: 1000,
        user: Some("alice".to_owned()),
        cgroup: None,
        exited_at: ended,
        host: Counters { cpu_read_faults: 7, ..Counters::default() },
        gpus: BTreeMap::from([(GPU, counters)]),
        managed_bytes: Some(64 << 20),
        ..Process::new(ProcessId { pid, start_ticks: 1 }, name)
    }
}
