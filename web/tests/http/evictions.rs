//! `/api/v1/evictions`, `/api/v1/owners` and `/api/v1/gpus`.

use std::collections::BTreeMap;

use model::{
    Access, Counters, EvictionCause, EvictionPair, Gpu, GpuKey, GpuSource, GpuUuid, Owner, OwnerKey, OwnerTotals,
    Party, ProcessId, Residency, Reuse, owner::Pod,
};
use serde::de::DeserializeOwned;

use crate::support::{at, busy, get, router};

async fn request<T: DeserializeOwned>(snapshot: model::Snapshot, path: &str) -> T {
    serde_json::from_str(&get(&router(snapshot), path).await.text).unwrap()
}

fn pod() -> Owner {
    Owner { pod: Some(Pod { uid: "7c1f".to_owned() }), ..Owner::default() }
}

#[tokio::test]
async fn pairs_are_sorted_by_bytes_and_name_known_processes() {
    let mut snapshot = busy();
    snapshot.processes.iter_mut().find(|process| process.name == "heavy").unwrap().owner = pod();
    let gpu = GpuKey::Known(GpuUuid([0xab; 16]));
    let pair = |victim, evictor, cause, bytes| EvictionPair { gpu, victim, evictor, cause, evictions: 3, bytes };
    let heavy = Party::Process(ProcessId { pid: 20, start_ticks: 120 });
    snapshot.evictions = vec![
        pair(Party::Forgotten, heavy, EvictionCause::Fault, 10),
        pair(heavy, Party::Unknown, EvictionCause::DeviceAllocation, 30),
    ];
    let evictions: api::Evictions = request(snapshot, "/api/v1/evictions").await;
    assert!(evictions.inferred);
    let [first, second] = evictions.pairs.as_deref().unwrap() else { panic!("{evictions:?}") };
    assert_eq!((first.bytes, first.evictions, first.cause.as_str()), (30, 3, "device_allocation"));
    assert_eq!(
        (first.victim.kind.as_str(), first.victim.pid, first.victim.name.as_deref()),
        ("process", Some(20), Some("heavy"))
    );
    assert_eq!(
        first.victim.owner.as_ref().map(|owner| (owner.kind.as_str(), owner.id.as_str())),
        Some(("pod", "7c1f"))
    );
    assert_eq!((first.evictor.kind.as_str(), first.evictor.pid), ("unknown", None));
    assert_eq!((second.victim.kind.as_str(), second.evictor.pid, second.bytes), ("forgotten", Some(20), 10));
}

#[tokio::test]
async fn owners_have_the_sums_of_their_processes() {
    let mut snapshot = busy();
    let counters = |faults| {
        let mut counters = Counters::default();
        counters.fault_entries[Access::Read] = faults;
        counters
    };
    let totals = |faults| OwnerTotals {
        host: Counters { cpu_read_faults: 1, ..Counters::default() },
        gpus: BTreeMap::from([(GpuKey::Unknown(1), counters(faults)), (GpuKey::Pending(1), counters(1))]),
        reuse: BTreeMap::from([(GpuKey::Pending(1), Reuse { fetched_bytes: 7, ..Reuse::default() })]),
        processes: 2,
        last_active_at: at(50),
    };
    snapshot.owners = BTreeMap::from([(OwnerKey::Other, totals(10)), (OwnerKey::Pod("7c1f".to_owned()), totals(500))]);
    let owners: api::Owners = request(snapshot, "/api/v1/owners").await;
    let [pod, other] = &owners.owners[..] else { panic!("{owners:?}") };
    assert_eq!((pod.kind.as_str(), pod.id.as_str(), pod.processes), ("pod", "7c1f", 2));
    assert_eq!((pod.counts.fault_entries, pod.counts.cpu_faults, pod.reuse.unwrap().fetched_bytes), (501, 1, 7));
    // Pending counts are in those of unknown GPUs.
    assert_eq!(
        (pod.gpus.len(), pod.gpus[0].counts.fault_entries, pod.gpus[0].reuse.unwrap().fetched_bytes),
        (1, 501, 7)
    );
    assert_eq!(
        (other.kind.as_str(), other.id.as_str(), other.last_active_at.as_str()),
        ("other", "", "2023-11-14T22:14:10.000Z")
    );
}

#[tokio::test]
async fn gpus_have_their_memory_and_its_use() {
    let mut snapshot = busy();
    let known = *snapshot.gpus.keys().next().unwrap();
    let card = snapshot.gpus.get_mut(&known).unwrap();
    *card = Gpu {
        index: Some(3),
        pci_address: Some("0000:17:00.0".to_owned()),
        memory_bytes: Some(64 << 20),
        memory_used_bytes: Some(60 << 20),
        source: Some(GpuSource::Nvml),
        ..card.clone()
    };
    for process in &mut snapshot.processes {
        process.residency.insert(known, Residency { bytes: 4, min_bytes: 3, max_bytes: 5 });
    }
    snapshot.reuse_totals = BTreeMap::from([(known, Reuse { refetched_bytes: 9, ..Reuse::default() })]);
    let gpus: api::Gpus = request(snapshot, "/api/v1/gpus").await;
    let [card, unknown] = &gpus.gpus[..] else { panic!("{gpus:?}") };
    assert_eq!(
        (card.gpu.id.gpu, card.gpu.id.processor_id, card.gpu.name.as_deref()),
        (Some(3), Some(1), Some("NVIDIA H200"))
    );
    assert_eq!((card.pci_address.as_deref(), card.source.as_deref()), (Some("0000:17:00.0"), Some("nvml")));
    assert_eq!((card.memory_bytes, card.memory_used_bytes), (Some(64 << 20), Some(60 << 20)));
    // Of the two running processes, 64 MiB each.
    assert_eq!((card.managed_bytes, card.oversubscription_ratio), (128 << 20, Some(2.0)));
    assert_eq!(card.resident, Some(Residency { bytes: 8, min_bytes: 6, max_bytes: 10 }));
    assert_eq!((card.reuse.unwrap().refetched_bytes, card.gpu.counts.fault_entries), (9, 917));
    assert_eq!(
        (unknown.gpu.id.uuid.as_ref(), unknown.memory_bytes, unknown.oversubscription_ratio),
        (None, None, None)
    );
}
