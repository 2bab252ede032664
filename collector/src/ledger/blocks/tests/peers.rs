//! Blocks that two GPUs take from each other.

use super::*;

const EVICTION: u16 = 4;
const PREFETCH: u16 = 3;
const MIGRATE: u16 = 6;

/// Record of a GPU, by a fault.
fn at(gpu: u32, kind: RecordKind, bytes: u32) -> BlockRecord {
    BlockRecord { gpu, ..record(kind, 3, 1, bytes) }
}

fn by(cause: u16, record: BlockRecord) -> BlockRecord {
    BlockRecord { cause, ..record }
}

/// Way of memory from one GPU to another through the host, by a fault.
fn staged(from: u32, to: u32, bytes: u32) -> [BlockRecord; 2] {
    [at(from, RecordKind::CopyStaged, bytes), at(to, RecordKind::CopyHtod, bytes)]
}

fn after(records: impl IntoIterator<Item = BlockRecord>) -> BlockMap {
    let mut map = BlockMap::default();
    records.into_iter().for_each(|record| map.add(&record, 10, 4096));
    map
}

/// Bounces and reclaimed bytes of each GPU.
fn peers(map: &BlockMap) -> Vec<(GpuKey, u64, u64)> {
    let reuse = map.peer_reuse(|_, id| GpuKey::Pending(id));
    reuse.into_iter().map(|(gpu, reuse)| (gpu, reuse.total_bounces(), reuse.reclaimed_bytes)).collect()
}

fn reuse(map: &BlockMap) -> Reuse {
    map.reuse(|_, _| GpuKey::Pending(0)).remove(&GpuKey::Pending(0)).unwrap_or_default()
}

const ONE: GpuKey = GpuKey::Pending(1);
const TWO: GpuKey = GpuKey::Pending(2);

#[test]
fn each_change_from_one_gpu_to_another_is_a_bounce_of_the_taker() {
    let first = at(1, RecordKind::Populated, 65536);
    let direct = [2, 1, 2].map(|gpu| at(gpu, RecordKind::CopyDtod, 65536));
    let through_host = [(1, 2), (2, 1), (1, 2)].map(|(from, to)| staged(from, to, 65536));
    for way in [direct.to_vec(), through_host.concat()] {
        let map = after([first].into_iter().chain(way));
        // The first time, 2 had nothing before.
        assert_eq!(peers(&map), [(ONE, 1, 65536), (TWO, 2, 65536)]);
        let Reuse { fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces } = reuse(&map);
        assert_eq!((fetched_bytes, refetched_bytes, cpu_reclaimed_bytes, bounces), (3 * 65536, 0, 0, 0));
    }
    let map = after([first].into_iter().chain(direct));
    assert_eq!(map.peer_reuse(|_, id| GpuKey::Pending(id))[&TWO].bounces, [(ONE, 2)].into());
}

#[test]
fn handover_reclaims_nothing_however_many_copies_it_takes() {
    let [out, in_] = staged(1, 2, 65536);
    let handover = [at(1, RecordKind::CopyHtod, 131_072), out, by(PREFETCH, out), in_, by(PREFETCH, in_)];
    assert_eq!(peers(&after(handover)), [(TWO, 1, 0)]);
    let [out, in_] = staged(2, 1, 65536);
    let back = [out, by(PREFETCH, out), in_, by(PREFETCH, in_)];
    assert_eq!(peers(&after(handover.into_iter().chain(back))), [(ONE, 1, 131_072), (TWO, 1, 0)]);
}

#[test]
fn requests_evictions_and_cpus_are_no_bounces_between_gpus() {
    let held = at(1, RecordKind::CopyHtod, 4096);
    let requested =
        [at(2, RecordKind::CopyDtod, 4096), at(1, RecordKind::CopyDtod, 4096)].map(|each| by(MIGRATE, each));
    assert_eq!(peers(&after([held].into_iter().chain(requested))), []);
    let requested = staged(1, 2, 4096).map(|each| by(MIGRATE, each));
    assert_eq!(peers(&after([held].into_iter().chain(requested))), []);
    let evicted = [by(EVICTION, at(1, RecordKind::CopyDtoh, 4096)), at(2, RecordKind::CopyHtod, 4096)];
    let map = after([held].into_iter().chain(evicted));
    assert_eq!((peers(&map), reuse(&map).refetched_bytes), (Vec::new(), 4096));
    let cpu = BlockRecord { gpu: 0, ..record(RecordKind::CpuFault, 3, 1, 0) };
    let map = after([held, cpu, at(1, RecordKind::CopyDtoh, 4096), at(2, RecordKind::CopyHtod, 4096)]);
    let Reuse { cpu_reclaimed_bytes, bounces, .. } = reuse(&map);
    assert_eq!((peers(&map), cpu_reclaimed_bytes, bounces), (Vec::new(), 4096, 2));
}

#[test]
fn block_whose_arrival_has_no_record_is_refetched_after_an_eviction() {
    let [out, _] = staged(1, 2, 65536);
    let evicted = by(EVICTION, at(2, RecordKind::CopyDtoh, 65536));
    let map = after([at(1, RecordKind::CopyHtod, 65536), out, evicted, at(2, RecordKind::CopyHtod, 65536)]);
    assert_eq!((peers(&map), reuse(&map).refetched_bytes), (Vec::new(), 65536));
}

#[test]
fn gpus_that_use_parts_of_their_own_of_a_block_take_nothing_from_each_other() {
    let parts = [1, 2, 1, 2].map(|gpu| at(gpu, RecordKind::CopyHtod, 4096));
    let map = after(parts);
    assert_eq!((peers(&map), reuse(&map).bounces), (Vec::new(), 0));
}
