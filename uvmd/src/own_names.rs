//! Names of this machine: the kernel's, and the resolver's canonical one, which may have a domain.

use std::{fs, io, thread, time::Duration};

use anyhow::Context;
use dns_lookup::AddrInfoHints;
use tokio::{sync::oneshot, time};

/// Time limit of the resolver, which may query servers that do not respond: uvmd then starts
/// without the domain.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Names of this machine, the kernel's first. Requests over TCP may use each.
///
/// # Errors
///
/// If the kernel's cannot be read.
pub(crate) async fn read() -> anyhow::Result<Vec<String>> {
    const PATH: &str = "/proc/sys/kernel/hostname";
    let name =
        fs::read_to_string(PATH).with_context(|| format!("cannot read {PATH}; name this node with --hostname"))?;
    let name = name.trim().to_owned();
    let canonical = look_up(name.clone()).await.and_then(|canonical| of_this_machine(&name, canonical));
    Ok([name].into_iter().chain(canonical).collect())
}

/// Looks up the name on a separate thread: one that hangs does not block the exit.
async fn look_up(name: String) -> Option<String> {
    let (sender, answer) = oneshot::channel();
    let look_up = move || drop(sender.send(canonical(&name)));
    thread::Builder::new().name("own-name".to_owned()).spawn(look_up).ok()?;
    match time::timeout(TIMEOUT, answer).await.ok()?.ok()? {
        Ok(name) => name,
        Err(error) => {
            tracing::debug!("the resolver does not know this machine's name, so its domain is unknown: {error}");
            None
        }
    }
}

fn canonical(name: &str) -> io::Result<Option<String>> {
    let hints = AddrInfoHints { flags: libc::AI_CANONNAME, ..AddrInfoHints::default() };
    let mut found = dns_lookup::getaddrinfo(Some(name), None, Some(hints))?;
    Ok(found.next().transpose()?.and_then(|found| found.canonname))
}

/// Canonical name, if it is this machine's with a domain. A resolver must not add names of others,
/// such as those of all loopback addresses.
fn of_this_machine(name: &str, canonical: String) -> Option<String> {
    let host = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let is_other = host(&canonical) != host(name) || !canonical.contains('.') || canonical.eq_ignore_ascii_case(name);
    (!is_other).then_some(canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canonical_name_counts_only_if_it_is_this_machines_with_a_domain() {
        let of = |canonical: &str| of_this_machine("node7", canonical.to_owned());
        assert_eq!(of("node7.example.org").as_deref(), Some("node7.example.org"));
        assert_eq!(of("Node7.Example.org").as_deref(), Some("Node7.Example.org"));
        for other in ["node7", "localhost", "localhost.localdomain", "node77.example.org", "a.node7.example.org", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn the_kernels_name_is_the_first_and_others_are_of_the_same_host() {
        let names = read().await.unwrap();
        let kernel = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        assert_eq!(names.first().map(String::as_str), Some(kernel.trim()));
        assert!(names.len() <= 2 && names.iter().skip(1).all(|name| name.contains('.')), "{names:?}");
    }

    #[test]
    fn the_resolver_knows_localhost() {
        assert!(canonical("localhost").unwrap().is_some());
    }
}
