//! Sites of CPU faults in words.

use model::{CodePlace, Site, text::address};

/// Place of a site: `step+0x14 in /opt/train`.
#[must_use]
pub fn place(site: &Site) -> String {
    let at = address(site.pc);
    match &site.place {
        _ if site.pc == 0 => "a thread of the kernel, as those of io_uring".to_owned(),
        None => format!("{at}, which was not looked up"),
        Some(CodePlace::Unmapped) => format!("an unknown module at {at}"),
        Some(CodePlace::Anonymous) => format!("code without a file at {at}"),
        Some(CodePlace::Module(module)) => match &module.symbol {
            Ok((name, offset)) => format!("{name}+{offset:#x} in {}", module.path),
            Err(reason) => {
                format!("{} at {} ({reason})", module.path, address(module.elf_address.unwrap_or(module.offset)))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use model::{CodeModule, SiteCounts};

    use super::*;

    #[test]
    fn each_place_has_its_words() {
        let words = |pc, found| place(&Site { pc, counts: SiteCounts::default(), place: found });
        let module = |elf_address, symbol| {
            Some(CodePlace::Module(CodeModule { path: "/opt/train".into(), offset: 0x234, elf_address, symbol }))
        };
        let stripped = || Err("the file has no symbol table".to_owned());
        assert_eq!(words(0x5000, module(Some(0x1234), Ok(("step".to_owned(), 20)))), "step+0x14 in /opt/train");
        let at = |address| format!("/opt/train at {address} (the file has no symbol table)");
        assert_eq!(words(0x5000, module(Some(0x1234), stripped())), at("0x1234"));
        assert_eq!(words(0x5000, module(None, stripped())), at("0x234"));
        assert_eq!(words(0x5000, Some(CodePlace::Anonymous)), "code without a file at 0x5000");
        assert_eq!(words(0x5000, Some(CodePlace::Unmapped)), "an unknown module at 0x5000");
        assert_eq!(words(0x5000, None), "0x5000, which was not looked up");
        assert_eq!(words(0, Some(CodePlace::Unmapped)), "a thread of the kernel, as those of io_uring");
    }
}
