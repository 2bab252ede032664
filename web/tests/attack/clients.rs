//! Clients from many addresses: all of 127.0.0.0/8 is this machine.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{HANG_LIMIT, service::Service};

/// Connection of one client.
pub(crate) struct Client(TcpStream);

impl Client {
    /// Connects from 127.0.0.`address`.
    pub(crate) async fn from(address: u8, service: &Service) -> Self {
        Self::to(address, service.address, None).await
    }

    /// Connects likewise, and requests a path without reading the response.
    pub(crate) async fn requesting(address: u8, service: &Service, path: &str) -> Self {
        // The smallest receive buffer, so that unread bytes stay with the service.
        let client = Self::to(address, service.address, Some(4096)).await;
        client.request(path);
        client
    }

    async fn to(address: u8, service: SocketAddr, receive_buffer: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, address), 0))).unwrap();
        Self(timeout(HANG_LIMIT, socket.connect(service)).await.expect("no connection").unwrap())
    }

    /// Requests a path without reading the response.
    pub(crate) fn request(&self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // The connection may have been displaced.
        let _ = self.0.try_write(request.as_bytes());
    }

    /// Requests a path and reads the whole response; empty if the connection was closed instead.
    pub(crate) async fn get(&mut self, path: &str) -> String {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let response = async {
            self.0.write_all(request.as_bytes()).await?;
            let mut bytes = Vec::new();
            self.0.read_to_end(&mut bytes).await.map(|_| bytes)
        };
        let bytes = timeout(HANG_LIMIT, response).await.unwrap_or_else(|_| panic!("{path} hangs"));
        String::from_utf8(bytes.unwrap_or_default()).unwrap()
    }

    /// Reads up to `bytes` of a response.
    pub(crate) fn read_some(&self, bytes: usize) {
        let mut buffer = vec![0; bytes];
        let _ = self.0.try_read(&mut buffer);
    }
}

/// Whether this is a complete response with status 200.
pub(crate) fn is_complete(response: &str) -> bool {
    let Some((head, body)) = response.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    head.starts_with("HTTP/1.1 200 OK") && length == Some(body.len())
}

/// Requests one page after another on one connection, each after the previous response, and
/// reconnects if the connection is closed.
pub(crate) async fn keep_requesting(address: u8, service: SocketAddr, begin: usize) {
    let mut bytes = vec![0; 64 << 10];
    for at in begin.. {
        let client = Client::to(address, service, None).await;
        'responses: loop {
            client.request(&format!("/api/v1/processes?limit={}", at % 50 + 1));
            let mut response = Vec::new();
            // The JSON ends with the number of remaining items.
            while !response.ends_with(b"}") || !response.windows(12).any(|part| part == b"\"remaining\":") {
                if client.0.readable().await.is_err() {
                    break 'responses;
                }
                match client.0.try_read(&mut bytes) {
                    Ok(length @ 1..) => response.extend_from_slice(&bytes[..length]),
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => break 'responses,
                }
            }
        }
    }
}

/// Requests `count` different paths, and reads each response. Returns their statuses.
pub(crate) async fn vary(address: u8, service: &Service, count: u32) -> Vec<String> {
    let mut statuses = Vec::new();
    for at in 0..count {
        let number = u32::from(address) * 1000 + at;
        let path = match at % 6 {
            0 => format!("/api/v1/processes?limit={}", number % 1000 + 1),
            1 => format!("/api/v1/processes/summary?uid={number}"),
            2 => format!("/api/v1/processes/{}?blocks={}", 1000 + number % 5000, number % 64),
            3 => format!("/api/v1/processes/{}/verdict", 1000 + number % 5000),
            4 => format!("/api/v1/owners?continue=AAAAAAAA{number}"),
            _ => format!("/api/v1/processes/{}/history?seconds={number}", 1000 + number % 5000),
        };
        let response = Client::from(address, service).await.get(&path).await;
        // A displaced connection has no response.
        statuses
            .extend(response.split(' ').nth(1).map(|status| if status == "404" { "400" } else { status }.to_owned()));
    }
    statuses
}
