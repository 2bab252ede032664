use std::{
    fs::{self, File},
    hint::black_box,
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::*;
use crate::fake::Machine;

const PID: u32 = 42;
const BASE: u64 = 0x7f00_0000_0000;

/// ELF file with a segment of code at offset 0x400 and address 0x1400, and these functions: name, address, size.
fn elf(functions: &[(&str, u64, u64)]) -> Vec<u8> {
    let functions: Vec<_> = functions.iter().map(|(name, address, size)| (name.as_bytes(), *address, *size)).collect();
    elf_of(&functions)
}

/// The same, with names that need not be text.
fn elf_of(functions: &[(&[u8], u64, u64)]) -> Vec<u8> {
    let (mut names, mut symbols) = (vec![0_u8], vec![0_u8; 24]);
    for (name, address, size) in functions {
        let mut symbol = [0_u8; 24];
        symbol[..4].copy_from_slice(&u32::try_from(names.len()).unwrap().to_le_bytes());
        // A global function in section 1.
        (symbol[4], symbol[6]) = (0x12, 1);
        symbol[8..16].copy_from_slice(&address.to_le_bytes());
        symbol[16..].copy_from_slice(&size.to_le_bytes());
        symbols.extend(symbol);
        names.extend(*name);
        names.push(0);
    }
    let mut file = vec![0_u8; 0x1000];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    let mut write = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    let (symbols_at, names_at) = (0x800_u64, 0xc00_u64);
    // Header: one segment at 64, three sections at 0x200.
    write(32, &64_u64.to_le_bytes());
    write(40, &0x200_u64.to_le_bytes());
    write(54, &[56, 0, 1, 0, 64, 0, 3, 0]);
    // PT_LOAD.
    write(64, &[1]);
    write(64 + 8, &0x400_u64.to_le_bytes());
    write(64 + 16, &0x1400_u64.to_le_bytes());
    write(64 + 32, &0x400_u64.to_le_bytes());
    // SHT_SYMTAB in section 1, with its names in section 2.
    write(0x240 + 4, &[2]);
    write(0x240 + 24, &symbols_at.to_le_bytes());
    write(0x240 + 32, &(symbols.len() as u64).to_le_bytes());
    write(0x240 + 40, &[2]);
    write(0x280 + 24, &names_at.to_le_bytes());
    write(0x280 + 32, &(names.len() as u64).to_le_bytes());
    write(0x800, &symbols);
    write(0xc00, &names);
    file
}

/// Process with this file as `/opt/app`, mapped from offset 0x400 at `BASE`, and further mappings.
fn machine(file: &[u8], further: &str) -> Machine {
    let machine = Machine::new().with("root/opt/app", file);
    machine.link("proc/42/root", "../../root");
    let inode = fs::metadata(machine.roots.proc.join("42/root/opt/app")).unwrap().ino();
    let maps = format!("{BASE:x}-{:x} r-xp 00000400 08:01 {inode}   /opt/app\n{further}", BASE + 0x400);
    machine.with("proc/42/maps", maps)
}

fn place(machine: &Machine, pc: u64) -> Place {
    let [(found, place)] = &places(&machine.roots, PID, &[pc]).unwrap()[..] else { panic!("one place") };
    assert_eq!(*found, pc);
    place.clone()
}

fn module(machine: &Machine, pc: u64) -> Module {
    match place(machine, pc) {
        Place::Module(module) => module,
        other => panic!("{other:?}"),
    }
}

fn symbol(file: &[u8]) -> Result<Symbol, NoSymbol> {
    module(&machine(file, ""), BASE + 0x14).symbol
}

#[test]
fn instruction_has_module_offset_address_and_function() {
    let machine = machine(&elf(&[("first", 0x1400, 0x10), ("second", 0x1410, 0x20)]), "");
    let Module { path, offset, elf_address, symbol } = module(&machine, BASE + 0x14);
    assert_eq!((&*path, offset, elf_address), ("/opt/app", 0x414, Some(0x1414)));
    assert_eq!(symbol, Ok(Symbol { name: "second".to_owned(), offset: 4 }));
    assert_eq!(module(&machine, BASE + 0x30).symbol, Err(NoSymbol::NoFunction), "after the last function");
}

#[test]
fn innermost_of_nested_functions_has_the_instruction() {
    let found = symbol(&elf(&[("inner", 0x1410, 0x10), ("outer", 0x1400, 0x100)]));
    assert_eq!(found.map(|symbol| symbol.name), Ok("inner".to_owned()));
}

#[test]
fn instructions_without_a_file_are_told_apart() {
    let further = format!(
        "{:x}-{:x} r-xp 00000000 00:00 0 \n{:x}-{:x} r-xp 00000000 00:00 0      [vdso]\n",
        BASE + 0x1000,
        BASE + 0x2000,
        BASE + 0x3000,
        BASE + 0x4000
    );
    let machine = machine(&elf(&[]), &further);
    assert_eq!(place(&machine, BASE + 0x1000), Place::Anonymous);
    assert_eq!(place(&machine, BASE + 0x2000), Place::Unmapped);
    assert_eq!(&*module(&machine, BASE + 0x3004).path, "[vdso]");
}

#[test]
fn replaced_files_have_no_symbols() {
    let machine = machine(&elf(&[("f", 0x1400, 0x100)]), "");
    let path = machine.roots.proc.join("42/root/opt/app");
    fs::rename(&path, path.with_extension("old")).unwrap();
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::NotFound), "gone");
    fs::write(&path, elf(&[("other", 0x1400, 0x100)])).unwrap();
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::Replaced), "another one");
    let maps = fs::read_to_string(machine.roots.proc.join("42/maps")).unwrap();
    machine.write("proc/42/maps", maps.replace("/opt/app", "/opt/app (deleted)"));
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::Replaced), "deleted");
}

#[test]
fn no_link_leads_out_of_the_root_of_the_process() {
    let machine = machine(&elf(&[("f", 0x1400, 0x100)]), "");
    let path = machine.roots.proc.join("42/root/opt/app");
    fs::rename(&path, path.with_extension("old")).unwrap();
    machine.link("root/opt/app", "app.old");
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::Unreadable));
}

#[test]
fn special_files_are_not_opened() {
    let machine = machine(&elf(&[]), "");
    let path = machine.roots.proc.join("42/root/opt/app");
    fs::remove_file(&path).unwrap();
    // An open of it would wait for a writer.
    machine.hang("root/opt/app");
    let inode = fs::metadata(&path).unwrap().ino();
    machine.write("proc/42/maps", format!("{BASE:x}-{:x} r-xp 00000400 08:01 {inode} /opt/app\n", BASE + 0x400));
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::Unreadable));
}

#[test]
fn files_of_the_kernel_are_told_apart_before_they_are_opened() {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let is_of_kernel = |path: &Path| is_of_kernel(open(path, flags, Mode::empty()).unwrap());
    for path in ["/proc/self/status", "/proc/self/maps", "/sys/kernel"] {
        assert_eq!(is_of_kernel(Path::new(path)), Ok(true), "{path}");
    }
    let machine = machine(&elf(&[]), "");
    assert_eq!(is_of_kernel(&machine.roots.proc.join("42/root/opt/app")), Ok(false));
    assert_eq!(is_of_kernel(&std::env::current_exe().unwrap()), Ok(false));
}

#[test]
fn files_of_the_kernel_have_no_symbols() {
    // Another root for the process: this machine's files of /proc are below it.
    let machine = machine(&elf(&[]), "");
    let root = machine.roots.proc.join("42/root");
    fs::remove_file(&root).unwrap();
    machine.link("proc/42/root", "/");
    let inode = fs::metadata("/proc/version").unwrap().ino();
    machine.write("proc/42/maps", format!("{BASE:x}-{:x} r-xp 00000400 08:01 {inode} /proc/version\n", BASE + 0x400));
    assert_eq!(module(&machine, BASE).symbol, Err(NoSymbol::Unreadable));
}

#[test]
fn invalid_files_have_no_symbols() {
    let valid = elf(&[("f", 0x1400, 0x100)]);
    assert!(symbol(&valid).is_ok());
    let with = |at: usize, bytes: &[u8]| {
        let mut file = valid.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        symbol(&file).map(|symbol| symbol.name)
    };
    assert_eq!(symbol(b"#!/bin/sh\n"), Err(NoSymbol::NotElf));
    assert_eq!(symbol(&valid[..0x100]), Err(NoSymbol::NotElf), "cut");
    assert_eq!(with(4, &[1]), Err(NoSymbol::NotElf), "32 bits");
    assert_eq!(with(60, &[0, 0]), Err(NoSymbol::Stripped), "no sections");
    assert_eq!(with(60, &[0xff, 0xff]), Err(NoSymbol::NotElf), "too many sections");
    assert_eq!(with(40, &u64::MAX.to_le_bytes()), Err(NoSymbol::NotElf), "sections beyond the end");
    assert_eq!(with(0x240 + 24, &u64::MAX.to_le_bytes()), Err(NoSymbol::NotElf), "symbols beyond the end");
    assert_eq!(with(0x240 + 32, &u64::MAX.to_le_bytes()), Err(NoSymbol::TooLarge));
    assert_eq!(with(0x240 + 40, &[99]), Err(NoSymbol::Stripped), "no section of names");
    assert_eq!(with(0x280 + 24, &u64::MAX.to_le_bytes()), Err(NoSymbol::NoFunction), "names beyond the end");
    assert_eq!(with(0x818, &u32::MAX.to_le_bytes()), Err(NoSymbol::NoFunction), "a name beyond the names");
    assert_eq!(with(64 + 8, &u64::MAX.to_le_bytes()), Err(NoSymbol::NoFunction), "a segment beyond the end");
}

#[test]
fn long_names_are_cut() {
    let long = "f".repeat(300);
    assert_eq!(symbol(&elf(&[(&long, 0x1400, 0x100)])).unwrap().name, long[..256]);
    let name = symbol(&elf_of(&[(&[0xff; 256], 0x1400, 0x100)])).unwrap().name;
    assert_eq!(name, "\u{fffd}".repeat(85), "cut after it became text");
    assert_eq!(shortened(&"/a".repeat(300)).len(), 256);
}

#[test]
fn own_function_is_found_by_its_address() {
    let pc = black_box(own_function_is_found_by_its_address as fn()) as usize as u64;
    let own = places(&Roots::default(), std::process::id(), &[pc]).unwrap();
    let [(_, Place::Module(Module { path, elf_address, symbol, .. }))] = &own[..] else { panic!("{own:?}") };
    assert_eq!(Path::new(&**path).file_name(), std::env::current_exe().unwrap().file_name());
    let Symbol { name, offset } = symbol.clone().unwrap();
    assert!(name.contains("own_function_is_found_by_its_address") && offset == 0, "{name}+{offset}");
    assert!(elf_address.is_some());
}

#[test]
fn process_without_memory_has_no_places() {
    let machine = Machine::new().with("proc/42/maps", "");
    assert_eq!(places(&machine.roots, PID, &[BASE]).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(File::open(machine.roots.proc.join("43/maps")).is_err() && places(&machine.roots, 43, &[BASE]).is_err());
}
