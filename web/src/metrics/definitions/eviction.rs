//! Evictions by pair of owners: victim and evictor.

use std::collections::BTreeMap;

use model::{GpuKey, OwnerEvictions, OwnerKey, Quantity};

use crate::metrics::{
    definition::{Definition, Sample, Samples, counted},
    figures::{Figures, labels_of_gpu},
    labels::{EVICTION_CAUSE, EVICTOR, EVICTOR_KIND, GPU, Label, UUID, VICTIM, VICTIM_KIND},
};

const PAIR: &[&Label] = &[&GPU, &UUID, &VICTIM_KIND, &VICTIM, &EVICTOR_KIND, &EVICTOR, &EVICTION_CAUSE];

pub(super) const DEFINITIONS: &[Definition] = &[
    Definition {
        name: "uvm_owner_pair_evicted_bytes_total",
        labels: PAIR,
        help: "Bytes of one owner's memory evicted for another owner, or for itself. The evictor is \
               inferred by the probes. A series exists from the first eviction on. Their number is bounded: pairs beyond it are \
               in the series of `other` for `other`, of the same GPU and cause.",
        samples: Samples::Counter(|figures| each_pair(figures, |pair| pair.bytes)),
    },
    Definition {
        name: "uvm_owner_pair_evicted_chunks_total",
        labels: PAIR,
        help: "Chunks of at most 2 MiB of those evictions, also where nothing had to be copied.",
        samples: Samples::Counter(|figures| {
            counted(figures, Quantity::Evictions, || each_pair(figures, |pair| pair.evictions))
        }),
    },
];

fn each_pair(figures: &Figures<'_>, value: fn(&OwnerEvictions) -> u64) -> Vec<Sample> {
    let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    // Pending counts move to another series later, which a counter cannot.
    for pair in figures.snapshot.owner_evictions.iter().filter(|pair| !matches!(pair.gpu, GpuKey::Pending(_))) {
        let mut labels = labels_of_gpu(figures.snapshot, pair.gpu);
        labels.extend(names(pair.victim.as_ref()));
        labels.extend(names(pair.evictor.as_ref()));
        labels.push(pair.cause.name().to_owned());
        // GPUs without a known UUID share a series.
        let sum = sums.entry(labels).or_default();
        *sum = sum.saturating_add(value(pair));
    }
    sums.into_iter().map(|(labels, sum)| Sample { labels, value: sum as f64 }).collect()
}

/// Kind and id of an owner.
fn names(owner: Option<&OwnerKey>) -> [String; 2] {
    owner.map_or_else(|| ["unknown".to_owned(), String::new()], |key| [key.kind().to_owned(), key.id().to_owned()])
}
