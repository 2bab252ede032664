//! TCP address to serve on, if any.

use std::{fmt, net::SocketAddr};

use serde::{Serialize, Serializer};

use super::Value;

/// TCP address to serve on, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// No TCP: the Unix socket only.
    None,
    /// This address and port.
    On(SocketAddr),
}

const NONE: &str = "none";

impl Value for Listen {
    const ALLOWED: &'static str =
        "an address and a port, such as \"127.0.0.1:9477\" or \"[::1]:9477\", or \"none\" for no TCP";

    fn of_text(text: &str) -> Option<Self> {
        if text == NONE { Some(Self::None) } else { text.parse().ok().map(Self::On) }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str(NONE),
            Self::On(address) => write!(f, "{address}"),
        }
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::texts, *};

    #[test]
    fn value_is_an_address_with_a_port_or_none() {
        texts::<Listen>(
            &["127.0.0.1:9477", "[::]:0", "none"],
            &["9477", "localhost:9477", "127.0.0.1", "", "None", "off"],
        );
        for text in ["127.0.0.1:9477", "[::1]:1", "none"] {
            assert_eq!(Listen::of_text(text).unwrap().to_string(), text);
        }
    }
}
