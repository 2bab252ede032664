//! Reasons for closing connections.

/// Reason why the service closed a connection before its peer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Another connection needed its place, and it had been idle longest, or was the first to get a
    /// response.
    Displaced,
    /// Removed from the queue for a place, which was full.
    QueueFull,
    /// No byte was accepted by the peer for too long.
    WriteTimeout,
    /// A response was not received by the peer in time.
    SendTimeout,
    /// No byte was accepted by the peer while memory for responses was short.
    MemoryPressure,
    /// The head of a request did not arrive in time.
    HeadTimeout,
    /// Past its maximum age, with a last request that did not end in time.
    Expired,
    /// The handshake of TLS did not end in time.
    HandshakeTimeout,
    /// Its event stream ended, for that of a peer with fewer.
    StreamDisplaced,
}

impl Closed {
    pub(crate) const ALL: [Self; 9] = [
        Self::Displaced,
        Self::QueueFull,
        Self::WriteTimeout,
        Self::SendTimeout,
        Self::MemoryPressure,
        Self::HeadTimeout,
        Self::Expired,
        Self::HandshakeTimeout,
        Self::StreamDisplaced,
    ];

    /// Value of the label `reason`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Displaced => "displaced",
            Self::QueueFull => "queue_full",
            Self::WriteTimeout => "write_timeout",
            Self::SendTimeout => "send_timeout",
            Self::MemoryPressure => "memory_pressure",
            Self::HeadTimeout => "head_timeout",
            Self::Expired => "expired",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::StreamDisplaced => "stream_displaced",
        }
    }
}
