//! Names by which clients may ask.

/// By which names clients may ask over TCP. A name that a foreign site made point here is none of them (DNS rebinding); it cannot do that to an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// By these, by addresses and as localhost.
    Only(Vec<String>),
    /// By these names of this machine, as they are and without their domains, by addresses and as localhost; on loopback by that alone.
    OfMachine(Vec<String>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::OfMachine(Vec::new())
    }
}

impl Hosts {
    pub(crate) fn has(&self, name: &str) -> bool {
        // From the root of all names: it is the same one.
        let name = name.strip_suffix('.').unwrap_or(name);
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        match self {
            Self::Only(names) => names.iter().any(|known| known.eq_ignore_ascii_case(name)),
            Self::OfMachine(names) => {
                let is_short = |known: &str| !name.contains('.') && first(known) == first(name);
                names.iter().any(|known| known.eq_ignore_ascii_case(name) || is_short(known))
            }
        }
    }
}
