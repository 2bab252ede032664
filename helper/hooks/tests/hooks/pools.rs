//! Memory of pools.

use std::sync::atomic::Ordering;

use call_ring::{MemoryKind, call::Action};

use crate::{driver, program::Program};

const STREAM: u64 = 0x5000;
const POOL: u64 = 0x9000;
const HOST: i32 = 1;
const DEVICE: i32 = 2;

#[test]
fn memory_of_a_pool_is_managed_the_hosts_or_the_devices() {
    let program = Program::start();
    let allocate: extern "C" fn(*mut u64, usize, u64, u64) -> i32 = program.function(c"cuMemAllocFromPoolAsync");
    let pools = [(1, DEVICE, MemoryKind::Managed), (0, HOST, MemoryKind::Host), (0, DEVICE, MemoryKind::Pool)];
    for (address, (is_managed, memory_type, kind)) in (0x70_0000..).step_by(0x1_0000).zip(pools) {
        driver::MANAGED.store(is_managed, Ordering::Relaxed);
        driver::MEMORY_TYPE.store(memory_type, Ordering::Relaxed);
        driver::CREATED.store(address, Ordering::Relaxed);
        let mut allocated = 0;
        assert_eq!(allocate(&raw mut allocated, 4096, POOL, STREAM), 0);
        assert_eq!(program.actions(), [Action::Malloc { stream: STREAM, address, bytes: 4096, kind, device: 0 }]);
    }
}
