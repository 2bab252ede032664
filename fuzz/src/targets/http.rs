//! `web`: any bytes of a client, over one connection.
//!
//! Input: the peer ([`PEERS`]), and the bytes that it sends. It receives whole responses, none of
//! which reports a failure of the service. A peer without permission sees only public data, and
//! changes nothing.

mod responses;
mod service;

use std::{cell::OnceCell, future, io, sync::Mutex, time::Duration};

use service::{ADDRESS, Board, READ_TOKEN, SECRET, WRITE_TOKEN};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    runtime::{self, Runtime},
    sync::oneshot,
    time,
};
use web::{
    Grant, Peer, Service,
    server::{self, Limits, Listen},
};

/// Peers, by the first byte of an input.
const PEERS: [Peer; 5] = [
    Peer::Unknown,
    Peer::Remote(ADDRESS),
    Peer::Local { uid: 1000, pid: None, grant: None },
    Peer::Local { uid: 1000, pid: Some(7), grant: Some(Grant::Read) },
    Peer::Local { uid: 0, pid: Some(8), grant: Some(Grant::Write) },
];
/// Kernel buffer of either side in bytes.
const BUFFER_BYTES: usize = 64 << 10;
/// Maximum bytes of the responses on one connection; more than any input of 64 KiB with a request
/// per line gets.
const ANSWERED_MAX_BYTES: u64 = 256 << 20;
/// Time limit in the service's time, which runs as fast as possible: longer than any connection may
/// last.
const TIMEOUT: Duration = Duration::from_hours(1);

thread_local! {
    /// Service of each thread, for all inputs.
    static SERVICE: OnceCell<(Runtime, Service, Board)> = const { OnceCell::new() };
}

pub(super) fn run(input: &[u8]) {
    let Some((first, sent)) = input.split_first() else { return };
    let Some(peer) = PEERS.get(usize::from(first.wrapping_sub(b'0'))) else { return };
    let has = |token: &[u8]| sent.windows(token.len()).any(|part| part == token);
    let grant = match peer {
        Peer::Local { grant, .. } => *grant,
        Peer::Unknown | Peer::Remote(_) => None,
    };
    let (answered, changes) = SERVICE.with(|known| {
        let (runtime, service, board) = known.get_or_init(|| {
            let (service, board) = service::new();
            (paused_runtime(), service, board)
        });
        board.reset();
        (runtime.block_on(ask(service, *peer, sent)), board.changes())
    });
    responses::check(&answered, sent);
    if grant.is_none() && !has(READ_TOKEN) && !has(WRITE_TOKEN) {
        assert!(!answered.windows(SECRET.len()).any(|part| part == SECRET), "who may not read it reads it");
    }
    if grant != Some(Grant::Write) && !has(WRITE_TOKEN) {
        assert_eq!(changes, 0, "who may change nothing changes something");
    }
}

/// Runtime with one thread, whose time advances while it is idle.
fn paused_runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("threads can be made")
}

/// All response bytes to these bytes, until the service closes the connection.
async fn ask(service: &Service, peer: Peer, sent: &[u8]) -> Vec<u8> {
    let (client, served) = tokio::io::duplex(BUFFER_BYTES);
    let site = if matches!(peer, Peer::Local { .. }) { service.on_socket() } else { service.on_tcp(ADDRESS) };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = server::serve(Once(Mutex::new(Some((served, peer)))), site, Limits::default(), async {
        let _ = stopped.await;
    });
    let asking = async {
        let (from, mut to) = tokio::io::split(client);
        let mut answered = Vec::new();
        let mut from = from.take(ANSWERED_MAX_BYTES);
        // It may close before it has read everything.
        let (_, read) = tokio::join!(to.write_all(sent), from.read_to_end(&mut answered));
        drop((to, stop));
        assert!(read.is_ok() && (answered.len() as u64) < ANSWERED_MAX_BYTES);
        answered
    };
    let both = async { tokio::join!(serving, asking) };
    time::timeout(TIMEOUT, both).await.expect("no connection lasts for ever").1
}

/// Listener with a single client.
struct Once(Mutex<Option<(DuplexStream, Peer)>>);

impl Listen for Once {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Peer)> {
        let arrived = self.0.lock().expect("nobody panics with it").take();
        match arrived {
            Some(arrived) => Ok(arrived),
            None => future::pending().await,
        }
    }
}
