//! Remedies for a first-touch storm: faults come from memory that is touched for the first time.

use model::text;

use super::{Case, Remedies, Remedy};

pub(super) fn remedies(case: &Case<'_>) -> Remedies {
    let effective = [prefetch(case), device_memory(case), pool(case)];
    Remedies { effective: effective.into_iter().flatten().collect(), ineffective: Vec::new() }
}

fn prefetch(case: &Case<'_>) -> Option<Remedy> {
    let inputs = &case.verdict.inputs;
    let what = case.involved().next().map_or_else(|| "it".to_owned(), |involved| format!("the {}", involved.name()));
    let fits = case.process.managed_bytes? <= case.managed_capacity_bytes()?;
    let how = if fits { "" } else { ", in parts, as not all of it fits" };
    let action = format!("in the program: cudaMemPrefetchAsync {what} to the GPU before the first kernel uses it{how}");
    let evidence = format!(
        "{} GPU faults per second populated {}/s; a prefetch populates without faults",
        case.rate(inputs.fault_entries, text::count),
        case.rate(inputs.populated_bytes, text::bytes)
    );
    Some(Remedy::new(action, evidence))
}

fn device_memory(case: &Case<'_>) -> Option<Remedy> {
    let fits = case.process.managed_bytes? <= case.managed_capacity_bytes()?;
    (case.process.counts.cpu_faults == 0 && fits).then(|| {
        let evidence = "its managed memory has no CPU faults, and fits into the GPU";
        Remedy::new("in the program: allocate it with cudaMalloc", evidence)
            .unless("a CPU initialises it before the GPU uses it, or the program relies on oversubscription")
    })
}

/// Reuse of allocations. Populated bytes beyond twice the managed memory show repeated allocation.
fn pool(case: &Case<'_>) -> Option<Remedy> {
    let (touched, managed) = (case.process.counts.populated_bytes?, case.process.managed_bytes?);
    (managed > 0 && touched / 2 >= managed).then(|| {
        let evidence = format!(
            "{} were populated since uvmd counts, and it has {} of managed memory",
            text::bytes(touched),
            text::bytes(managed)
        );
        Remedy::new("in the program: allocate once and reuse the memory, for example with a memory pool", evidence)
    })
}

#[cfg(test)]
mod tests {
    use crate::explain::remedies::testing::{Fixture, GIB, actions, effective};

    fn storm() -> Fixture {
        let mut known = Fixture::new("first_touch_storm");
        known.involved(0x1000_0000, 8 * GIB, "sequential", 0.0);
        (known.verdict.inputs.fault_entries, known.verdict.inputs.populated_bytes) = (5000, 10 * GIB);
        known.process.managed_bytes = Some(8 * GIB);
        known.process.counts.cpu_faults = 1;
        known.card(80 * GIB, 8 * GIB);
        known
    }

    #[test]
    fn memory_is_prefetched_before_it_is_used() {
        let advice = effective(&storm());
        assert_eq!(advice.len(), 1, "{advice:?}");
        assert!(advice[0].action.ends_with("before the first kernel uses it"), "{advice:?}");
        assert!(advice[0].evidence.contains("1.0k GPU faults per second populated 2.0 GiB/s"), "{advice:?}");
    }

    #[test]
    fn memory_that_does_not_fit_is_prefetched_in_parts() {
        let mut known = storm();
        known.card(4 * GIB, 8 * GIB);
        assert!(actions(&known)[0].contains("in parts"));
    }

    #[test]
    fn unknown_capacity_yields_no_advice() {
        let mut known = storm();
        known.gpu = None;
        assert_eq!(actions(&known), [""; 0]);
    }

    #[test]
    fn memory_without_cpu_faults_may_be_device_memory() {
        let mut known = storm();
        known.process.counts.cpu_faults = 0;
        assert!(actions(&known)[1].contains("cudaMalloc"));
        known.card(4 * GIB, 8 * GIB);
        assert!(!actions(&known).concat().contains("cudaMalloc"), "it does not fit");
    }

    #[test]
    fn repeated_first_touches_suggest_a_memory_pool() {
        let mut known = storm();
        known.process.counts.populated_bytes = Some(16 * GIB);
        assert!(actions(&known)[1].contains("memory pool"));
        known.process.counts.populated_bytes = Some(15 * GIB);
        assert!(!actions(&known).concat().contains("pool"));
    }
}
