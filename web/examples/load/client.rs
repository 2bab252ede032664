//! Clients from addresses of their own: all of 127.0.0.0/8 is this machine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Nothing takes so long that does not hang.
const HUNG: Duration = Duration::from_mins(2);

/// Somebody at 127.0.0.`address`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    address: u8,
    service: SocketAddr,
}

/// An answer as it came; empty if the connection was closed instead.
pub(crate) struct Answer(String);

/// What came of a stream of events.
pub(crate) struct Streamed {
    pub(crate) count: u64,
    pub(crate) is_refused: bool,
}

impl Answer {
    /// The status; `closed` where there is none.
    pub(crate) fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or("closed")
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Where the next page begins.
    pub(crate) fn cursor(&self) -> Option<String> {
        let (_, rest) = self.0.rsplit_once("\"continue\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    }
}

impl Client {
    pub(crate) const fn new(address: u8, service: SocketAddr) -> Self {
        Self { address, service }
    }

    pub(crate) async fn get(self, path: &str) -> Result<Answer, String> {
        self.ask("GET", path, None, "").await
    }

    pub(crate) async fn ask(self, method: &str, path: &str, token: Option<&str>, body: &str) -> Result<Answer, String> {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let answer = async {
            let mut stream = self.connect().await?;
            stream.write_all((head + body).as_bytes()).await?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.map(|_| bytes)
        };
        match timeout(HUNG, answer).await {
            // One that had to make room for others.
            Ok(bytes) => Ok(Answer(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())),
            Err(_) => Err(format!("{path} hangs")),
        }
    }

    /// Counts events until then.
    pub(crate) async fn events(self, until: Instant) -> Result<Streamed, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut stream = self.connect().await.map_err(failed)?;
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.map_err(failed)?;
        let (mut count, mut bytes, mut is_refused, mut is_first) = (0, vec![0; 64 << 10], false, true);
        while let Ok(Ok(read @ 1..)) =
            timeout(until.saturating_duration_since(Instant::now()), stream.read(&mut bytes)).await
        {
            let came = bytes.get(..read).unwrap_or_default();
            is_refused |= is_first && !came.starts_with(b"HTTP/1.1 200");
            is_first = false;
            count += came.windows(6).filter(|at| at == b"\ndata:").count() as u64;
        }
        Ok(Streamed { count, is_refused })
    }

    async fn connect(self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, self.address), 0)))?;
        socket.connect(self.service).await
    }
}
