use super::*;
use crate::fake::small_kernel;

#[test]
fn struct_sizes_and_member_offsets_are_read() {
    let file = small_kernel();
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.size_of("rw_semaphore"), Ok(40));
    assert_eq!(btf.offset_of("task_struct", "group_leader"), Ok(48));
}

#[test]
fn anonymous_struct_members_belong_to_the_enclosing_struct() {
    let file = small_kernel();
    assert_eq!(Btf::parse(&file).unwrap().offset_of("task_struct", "start_boottime"), Ok(16 + 24));
}

#[test]
fn missing_types_are_named() {
    let file = small_kernel();
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.size_of("spinlock"), Err(BtfError::NoStruct("spinlock")));
    assert_eq!(btf.offset_of("task_struct", "mm"), Err(BtfError::NoMember("task_struct", "mm")));
    // A prefix of a longer name does not match.
    assert_eq!(btf.size_of("task"), Err(BtfError::NoStruct("task")));
}

#[test]
fn truncated_btf_does_not_panic() {
    let file = small_kernel();
    for length in 0..file.len() {
        if let Ok(btf) = Btf::parse(&file[..length]) {
            panic!("{length} bytes of {} were accepted with {} types", file.len(), btf.begins.len());
        }
    }
}

#[test]
fn corrupt_btf_neither_panics_nor_loops() {
    let file = small_kernel();
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut broken = file.clone();
            broken[at] = value;
            if let Ok(btf) = Btf::parse(&broken) {
                let _ = (btf.size_of("rw_semaphore"), btf.offset_of("task_struct", "start_boottime"));
            }
        }
    }
}

#[test]
fn recursive_anonymous_struct_ends_the_search() {
    let mut file = small_kernel();
    // The type of task_struct's anonymous member becomes task_struct itself, whose own name then
    // contradicts it for `mm`.
    let at = 24 + 16 + 24 + 36 + 12 + 12 + 4;
    assert_eq!(u32_at(&file, at), Some(3));
    file[at..at + 4].copy_from_slice(&4u32.to_ne_bytes());
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.offset_of("task_struct", "mm"), Err(BtfError::NoMember("task_struct", "mm")));
}

#[test]
fn repeatedly_recursive_struct_ends_the_search() {
    const TIMES: u32 = 40;
    let strings = b"\0task_struct\0";
    let mut types = vec![1, KIND_STRUCT << 24 | TIMES, 8];
    types.extend([0, 1, 0].repeat(TIMES as usize));
    let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
    let (length, names) = (u32::try_from(types.len()).unwrap(), u32::try_from(strings.len()).unwrap());
    let mut file = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
    file.extend([24, 0, length, length, names].into_iter().flat_map(u32::to_ne_bytes));
    file.extend([&types[..], strings].concat());
    // 40 members, each of which has 40 and so on, eight levels deep: an unbounded search would
    // visit the same ones 6 million million times.
    let btf = Btf::parse(&file).unwrap();
    assert_eq!(btf.offset_of("task_struct", "mm"), Err(BtfError::NoMember("task_struct", "mm")));
}

#[test]
fn single_function_keeps_its_type_id() {
    let mut file = small_kernel();
    assert_eq!(Btf::parse(&file).unwrap().only_function("int"), Err(BtfError::NoFunction("int")));
    // The last type is a struct with two members. In its place: a function and two declarations of
    // 12 bytes each.
    let btf = Btf::parse(&file).unwrap();
    let (index, begin) = (btf.begins.len() - 1, btf.begins[btf.begins.len() - 1]);
    let at = 24 + usize::try_from(begin).unwrap();
    file[at + 4..at + 8].copy_from_slice(&(KIND_FUNCTION << 24).to_ne_bytes());
    for member in [at + 12, at + 24] {
        file[member + 4..member + 8].copy_from_slice(&(KIND_FORWARD << 24).to_ne_bytes());
    }
    let only = Btf::parse(&file).unwrap().only_function("inode").unwrap();
    let only = Btf::parse(&only).unwrap();
    assert_eq!(only.begins.len(), index + 1);
    assert_eq!(only.header(only.begins[index]).unwrap().kind, KIND_FUNCTION);
    assert!(only.begins[..index].iter().all(|begin| only.header(*begin).unwrap().kind == KIND_FORWARD));
}

#[test]
fn btf_of_this_kernel_is_readable() {
    let Ok(file) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        println!("skipped: this kernel shows no BTF");
        return;
    };
    let btf = Btf::parse(&file).unwrap();
    assert!(btf.size_of("rw_semaphore").unwrap() >= 24);
    assert!(btf.offset_of("task_struct", "group_leader").unwrap() > 0);
    assert!(btf.offset_of("task_struct", "start_boottime").unwrap() > 0);
}

#[test]
fn functions_of_a_module_follow_the_kernels_types() {
    let kernel = small_kernel();
    let kernel = Btf::parse(&kernel).unwrap();
    let names = u32::try_from(kernel.strings.len()).unwrap();
    let strings = b"\0uvm_first\0uvm_second\0";
    let types = [names + 1, KIND_FUNCTION << 24, 1, names + 11, KIND_FUNCTION << 24, 1];
    let types: Vec<u8> = types.into_iter().flat_map(u32::to_ne_bytes).collect();
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
    let mut file = [&MAGIC.to_ne_bytes()[..], &[1, 0]].concat();
    file.extend([24, 0, length(&types), length(&types), length(strings)].into_iter().flat_map(u32::to_ne_bytes));
    file.extend([&types[..], strings].concat());

    let module = Btf::parse_module(&kernel, &file).unwrap();
    let types_of_kernel = u32::try_from(kernel.begins.len()).unwrap();
    assert_eq!(module.id_of_function("uvm_first"), Some(types_of_kernel + 1));
    assert_eq!(module.id_of_function("uvm_second"), Some(types_of_kernel + 2));
    assert_eq!(module.id_of_function("uvm"), None);
    // Those of the kernel are none of the module's.
    assert_eq!(kernel.id_of_function("uvm_first"), None);
    assert_eq!(module.id_of_function("task_struct"), None);
}
