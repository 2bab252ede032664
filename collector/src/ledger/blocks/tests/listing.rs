//! Published part of many blocks.

use super::*;

#[test]
fn block_list_is_ordered_by_address_and_limited_to_the_most_recent() {
    let mut map = BlockMap::default();
    for (block, boottime_ns) in [(4, 1), (1, 2), (3, 3), (2, 4)] {
        map.add(&BlockRecord { boottime_ns, ..record(RecordKind::GpuFaults, block, 1, 0) }, 100, 4096);
    }
    let all = |max| -> Vec<u64> {
        let blocks = map.all(max, |_, id| GpuKey::Pending(id), |_| SystemTime::UNIX_EPOCH);
        blocks.iter().map(|block| block.address / BLOCK).collect()
    };
    assert_eq!((all(100), all(2)), (vec![1, 2, 3, 4], vec![2, 3]));
}
