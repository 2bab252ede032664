//! Clients of this machine as clients of the network: each address of 127.0.0.0/24 counts as a
//! separate peer.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
};

use tokio::net::{TcpListener, TcpStream};
use web::{Peer, server::Listen};

/// Listener that presents a client at 127.0.0.N as 198.51.100.N to the service.
#[derive(Debug)]
pub struct Distant(pub TcpListener);

impl Listen for Distant {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, peer) = Listen::accept(&self.0).await?;
        let distant = |address: SocketAddr| match address.ip() {
            IpAddr::V4(ip) => SocketAddr::from((Ipv4Addr::new(198, 51, 100, ip.octets()[3]), address.port())),
            IpAddr::V6(_) => address,
        };
        Ok((stream, if let Peer::Remote(address) = peer { Peer::Remote(distant(address)) } else { peer }))
    }
}
