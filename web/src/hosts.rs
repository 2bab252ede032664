//! Names of the service in requests.

/// Names of the service that requests over TCP may have. They exclude a name that a foreign site
/// points at this machine (DNS rebinding); such a site cannot claim an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// These names, addresses, and localhost.
    Only(Vec<String>),
    /// These names of this machine, with and without their domains, addresses, and localhost. A
    /// loopback listener accepts the latter two only.
    OfMachine(Vec<String>),
}

impl Default for Hosts {
    fn default() -> Self {
        Self::OfMachine(Vec::new())
    }
}

impl Hosts {
    pub(crate) fn has(&self, name: &str) -> bool {
        // The trailing dot marks a fully qualified name, which is the same one.
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
