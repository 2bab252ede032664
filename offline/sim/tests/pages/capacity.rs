//! Memory beyond the host's capacity.

use super::*;

/// Machine with `host_mib` MiB of host memory.
fn machine(host_mib: u64) -> Machine {
    let mut machine = Machine::named("a100").unwrap();
    machine.memory.host_bytes.value = host_mib * MIB;
    machine
}

#[test]
fn cpu_accesses_go_to_flash_if_the_host_is_full() {
    let machine = machine(4);
    let mut pages = Pages::new(&machine, 4 * MIB, []);
    (0..4 * BLOCK_PAGES).for_each(|page| pages.by_cpu(page));
    assert_eq!(pages.host_bytes(), 4 * MIB);
    assert_eq!(pages.counts().bytes_ssd_written, 4 * MIB);
    // A block on the host takes six faults. Outside it the CPU maps nothing, and each access
    // faults.
    assert_eq!(pages.counts().cpu_faults, 2 * 6 + 2 * BLOCK_PAGES);
}

#[test]
fn a_fault_is_serviced_alone_if_the_prefetched_granules_do_not_fit() {
    let mut machine = machine(2);
    machine.memory.host_bytes.value -= 64 << 10;
    let mut pages = Pages::new(&machine, 4 * MIB, []);
    // 31 of 32 granules fit, where the tree would have added the second half at once.
    (0..31 * 16).for_each(|page| pages.by_cpu(page));
    assert_eq!((pages.host_bytes(), pages.counts().bytes_ssd_written), (31 << 16, 0));
}

#[test]
fn no_program_exceeds_host_memory() {
    let machine = machine(3);
    let mut dice = Dice(5);
    let mut written = 0;
    for _ in 0..40 {
        let mut pages = Pages::new(&machine, 4 * MIB, []);
        for _ in 0..30 {
            let from = dice.below(5 * BLOCK_PAGES);
            let range = from..from + 1 + dice.below(600);
            match dice.below(5) {
                0 | 1 => range.step_by(7).for_each(|page| pages.by_cpu(page)),
                2 => pages.move_to_host(range),
                3 => pages.move_to_gpu(range).unwrap(),
                _ => pages.by_gpu(range, 64).unwrap(),
            }
            assert!(pages.host_bytes() <= 3 * MIB, "{}", pages.host_bytes());
        }
        written += pages.counts().bytes_ssd_written;
    }
    assert!(written > 10 * MIB, "{written} bytes: too little for the test");
}
