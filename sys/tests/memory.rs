//! Memory of this process after large allocations are freed: alone in its process, as other tests
//! would allocate meanwhile.
#![cfg(target_env = "gnu")]

use sys::memory::return_freed_memory;

#[test]
fn freed_large_allocations_are_returned_between_small_live_ones() {
    assert!(return_freed_memory());
    let resident = || procfs::process::Process::myself().unwrap().stat().unwrap().rss * procfs::page_size();
    // Unless it was set, this makes the allocator keep allocations of that length.
    drop(vec![1_u8; 16 << 20]);
    let before = resident();
    let pairs = || (0..64).map(|_| (vec![1_u8; 1 << 20], vec![1_u8; 1000])).unzip::<_, _, Vec<_>, Vec<_>>();
    let (large, small) = std::thread::spawn(pairs).join().unwrap();
    let peak = resident();
    drop(large);
    assert!(peak > before + (60 << 20) && resident() < before + (16 << 20), "{before} {peak} {}", resident());
    drop(small);
}
