//! CPU code that faults, made up.

use model::{CodeModule, CodePlace, Site, SiteCounts, Sites};

use crate::scene::part;

/// Sites of a process whose CPUs raised this many faults.
pub(crate) fn sites(cpu_faults: u64) -> Sites {
    let module = |path: &str, offset, symbol: Result<(&str, u64), &str>| {
        let symbol = symbol.map(|(name, at)| (name.to_owned(), at)).map_err(str::to_owned);
        CodePlace::Module(CodeModule { path: path.into(), offset, elf_address: Some(offset), symbol })
    };
    let site = |pc, share: f64, place| {
        let faults = part(cpu_faults, share);
        Site { pc, counts: SiteCounts { bytes_dtoh: faults << 16, faults }, place: Some(place) }
    };
    let loader = module("/opt/venv/lib/python3.12/site-packages/loader/_native.so", 0x1_4f20, Ok(("normalize", 0x20)));
    let libc = module("/usr/lib/x86_64-linux-gnu/libc.so.6", 0x16_0a94, Ok(("__memmove_avx_unaligned_erms", 0x54)));
    let stripped = module("/opt/train/bin/stage", 0x9_01c4, Err("the file has no symbol table"));
    let busiest = vec![
        site(0x7f31_2001_4f20, 0.62, loader),
        site(0x7f31_4016_0a94, 0.27, libc),
        site(0x5581_9009_01c4, 0.08, stripped),
        site(0x7f31_8000_1000, 0.02, CodePlace::Anonymous),
    ];
    let unattributed = SiteCounts { bytes_dtoh: 0, faults: part(cpu_faults, 0.01) };
    Sites { known: busiest.len() as u64, busiest, unattributed }
}
