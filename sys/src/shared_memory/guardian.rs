//! Guardian: a thread that ends accesses to mapped memory which fault without end.
//!
//! A page is charged to the cgroup in which it was made. Its user can swap it out and lower the limit of that
//! cgroup. The kernel can then neither charge the page to it nor fail the access: it lets the instruction fault
//! again, for good. Memory that is locked cannot be swapped out, but the process can replace a locked page
//! between the lock and an access. So the guardian locks all mappings again and again, and revokes one that
//! cannot be locked or has holes: the access reads zeros, and the next use of the memory is an error.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::Duration,
};

use super::mapping::Mapping;

/// Time for which an access may fault.
const INTERVAL: Duration = Duration::from_millis(200);

static GUARDED: Mutex<Guarded> = Mutex::new(Guarded { mappings: Vec::new(), is_running: false });

struct Guarded {
    mappings: Vec<Weak<Mapping>>,
    is_running: bool,
}

/// Guards a mapping until it is dropped.
///
/// # Errors
/// If the guardian cannot be started.
pub(super) fn guard(mapping: &Arc<Mapping>) -> io::Result<()> {
    let mut guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    if !guarded.is_running {
        thread::Builder::new().name("shared-memory".to_owned()).spawn(run)?;
        guarded.is_running = true;
    }
    guarded.mappings.push(Arc::downgrade(mapping));
    Ok(())
}

fn run() {
    while let Some(mappings) = live() {
        for mapping in &mappings {
            // Memory with holes is not used again, and a lock would fill them.
            if mapping.check_holes().is_err() || mapping.lock().is_err() {
                mapping.revoke();
            }
        }
        drop(mappings);
        thread::sleep(INTERVAL);
    }
}

/// Mappings that are still in use; `None`, and the guardian ends, without any.
fn live() -> Option<Vec<Arc<Mapping>>> {
    let mut guarded = GUARDED.lock().unwrap_or_else(PoisonError::into_inner);
    guarded.mappings.retain(|mapping| mapping.strong_count() > 0);
    guarded.is_running = !guarded.mappings.is_empty();
    guarded.is_running.then(|| guarded.mappings.iter().filter_map(Weak::upgrade).collect())
}
