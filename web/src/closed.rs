//! Why connections are closed.

/// Why the service closed a connection, though its peer did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Another one needed its place, and it was idle for longest, or was answered first.
    Displaced,
    /// It waited for a place while too many others did.
    QueueFull,
    /// Its peer took nothing of what was to be sent for too long.
    WriteTimeout,
    /// Its peer took too long to take an answer.
    SendTimeout,
    /// Its peer took nothing while memory for answers was short.
    MemoryPressure,
    /// No request's head came in time.
    HeadTimeout,
    /// It was old enough, and its last request not over in time.
    Expired,
}

impl Closed {
    pub(crate) const ALL: [Self; 7] = [
        Self::Displaced,
        Self::QueueFull,
        Self::WriteTimeout,
        Self::SendTimeout,
        Self::MemoryPressure,
        Self::HeadTimeout,
        Self::Expired,
    ];

    /// The value of the label `reason`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Displaced => "displaced",
            Self::QueueFull => "queue_full",
            Self::WriteTimeout => "write_timeout",
            Self::SendTimeout => "send_timeout",
            Self::MemoryPressure => "memory_pressure",
            Self::HeadTimeout => "head_timeout",
            Self::Expired => "expired",
        }
    }
}
