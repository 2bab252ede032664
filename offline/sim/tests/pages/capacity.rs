//! What the host has no room for.

use super::*;

/// A machine with so many MiB of host memory.
fn machine(host_mib: u64) -> Machine {
    let mut machine = Machine::named("a100").unwrap();
    machine.memory.host_bytes.value = host_mib * MIB;
    machine
}

#[test]
fn what_the_cpu_touches_goes_to_flash_where_the_host_has_no_room() {
    let machine = machine(4);
    let mut pages = Pages::new(&machine, 4 * MIB, []);
    (0..4 * BLOCK_PAGES).for_each(|page| pages.by_cpu(page));
    assert_eq!(pages.host_bytes(), 4 * MIB);
    assert_eq!(pages.counts().bytes_ssd_written, 4 * MIB);
    // Six faults a block on the host; where the CPU maps nothing, each touch is one.
    assert_eq!(pages.counts().cpu_faults, 2 * 6 + 2 * BLOCK_PAGES);
}

#[test]
fn where_not_all_that_the_tree_brings_has_room_the_fault_comes_alone() {
    let mut machine = machine(2);
    machine.memory.host_bytes.value -= 64 << 10;
    let mut pages = Pages::new(&machine, 4 * MIB, []);
    // 31 of 32 granules, where the tree would have brought the second half at once.
    (0..31 * 16).for_each(|page| pages.by_cpu(page));
    assert_eq!((pages.host_bytes(), pages.counts().bytes_ssd_written), (31 << 16, 0));
}

#[test]
fn no_program_puts_more_on_the_host_than_it_holds() {
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
    assert!(written > 10 * MIB, "{written} bytes: too little to tell");
}
