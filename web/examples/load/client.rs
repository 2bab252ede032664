//! Clients from many addresses: all of 127.0.0.0/8 is this machine.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Time limit beyond which an operation hangs.
const HANG_LIMIT: Duration = Duration::from_mins(2);

/// Client at 127.0.0.`address`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    address: u8,
    service: SocketAddr,
}

/// Response as received; empty if the connection was closed instead.
pub(crate) struct Response(String);

/// Result of a stream of events.
pub(crate) struct Streamed {
    pub(crate) count: u64,
    pub(crate) is_rejected: bool,
}

impl Response {
    /// Status; `closed` without a response.
    pub(crate) fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap_or("closed")
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Cursor of the next page.
    pub(crate) fn cursor(&self) -> Option<String> {
        let (_, rest) = self.0.rsplit_once("\"continue\":\"")?;
        Some(rest.split_once('"')?.0.to_owned())
    }
}

impl Client {
    pub(crate) const fn new(address: u8, service: SocketAddr) -> Self {
        Self { address, service }
    }

    pub(crate) async fn get(self, path: &str) -> Result<Response, String> {
        self.request("GET", path, None, "").await
    }

    pub(crate) async fn request(
        self,
        method: &str,
        path: &str,
        token: Option<&str>,
        body: &str,
    ) -> Result<Response, String> {
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let response = async {
            let mut stream = self.connect().await?;
            stream.write_all((head + body).as_bytes()).await?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).await.map(|_| bytes)
        };
        match timeout(HANG_LIMIT, response).await {
            // A displaced connection has no response.
            Ok(bytes) => Ok(Response(String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned())),
            Err(_) => Err(format!("{path} hangs")),
        }
    }

    /// Counts events until a time.
    pub(crate) async fn events(self, until: Instant) -> Result<Streamed, String> {
        let failed = |error: std::io::Error| error.to_string();
        let mut stream = self.connect().await.map_err(failed)?;
        stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.map_err(failed)?;
        let (mut count, mut bytes, mut is_rejected, mut is_first) = (0, vec![0; 64 << 10], false, true);
        while let Ok(Ok(read @ 1..)) =
            timeout(until.saturating_duration_since(Instant::now()), stream.read(&mut bytes)).await
        {
            let received = bytes.get(..read).unwrap_or_default();
            is_rejected |= is_first && !received.starts_with(b"HTTP/1.1 200");
            is_first = false;
            count += received.windows(6).filter(|at| at == b"\ndata:").count() as u64;
        }
        Ok(Streamed { count, is_rejected })
    }

    async fn connect(self) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, self.address), 0)))?;
        socket.connect(self.service).await
    }
}
