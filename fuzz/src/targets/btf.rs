//! `sys::btf`: types of a kernel, and of a module based on them.
//!
//! Input: a kernel's file, and a module's after [`SEPARATOR`]. Every lookup ends in bounded time,
//! and the file made for one function has that function at the same id.

use sys::{
    btf::Btf,
    driver_types,
    families::{Families, KernelNumbers},
};

/// Separator of two files: as long as a type's header, so that no seed contains it by chance.
const SEPARATOR: &[u8] = b"\n--module--\n";

pub(super) fn run(input: &[u8]) {
    let (kernel, module) = super::split_once(input, SEPARATOR);
    let Ok(types) = Btf::parse(kernel) else { return };
    let numbers = KernelNumbers::from_btf(&types, 4096);
    for name in ["task_struct", "cred", "mutex"] {
        let _ = types.offset_of(name, "comm");
        if types.size_of(name).is_ok() {
            assert!(types.size_of_type(name).is_some(), "a struct is a type");
        }
    }
    if let Ok(reduced) = types.only_function("bpf_iter_task_file") {
        let again = Btf::parse(&reduced).expect("what was made reads");
        assert_eq!(again.only_function("bpf_iter_task_file").as_ref(), Ok(&reduced));
        assert!(again.size_of("task_struct").is_err(), "nothing else is in it");
    }
    let Some(Ok(module)) = module.map(|module| Btf::parse_module(&types, module)) else { return };
    let families = Families::known().expect("the table is well formed");
    let _ = driver_types::derived_family(&families, &module);
    if let (Ok(numbers), Some(family)) = (numbers, families.of("550.163.01")) {
        let layout = family.layout(&numbers);
        if let Ok(completed) = driver_types::completed(family, &layout, &module) {
            let again = driver_types::completed(family, &completed, &module);
            assert_eq!(again.as_ref(), Ok(&completed), "what agrees goes on agreeing");
        }
    }
}
