//! A global fatal error of the driver is seen with its status.

use probes_test::{bench::Bench, driver, image};

const PROGRAMS: &[&str] = &["uvm_fatal_error"];
const RC_ERROR: u32 = 0x60;
const INVALID_STATE: u32 = 0x40;

#[test]
fn first_fatal_error_is_kept_as_the_driver_keeps_it() {
    for family in image::families() {
        let Some(mut bench) = Bench::only(PROGRAMS, &family) else { return };
        assert_eq!(bench.probes().fatal_status().unwrap(), None, "{family}");
        for status in [RC_ERROR, INVALID_STATE] {
            driver::set_fatal_error(status);
            assert_eq!(bench.probes().fatal_status().unwrap(), Some(RC_ERROR), "{family}");
        }
        assert_eq!(bench.lost(), []);
    }
}
