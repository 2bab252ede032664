//! Module parameters of nvidia-uvm that change what its users see: prefetching, thrashing detection
//! and fault servicing.
//!
//! All except `uvm_fault_force_sysmem` are fixed once the driver is loaded (`/etc/modprobe.d`). The
//! defaults are those of the driver's source, 515 to 595. Parameters that a version lacks are not
//! shown for it.

use std::collections::BTreeMap;

use crate::roots::{Roots, line};

/// Parameter of the driver, with its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name, as in `/sys/module/nvidia_uvm/parameters`.
    pub name: &'static str,
    /// Default; `None` if versions or builds differ.
    pub default: Option<&'static str>,
}

const fn parameter(name: &'static str, default: &'static str) -> Parameter {
    Parameter { name, default: Some(default) }
}

/// Parameters that matter to uvmd.
pub const PARAMETERS: [Parameter; 30] = [
    parameter("uvm_ats_mode", "1"),
    // Y on arm64. N does not mean that the driver was built with it: see `symbols::has_hmm`.
    Parameter { name: "uvm_disable_hmm", default: None },
    parameter("uvm_enable_builtin_tests", "0"),
    parameter("uvm_enable_debug_procfs", "0"),
    parameter("uvm_enable_va_space_mm", "1"),
    parameter("uvm_fault_force_sysmem", "0"),
    parameter("uvm_global_oversubscription", "1"),
    parameter("uvm_perf_access_counter_migration_enable", "-1"),
    parameter("uvm_perf_access_counter_mimc_migration_enable", "-1"),
    parameter("uvm_perf_access_counter_momc_migration_enable", "-1"),
    parameter("uvm_perf_access_counter_threshold", "256"),
    parameter("uvm_perf_fault_batch_count", "256"),
    parameter("uvm_perf_fault_coalesce", "1"),
    parameter("uvm_perf_fault_max_batches_per_service", "20"),
    parameter("uvm_perf_fault_max_throttle_per_service", "5"),
    parameter("uvm_perf_fault_replay_policy", "2"),
    parameter("uvm_perf_fault_replay_update_put_ratio", "50"),
    parameter("uvm_perf_map_remote_on_eviction", "1"),
    parameter("uvm_perf_map_remote_on_native_atomics_fault", "0"),
    parameter("uvm_perf_prefetch_enable", "1"),
    parameter("uvm_perf_prefetch_min_faults", "1"),
    parameter("uvm_perf_prefetch_threshold", "51"),
    parameter("uvm_perf_thrashing_enable", "1"),
    parameter("uvm_perf_thrashing_epoch", "2000"),
    // Adaptive from 590 on, unless it was set.
    Parameter { name: "uvm_perf_thrashing_lapse_usec", default: None },
    parameter("uvm_perf_thrashing_max_resets", "4"),
    parameter("uvm_perf_thrashing_nap", "1"),
    parameter("uvm_perf_thrashing_pin", "300"),
    parameter("uvm_perf_thrashing_pin_threshold", "10"),
    parameter("uvm_perf_thrashing_threshold", "3"),
];

/// Values of the loaded driver, by name.
#[must_use]
pub fn read(roots: &Roots) -> BTreeMap<String, String> {
    let named = |name: &str| Some((name.to_owned(), value(roots, name)?));
    PARAMETERS.iter().filter_map(|parameter| named(parameter.name)).collect()
}

/// Value of one parameter of the loaded driver.
#[must_use]
pub fn value(roots: &Roots, name: &str) -> Option<String> {
    line(&roots.sys.join("module/nvidia_uvm/parameters").join(name))
}

/// Values that differ from the defaults.
#[must_use]
pub fn chosen(values: &BTreeMap<String, String>) -> Vec<(Parameter, String)> {
    let is_chosen = |parameter: &Parameter| {
        let value = values.get(parameter.name)?;
        parameter.default.is_some_and(|default| default != value).then(|| (*parameter, value.clone()))
    };
    PARAMETERS.iter().filter_map(is_chosen).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn only_existing_parameters_are_listed() {
        let machine = Machine::new()
            .with("sys/module/nvidia_uvm/parameters/uvm_perf_prefetch_threshold", "75\n")
            .with("sys/module/nvidia_uvm/parameters/uvm_perf_thrashing_lapse_usec", "100\n")
            .with("sys/module/nvidia_uvm/parameters/uvm_perf_thrashing_enable", "1\n")
            .with("sys/module/nvidia_uvm/parameters/uvm_leak_checker", "1\n");
        let values = read(&machine.roots);
        let names: Vec<_> = values.keys().collect();
        assert_eq!(
            names,
            ["uvm_perf_prefetch_threshold", "uvm_perf_thrashing_enable", "uvm_perf_thrashing_lapse_usec"]
        );
        assert_eq!(chosen(&values), [(parameter("uvm_perf_prefetch_threshold", "51"), "75".to_owned())]);
    }

    #[test]
    fn multiline_parameter_shows_its_first_line() {
        let machine = Machine::new().with("sys/module/nvidia_uvm/parameters/uvm_ats_mode", "\n1 \r\nHost: x\n");
        assert_eq!(value(&machine.roots, "uvm_ats_mode").as_deref(), Some("1"));
    }

    #[test]
    fn without_a_driver_there_are_no_parameters() {
        assert!(read(&Machine::new().roots).is_empty());
    }
}
