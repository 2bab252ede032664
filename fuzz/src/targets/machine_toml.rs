//! `sim::machine`: file of a machine's figures.
//!
//! Accepted figures give times that a simulation can add up: more bytes never take less time.

use sim::machine::Machine;

pub(super) fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Machine::parse(text) {
        Ok(machine) => {
            for link in [&machine.link_to_gpu, &machine.link_to_host] {
                let times = [0, 1, 4096, 2 << 20, 1 << 40].map(|bytes| link.transfer_ns(bytes));
                assert!(times.is_sorted(), "{times:?}");
            }
            for flash in [&machine.flash_read, &machine.flash_write] {
                assert!(flash.transfer_ns(4096) <= flash.transfer_ns(1 << 40));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
